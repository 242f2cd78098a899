"""Distinct rows on grids of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, planted_races
from .threaded import Threaded

N, M = arith.SizeVar("n", 0, 10000), arith.SizeVar("m", 0, 100)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("shape", [(50, 1), (1, 1), (40, 2), (9, 0)])
def test_shapes(able, ordered, shape):
    """NaNs equal one another, and so do zeros."""
    kernel = Threaded(ops.unique, able, (shape, "float32"), ordered=ordered)
    kernel.check([np.random.default_rng(0).choice([np.nan, -np.nan, 0.0, -0.0, 1.0, -np.inf], shape).astype(np.float32)])


@pytest.fixture(scope="module", params=[(name, ordered) for name in CLASSES for ordered in (True, False)], ids=str)
def any_size_kernel(request):
    name, ordered = request.param
    return Threaded(ops.unique, CLASSES[name], ((N, M), "int32"), ordered=ordered)


@settings(deadline=None, max_examples=8)
@given(rows=st.integers(0, 80), columns=st.integers(0, 3), values=st.integers(1, 50), seed=st.integers(0, 99))
def test_any_size(any_size_kernel, rows, columns, values, seed):
    x = np.random.default_rng(seed).integers(0, values, (rows, columns)).astype(np.int32)
    any_size_kernel.check([x], {N: rows, M: columns}, seed=seed)


def test_barriers_of_any_size(any_size_kernel):
    assert planted_races(any_size_kernel.split) == []
