"""Loops whose last iteration is taken off: what they compute stays, and only code that runs often is written twice."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import interp, ir
from inlaid.tensor.transform.lower_blocks import guarded, simplify_program
from inlaid.tensor.transform.peel import REMAINDERS, peel_loops
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

ROWS, COLUMNS, SIZE = 4, 3, 10


def program(often: bool) -> ir.LoopProgram:
    """Adds 1 to ten elements in rows of three; of what a row has beyond the end, each element is asked for, or the row is left."""
    source, target = (ir.Buffer(name, (SIZE,), dtype("int8")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    index = arith.simplify(y * COLUMNS + x)
    add = ir.Store(target, (index,), ir.load(source, (index,)) + 1)
    if often:
        row: ir.Stmt = ir.For(x, arith.wrap(COLUMNS), guarded(add, arith.compare("<", index, SIZE)))
        return ir.LoopProgram("add", (source,), (target,), ir.For(y, arith.wrap(ROWS), row))
    last = ir.Store(target, (arith.wrap(SIZE - 1),), ir.load(source, (arith.wrap(SIZE - 1),)) + 1)
    row = guarded(ir.For(x, arith.wrap(COLUMNS), add), arith.compare("<", y, ROWS - 1))
    return ir.LoopProgram("add", (source,), (target,), ir.Seq((ir.For(y, arith.wrap(ROWS), row), last)))


@pytest.mark.parametrize(("often", "loops"), [(True, 3), (False, 2)])
def test_code_is_written_twice_where_it_asks_often(often: bool, loops: int) -> None:
    peeled = peel_loops(program(often))
    assert sum(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(peeled.body)) == loops
    data = np.arange(SIZE, dtype=np.int8)
    (actual,) = interp.run(peeled, [data])
    np.testing.assert_array_equal(actual, data + 1)


def symbolic(pieces: arith.Dim, kind: ir.ForKind, *annotations: tuple[str, int]) -> ir.LoopProgram:
    """Adds 1 to n elements in pieces of four."""
    n = arith.SizeVar("n")
    source, target = (ir.Buffer(name, (n,), dtype("int8")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    index = y * 4 + x
    add = guarded(ir.Store(target, (index,), ir.load(source, (index,)) + 1), arith.compare("<", index, n))
    body = ir.For(y, arith.wrap(pieces), ir.For(x, arith.wrap(4), add, kind), annotations=annotations)
    return ir.LoopProgram("add", (source,), (target,), body)


N = arith.SizeVar("n")


@pytest.mark.parametrize(
    ("pieces", "kind", "annotations", "loops", "conditions"),
    [
        # A loop inside ends where there is nothing left: its body is there once and asks nothing.
        (arith.ceildiv(N, 4), ir.ForKind.SERIAL, (), 2, 0),
        # So does one of constant extent.
        (5, ir.ForKind.SERIAL, (), 2, 0),
        # Unrolled rows of the last piece ask one by one, or once for all of them; a single row is no loop.
        (arith.ceildiv(N, 4), ir.ForKind.UNROLLED, (), 3, 2),
        (arith.ceildiv(N, 4), ir.ForKind.UNROLLED, ((REMAINDERS.name, 1),), 4, 4),
        (5, ir.ForKind.UNROLLED, ((REMAINDERS.name, 1),), 4, 4),
    ],
)
def test_loops_of_unknown_length(
    pieces: arith.Dim, kind: ir.ForKind, annotations: tuple[tuple[str, int], ...], loops: int, conditions: int
) -> None:
    peeled = simplify_program(peel_loops(symbolic(pieces, kind, *annotations)))
    statements = list(ir.walk_stmts(peeled.body))
    assert sum(isinstance(stmt, ir.For) for stmt in statements) == loops
    # Those of rows aside, which are decided when rows are written out.
    assert sum(isinstance(stmt, ir.If) and not isinstance(stmt.then, ir.Store) for stmt in statements) <= conditions
    unrolled_kernel = simplify_program(unroll_loops(peeled))
    for size in (0, 1, 3, 4, 5, 11, 16, 20):
        data = np.arange(size, dtype=np.int8)
        (actual,) = interp.run(unrolled_kernel, [data], {N: size})
        np.testing.assert_array_equal(actual, data + 1)


def test_vectors_that_may_be_left_have_code_of_their_own() -> None:
    """Of a last piece of up to three vectors of two only the last vector asks for its lanes, and no vector is asked for."""
    source, target = (ir.Buffer(name, (N,), dtype("int8")) for name in ("source", "target"))
    y, x, lane = arith.Var("y"), arith.Var("x"), arith.Var("lane")
    index = y * 6 + x * 2 + lane
    add = guarded(ir.Store(target, (index,), ir.load(source, (index,)) + 1), arith.compare("<", index, N))
    vector = guarded(ir.For(lane, arith.wrap(2), add, ir.ForKind.VECTORIZED), arith.compare("<", y * 6 + x * 2, N))
    row = ir.For(x, arith.wrap(3), vector, ir.ForKind.UNROLLED)
    body = ir.For(y, arith.ceildiv(N, 6), row, annotations=((REMAINDERS.name, 2),))
    unrolled_kernel = simplify_program(unroll_loops(peel_loops(ir.LoopProgram("add", (source,), (target,), body))))
    vectors = [
        stmt for stmt in ir.walk_stmts(unrolled_kernel.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED
    ]
    assert len(vectors) == 3 + (1 + 2 + 3)
    assert sum(isinstance(vector.body, ir.If) for vector in vectors) == 3
    for size in range(14):
        data = np.arange(size, dtype=np.int8)
        (actual,) = interp.run(unrolled_kernel, [data], {N: size})
        np.testing.assert_array_equal(actual, data + 1)


def test_long_tiles_leave_strips() -> None:
    """Of a tile of 12 rows each number that may be left has code of its own up to 7 rows; more of them are strips of four first."""
    source, target = (ir.Buffer(name, (N,), dtype("int8")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    index = y * 12 + x
    add = guarded(ir.Store(target, (index,), ir.load(source, (index,)) + 1), arith.compare("<", index, N))
    row = ir.For(x, arith.wrap(12), add, ir.ForKind.UNROLLED)
    body = ir.For(y, arith.ceildiv(N, 12), row, annotations=((REMAINDERS.name, 1),))
    unrolled_kernel = simplify_program(unroll_loops(peel_loops(ir.LoopProgram("add", (source,), (target,), body))))
    statements = list(ir.walk_stmts(unrolled_kernel.body))
    assert sum(isinstance(stmt, ir.Store) for stmt in statements) == 12 + sum(range(1, 8))
    assert not any(isinstance(stmt, ir.If) and isinstance(stmt.then, ir.Store) and stmt.otherwise is None for stmt in statements)
    for size in range(38):
        data = np.arange(size, dtype=np.int8)
        (actual,) = interp.run(unrolled_kernel, [data], {N: size})
        np.testing.assert_array_equal(actual, data + 1)


def test_first_elements_and_whole_pieces_end_apart() -> None:
    """A condition on the first element of a piece holds for one more piece than the condition on all of it."""
    source, target, firsts = (ir.Buffer(name, (extent,), dtype("int8")) for name, extent in zip("stf", (N, N, N), strict=True))
    y, x = arith.Var("y"), arith.Var("x")
    first = guarded(ir.Store(firsts, (y * 4,), ir.load(source, (y * 4,))), arith.compare("<", y * 4, N))
    index = y * 4 + x
    add = guarded(ir.Store(target, (index,), ir.load(source, (index,)) + 1), arith.compare("<", index, N))
    inner = ir.For(x, arith.wrap(4), add, ir.ForKind.VECTORIZED)
    fill = ir.For(z := arith.Var("z"), arith.wrap(N), ir.Store(firsts, (z,), ir.const(0, "int8")))
    for stmts in ((first, inner), (inner, first)):
        loop = ir.For(y, arith.ceildiv(N, 4), ir.Seq(stmts))
        program = ir.LoopProgram("both", (source,), (target, firsts), ir.Seq((fill, loop)))
        for size in (1, 3, 4, 6, 8):
            data = np.arange(1, size + 1, dtype=np.int8)
            for expected, actual in zip(interp.run(program, [data]), interp.run(peel_loops(program), [data]), strict=True):
                np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize(("rows", "apart"), [(4, 1), (200, 2)])
def test_few_parallel_iterations_stay_together(rows: int, apart: int) -> None:
    """The last iteration of a loop over the shares of threads is one thread's work: it stays in the loop, as a branch."""
    size = rows * COLUMNS - 2
    source, target = (ir.Buffer(name, (size,), dtype("int32")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    index = arith.simplify(y * COLUMNS + x)
    add = ir.Store(target, (index,), ir.load(source, (index,)) + 1)
    row = ir.For(x, arith.wrap(COLUMNS), guarded(add, arith.compare("<", index, size)))
    share = ir.For(y, arith.wrap(rows), row, ir.ForKind.PARALLEL)
    peeled = peel_loops(ir.LoopProgram("add", (source,), (target,), share))
    tops = peeled.body.stmts if isinstance(peeled.body, ir.Seq) else (peeled.body,)
    assert len(tops) == apart and isinstance(tops[0], ir.For) and tops[0].kind is ir.ForKind.PARALLEL
    assert isinstance(tops[0].body, ir.If) is (apart == 1)
    data = np.arange(size, dtype=np.int32)
    np.testing.assert_array_equal(interp.run(peeled, [data])[0], data + 1)
