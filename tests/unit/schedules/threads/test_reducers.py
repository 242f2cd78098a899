"""Reductions of one's own: by any rule that takes them, a thread for each result at least."""

from __future__ import annotations

import pytest

from inlaid import te
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

from .interpreter_checks import CLASSES, check_against_interpreter

N = arith.SizeVar("n", 1, 64)


def argmax(shape):
    """The greatest element of each row and where it is first, as a reduction of pairs."""

    def combine(a, b):
        first = (b[0] < a[0]) | (b[0].equal(a[0]) & (a[1] < b[1]))
        return te.select(first, a[0], b[0]), te.select(first, a[1], b[1])

    reducer = te.comm_reducer(combine, lambda types: (te.const(-1e30, types[0]), te.const(1 << 30, types[1])), "argmax")
    x = te.placeholder(shape, "float32", "x")
    k = te.reduce_axis(shape[1], "k")
    values, places = te.compute((shape[0],), lambda i: reducer((x[i, k], ir.Index(dtype("int32"), k)), k), "argmax")
    return te.program([x], [values, places], "argmax")


def joined(shape):
    """a + b + a * b over each row: one reduction, by no operator that has a name."""
    reducer = te.comm_reducer(lambda a, b: (a[0] + b[0] + a[0] * b[0],), lambda types: (te.const(0, types[0]),), "joined")
    x = te.placeholder(shape, "int32", "x")
    k = te.reduce_axis(shape[1], "k")
    return te.program([x], [te.compute((shape[0],), lambda i: reducer(x[i, k], k), "joined")], "joined")


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("shape", [(5, 33), (N, 20), (40, 7)])
@pytest.mark.parametrize("make", [argmax, joined])
def test_computes_the_same(make, shape, able):
    split = check_against_interpreter(make(shape), able, [{N: n} for n in (1, 9)])
    for item in split.kernels.values():
        assert item.threads
