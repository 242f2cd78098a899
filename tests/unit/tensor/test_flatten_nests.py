"""Deep nests with merged outer loops compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.transform.flatten_nests import MAX_LOOPS, flatten_nests
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import dtype


def transposed(count: int) -> ir.LoopProgram:
    sizes = tuple(SizeVar(f"d{number}") for number in range(count))
    x = te.placeholder(sizes, "float32", "x")
    return lower([te.compute(sizes[::-1], lambda *indices: x[indices[::-1]] * 2.0, "y")], [x], "transposed")


def depth(stmt: ir.Stmt) -> int:
    return isinstance(stmt, ir.For) + max(map(depth, ir.substatements(stmt)), default=0)


@pytest.mark.parametrize("count", [2, 8, 9, 10, 24])
def test_values(count: int) -> None:
    program = transposed(count)
    flat = flatten_nests(program)
    assert (flat is program) == (count <= MAX_LOOPS)
    assert depth(flat.body) == min(count, MAX_LOOPS)
    for seed in range(3):
        draw = np.random.default_rng(seed)
        shape = np.ones(count, np.int64)
        shape[draw.permutation(count)[:5]] = draw.integers(0 if seed == 2 else 1, 4, min(count, 5))
        x = draw.standard_normal(shape.tolist()).astype(np.float32)
        np.testing.assert_array_equal(interp.run(flat, [x])[0], 2 * x.T)


def test_extents_that_read_the_merged_variables_stay() -> None:
    a, b = (ir.Buffer(name, (64,), dtype("float32")) for name in "ab")
    body: ir.Stmt = ir.Store(b, (arith.ZERO,), ir.load(a, (0,)))
    outer = arith.Var("outer")
    for _ in range(MAX_LOOPS):
        body = ir.For(arith.Var("i"), outer, body)
    program = ir.LoopProgram("triangle", (a,), (b,), ir.For(outer, arith.Const(3), body))
    assert depth(flatten_nests(program).body) == MAX_LOOPS + 1
