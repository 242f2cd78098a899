"""Operators that work out sizes, on grids of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, planted_races
from .threaded import Threaded

N, M = arith.SizeVar("n", 0, 10000), arith.SizeVar("m", 0, 1000)
SHAPES = {"matrix": (3, 40), "many": (2, 600), "no element": (0, 5), "one element": (1,), "no dimension": (), "planes": (2, 3, 20)}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_positions(able, shape):
    kernel = Threaded(ops.nonzero, able, (shape, "float32"))
    random = np.random.default_rng(0)
    for share in (0.0, 0.1, 0.9, 1.0):
        x = np.where(random.random(shape) < share, random.choice([-1.0, np.nan, 1e-45], shape), 0.0).astype(np.float32)
        kernel.check([x])
    assert planted_races(kernel.split) == []


@pytest.fixture(scope="module", params=CLASSES.values(), ids=CLASSES)
def any_size_kernel(request):
    return Threaded(ops.nonzero, request.param, ((N, M), "bool"))


@settings(deadline=None, max_examples=15)
@given(rows=st.sampled_from((0, 1, 3)), columns=st.sampled_from((0, 1, 33, 200)), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_any_size(any_size_kernel, rows, columns, share, seed):
    any_size_kernel.check([np.random.default_rng(seed).random((rows, columns)) < share], {N: rows, M: columns}, seed=seed)


def test_the_size_is_an_input_of_what_reads_it(any_size_kernel):
    """One thread works it out, and launches do not depend on it."""
    *_, works_out, reads = any_size_kernel.split.kernels.values()
    ((_, written),) = any_size_kernel.program.defines
    assert works_out.program.outputs == (written,) and works_out.threads == {}
    ((size, read),) = reads.program.defines
    assert read in reads.program.inputs and all(size not in arith.free_vars(extent) for extent in reads.grid.values())


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("strides", [(1, 1), (2, -3)])
def test_slices(able, strides):
    kernel = Threaded(
        ops.dynamic_slice, able, ((4, 5, 40), "int32"), ((2,), "int64"), ((2,), "int64"), axes=(0, 2), strides=strides
    )
    x = np.arange(800, dtype=np.int32).reshape(4, 5, 40)
    for starts, ends in (((0, 0), (4, 40)), ((-3, 37), (-1, 2)), ((2, 5), (2, 5)), ((-9, -90), (99, 90))):
        kernel.check([x, np.array(starts), np.array(ends)])
