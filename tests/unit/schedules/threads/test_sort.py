"""Orders of rows on grids of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, planted_races
from .threaded import Threaded

N, M, K = (arith.SizeVar(name) for name in "nmk")
CASES = {
    "less than a tile": ((3, 40), 1, 40),
    "a tile": ((2, 64), 1, 64),
    "several tiles": ((2, 300), 1, 300),
    "few of many": ((2, 300), 1, 3),
    "columns": ((70, 3), 0, 20),
    "one element": ((4, 1), 1, 1),
    "none of some": ((3, 70), 1, 0),
    "no rows": ((0, 70), 1, 2),
    "rows in the middle": ((2, 5, 3), 1, 5),
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("shape", "axis", "k"), CASES.values(), ids=CASES)
def test_shapes(able, shape, axis, k):
    """With many duplicates, of which the first comes first."""
    x = np.random.default_rng(0).integers(-5, 6, shape).astype(np.float32)
    for largest in (True, False):
        kernel = Threaded(ops.topk, able, (shape, "float32"), axis=axis, k=k, largest=largest)
        kernel.check([x])
        assert planted_races(kernel.split) == []


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float64"])
def test_element_types(able, dtype):
    """The keys of 64 bits take more of the memory that threads share."""
    kernel = Threaded(ops.topk, able, ((1, 150), dtype), axis=1, k=150)
    x = np.random.default_rng(1).integers(0, 256, (1, 150)).astype(np.uint8).view(np.int8).astype(dtype)
    kernel.check([x])


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("largest", [True, False])
def test_special_values(able, largest):
    """NaN is greater than all numbers, whatever its bits, and zeros are equal."""
    x = np.random.default_rng(2).choice([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, 1.0], (2, 90)).astype(np.float32)
    Threaded(ops.topk, able, ((2, 90), "float32"), axis=1, k=90, largest=largest).check([x])


@pytest.fixture(scope="module", params=CLASSES.values(), ids=CLASSES)
def any_size_kernel(request):
    return Threaded(ops.topk, request.param, ((N, M), "int32"), axis=1, k=K)


@settings(deadline=None, max_examples=20)
@given(rows=st.sampled_from((0, 1, 3)), columns=st.integers(0, 200), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_any_size(any_size_kernel, rows, columns, share, seed):
    x = np.random.default_rng(seed).integers(-20, 20, (rows, columns)).astype(np.int32)
    k = int(share * columns)
    actual = any_size_kernel.run([x], {N: rows, M: columns, K: k}, seed)
    for left, right in zip(ops.topk.reference(replace(any_size_kernel.call.attrs, k=k), x), actual, strict=True):
        np.testing.assert_array_equal(left, right)


def test_barriers_of_any_size(any_size_kernel):
    assert planted_races(any_size_kernel.split) == []
