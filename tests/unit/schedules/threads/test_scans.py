"""Running sums and products on grids of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, planted_races
from .threaded import Threaded

N, M = arith.SizeVar("n"), arith.SizeVar("m")
BLOCK = 32
CASES = {
    "a thread for each short row": ((70, 5), 1, 1),
    "a thread for each column": ((3, 40, 300), 1, 1),
    "a block for each row": ((3, 2 * BLOCK + 1), 1, 1),
    "a block for few columns": ((2 * BLOCK, 3), 0, 1),
    "many blocks": ((2, 20 * BLOCK), 1, 3),
    "no rows": ((0, 50), 1, 0),
    "no elements": ((3, 0), 1, 0),
    "one element": ((1,), 0, 1),
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("shape", "axis", "kernels"), CASES.values(), ids=CASES)
def test_shapes(able, shape, axis, kernels):
    random = np.random.default_rng(0)
    kernel = Threaded(ops.cumsum, able, (shape, "int32"), axis=axis)
    assert len(kernel.split.kernels) == kernels
    kernel.check([random.integers(-9, 10, shape).astype(np.int32)])
    assert planted_races(kernel.split) == []


@pytest.fixture(scope="module", params=[(name, axis) for name in CLASSES for axis in (0, 1)], ids=str)
def any_size_kernel(request):
    name, axis = request.param
    return Threaded(ops.cumsum, CLASSES[name], ((N, M), "int64"), axis=axis)


@settings(deadline=None, max_examples=15)
@given(rows=st.sampled_from((0, 1, 3, 300)), columns=st.sampled_from((0, 1, 16, 17, 33, 513)), seed=st.integers(0, 9))
def test_any_size(any_size_kernel, rows, columns, seed):
    any_size_kernel.check([np.random.default_rng(seed).integers(-9, 10, (rows, columns))], {N: rows, M: columns}, seed=seed)


def test_barriers_of_any_size(any_size_kernel):
    assert planted_races(any_size_kernel.split) == []


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("operator", [ops.cumsum, ops.cumprod])
def test_attributes(able, operator, reverse, exclusive):
    """Integers wrap."""
    kernel = Threaded(operator, able, ((2, 75), "int8"), axis=1, reverse=reverse, exclusive=exclusive)
    kernel.check([np.random.default_rng(1).integers(-9, 10, (2, 75)).astype(np.int8)])


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_floats(able):
    """What is not finite reaches what comes behind it, and nothing before."""
    kernel = Threaded(ops.cumsum, able, ((2, 600), "float32"), axis=1)
    x = np.random.default_rng(2).standard_normal((2, 600)).astype(np.float32)
    kernel.check([x], tolerance=1e-4)
    x[0, 333], x[1, 40], x[1, 50] = np.nan, np.inf, -np.inf
    kernel.check([x], tolerance=1e-4)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_narrow_floats_accumulate_wide(able):
    kernel = Threaded(ops.cumsum, able, ((1, 200), "float16"), axis=1)
    kernel.check([np.random.default_rng(3).standard_normal((1, 200)).astype(np.float16)], tolerance=2e-3)
