"""Loops whose last iteration is taken off: what they compute stays, and only code that runs often is written twice."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import arith
from inlaid.tensor import interp, ir
from inlaid.tensor.lower_blocks import guarded
from inlaid.tensor.peel import peel_loops
from inlaid.types import dtype

ROWS, COLUMNS, SIZE = 4, 3, 10


def program(often: bool) -> ir.LoopProgram:
    """Adds 1 to ten elements in rows of three; of what a row has beyond the end, each element is asked for, or the row is left."""
    source, target = (ir.Buffer(name, (SIZE,), dtype("int8")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    place = arith.simplify(y * COLUMNS + x)
    add = ir.Store(target, (place,), ir.load(source, (place,)) + 1)
    if often:
        row: ir.Stmt = ir.For(x, arith.wrap(COLUMNS), guarded(add, arith.compare("<", place, SIZE)))
        return ir.LoopProgram("add", (source,), (target,), ir.For(y, arith.wrap(ROWS), row))
    last = ir.Store(target, (arith.wrap(SIZE - 1),), ir.load(source, (arith.wrap(SIZE - 1),)) + 1)
    row = guarded(ir.For(x, arith.wrap(COLUMNS), add), arith.compare("<", y, ROWS - 1))
    return ir.LoopProgram("add", (source,), (target,), ir.Seq((ir.For(y, arith.wrap(ROWS), row), last)))


@pytest.mark.parametrize(("often", "loops"), [(True, 3), (False, 2)])
def test_code_is_written_twice_where_it_asks_often(often: bool, loops: int) -> None:
    peeled = peel_loops(program(often))
    assert sum(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(peeled.body)) == loops
    data = np.arange(SIZE, dtype=np.int8)
    (found,) = interp.run(peeled, [data])
    np.testing.assert_array_equal(found, data + 1)
