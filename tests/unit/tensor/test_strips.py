"""What is left of a tile of many rows is a loop over strips, where rows do not depend on one another."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import interp, ir
from inlaid.tensor.transform.lower_blocks import check_registers, guarded, joined, simplify_program
from inlaid.tensor.transform.peel import REMAINDERS, peel_loops
from inlaid.tensor.transform.strips import STRIP
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

N, DEPTH = arith.SizeVar("n"), 3
INT = dtype("int32")


def sums(size: int, dependent: bool = False, overhang: bool = False, bound: bool = False) -> ir.LoopProgram:
    """Sums of rows in tiles of a size, kept in registers. `dependent`: all rows of a tile add to one sum. `overhang`: strips may
    compute rows that do not exist. `bound`: the place of a row is a variable."""
    source, target = ir.Buffer("source", (N, DEPTH), INT), ir.Buffer("target", (N,), INT)
    total = ir.Buffer("total", (size,), INT, "register")
    tile, k, row_var, *rows = (arith.Var(name) for name in "tknabc")

    def each(row: arith.Var, value: ir.Expr | None) -> ir.Stmt:
        index = arith.Const(0) if dependent else row
        row_index = tile * size + row
        if value is None:
            store = ir.Store(target, (row_index,), ir.load(total, (index,)))
        else:
            store = ir.Store(total, (index,), value)
        body = guarded(store, arith.compare("<", row_index, N))
        if bound:
            body = ir.Let(row_var, ir.Index(dtype("int64"), row_index), body)
        return ir.For(row, arith.Const(size), body, ir.ForKind.UNROLLED)

    a, b, c = rows
    added = ir.load(total, (arith.Const(0) if dependent else b,)) + ir.load(source, (row_var if bound else tile * size + b, k))
    body = joined(each(a, ir.const(0, "int32")), ir.For(k, arith.Const(DEPTH), each(b, added)), each(c, None))
    annotations = ((REMAINDERS.name, 0),) if overhang else ()
    loop = ir.For(tile, arith.ceildiv(N, size), ir.Alloc(total, body), annotations=annotations)
    return ir.LoopProgram("sums", (source,), (target,), loop)


@pytest.mark.parametrize(("dependent", "overhang"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", [STRIP, STRIP + 1, 2 * STRIP, 3 * STRIP + 2])
def test_strips_compute_what_tiles_do(size: int, dependent: bool, overhang: bool) -> None:
    program = sums(size, dependent, overhang)
    peeled = simplify_program(unroll_loops(peel_loops(program)))
    check_registers(peeled)
    shapes = [stmt.buffer.shape for stmt in ir.walk_stmts(peeled.body) if isinstance(stmt, ir.Alloc)]
    assert shapes == [(size,), (STRIP if size > STRIP and not dependent else size,)]
    for n in (0, 1, STRIP - 1, STRIP, STRIP + 1, size - 1, size, size + 1, 3 * size - 1):
        data = np.arange(n * DEPTH, dtype=np.int32).reshape(n, DEPTH)
        (actual,), (expected,) = interp.run(peeled, [data]), interp.run(program, [data])
        np.testing.assert_array_equal(actual, expected)
        if not dependent:
            np.testing.assert_array_equal(actual, data.sum(axis=1))


def test_whole_strips_read_no_rows_that_do_not_exist() -> None:
    """Also if the place of a row is bound to a variable outside of the guard."""
    program = sums(3 * STRIP, overhang=True, bound=True)
    peeled = simplify_program(unroll_loops(peel_loops(program)))
    for n in (1, STRIP - 1, STRIP + 1, 3 * STRIP - 1):
        data = np.arange(n * DEPTH, dtype=np.int32).reshape(n, DEPTH)
        np.testing.assert_array_equal(interp.run(peeled, [data])[0], data.sum(axis=1))


def test_whole_strips_guard_only_results() -> None:
    """A strip that may compute rows that do not exist has guards only where it stores to a parameter."""
    peeled = simplify_program(unroll_loops(peel_loops(sums(3 * STRIP, overhang=True))))
    (strip,) = (stmt for stmt in ir.walk_stmts(peeled.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.shape == (STRIP,))
    guards = [stmt for stmt in ir.walk_stmts(strip) if isinstance(stmt, ir.If)]
    assert len(guards) == STRIP - 1
    assert all(isinstance(guard.then, ir.Store) and guard.then.buffer.name == "target" for guard in guards)
