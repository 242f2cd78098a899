"""Guards hoisted and nested: what runs stays the same, and what is asked is asked once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.lowering.kernels.plain import without_prefetches
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import PREFETCH
from inlaid.tensor.transform.guards import RUN, free_registers, nest_guards
from inlaid.tensor.transform.lower_blocks import guarded, simplify_program
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var

N = SizeVar("n", 0)
ROWS, COLUMNS = 10, 6


def stored(row: int, guards: tuple[arith.Expr, ...], vector: int | None = None) -> ir.Stmt:
    """out[row, ...] += 1 + row, of one vector of columns or of all columns, cut off at n."""
    column = Var("c")
    column_index = column if vector is None else vector * 2 + column
    value = ir.binary("add", ir.load(OUT, (arith.Const(row), column_index)), ir.const(1 + row, "int32"))
    condition: arith.Expr = arith.ONE if vector is None else arith.compare("<", column_index, N)
    for guard in guards:
        condition = arith.logical_and(condition, guard)
    store = guarded(ir.Store(OUT, (arith.Const(row), column_index), value), condition)
    extent = COLUMNS if vector is None else 2
    return ir.For(column, arith.Const(extent), store, ir.ForKind.SERIAL if vector is None else ir.ForKind.VECTORIZED)


OUT = ir.Buffer("out", (ROWS, COLUMNS), ir.const(0, "int32").dtype)
IN = ir.Buffer("x", (N,), ir.const(0, "int32").dtype)


def program(*stmts: ir.Stmt) -> ir.LoopProgram:
    row, column = Var("r"), Var("c")
    zero = ir.Store(OUT, (row, column), ir.const(0, "int32"))
    clear = ir.For(row, arith.Const(ROWS), ir.For(column, arith.Const(COLUMNS), zero))
    return ir.LoopProgram("p", (IN,), (OUT,), ir.Seq((clear, *stmts)))


def run(kernel: ir.LoopProgram, n: int) -> np.ndarray:
    return interp.run(kernel, [np.zeros(n, np.int32)])[0]


def branches(stmt: ir.Stmt) -> int:
    return sum(isinstance(item, ir.If) for item in ir.walk_stmts(stmt))


def test_decided_guards_do_not_part_rows():
    """Of a tile of two vectors, the second of which is known not to be there, rows are nested as those of one vector."""
    one, none = arith.ONE, arith.ZERO
    rows = [
        (stored(row, (arith.compare("<", arith.Const(row), N), is_present))) for row in range(ROWS) for is_present in (one, none)
    ]
    after = simplify_program(nest_guards(program(ir.Seq(tuple(rows)))))
    (outer,) = [stmt for stmt in after.body.stmts if isinstance(stmt, ir.If)]
    assert branches(outer) == ROWS
    for n in range(ROWS + 2):
        assert np.array_equal(run(after, n), run(program(ir.Seq(tuple(rows))), n))


def test_rows_that_may_not_be_there_take_one_branch_an_iteration():
    k = Var("k")
    rows = ir.Seq(tuple(stored(row, (arith.compare("<", arith.Const(row), N),)) for row in range(ROWS)))
    before = program(ir.For(k, arith.Const(3), rows))
    after = simplify_program(nest_guards(before))
    loops = [stmt for stmt in ir.walk_stmts(after.body) if isinstance(stmt, ir.For) and stmt.var.name == "k"]
    assert branches(after.body) == ROWS
    assert branches(loops[0].body) == ROWS - 1, "what all rows ask is asked in front of the loop"
    for n in range(ROWS + 2):
        assert np.array_equal(run(after, n), run(before, n))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, ROWS), st.booleans())
def test_what_is_left_of_a_tile_has_loops_of_its_own(count, dependent):
    """`dependent`: all rows go to the same place, so that their order counts and the loop stays one."""
    tile = []
    for row in range(count):
        for vector in range(2):
            lane = Var("lane")
            indices = (arith.Const(0 if dependent else row), vector * 2 + lane)
            twice = ir.binary("mul", ir.load(OUT, indices), ir.const(2, "int32"))
            store = ir.Store(OUT, indices, ir.binary("add", twice, ir.const(1 + row, "int32")))
            tile.append(
                guarded(ir.For(lane, arith.Const(2), store, ir.ForKind.VECTORIZED), arith.compare("<", arith.Const(row), N))
            )
    before = program(ir.For(Var("k"), arith.Const(3), ir.Seq(tuple(tile))))
    after = simplify_program(nest_guards(before))
    loops = [stmt for stmt in ir.walk_stmts(after.body) if isinstance(stmt, ir.For) and stmt.var.name == "k"]
    assert all(branches(loop.body) == 0 for loop in loops) or (dependent and count > RUN)
    for n in range(ROWS + 2):
        assert np.array_equal(run(after, n), run(before, n))


def test_a_prefetch_counts_as_no_row():
    """RUN rows behind a prefetch run in one loop, not in one over all rows but the last, and another over that."""
    hint = ir.Intrinsic(PREFETCH, (ir.BufferRegion(IN, ((arith.ZERO, arith.ONE),)),), (ir.AccessMode.HINT,))
    tile: list[ir.Stmt] = [hint]
    for row in range(RUN):
        lane = Var("lane")
        indices = (arith.Const(row), lane)
        store = ir.Store(OUT, indices, ir.binary("add", ir.load(OUT, indices), ir.const(1 + row, "int32")))
        vector = ir.For(lane, arith.Const(COLUMNS), store, ir.ForKind.VECTORIZED)
        tile.append(guarded(vector, arith.compare("<", arith.Const(row), N)))
    before = program(ir.For(Var("k"), arith.Const(3), ir.Seq(tuple(tile))))
    after = simplify_program(nest_guards(before))
    loops = [stmt for stmt in ir.walk_stmts(after.body) if isinstance(stmt, ir.For) and stmt.var.name == "k"]
    rows = [sum(isinstance(stmt, ir.Store) for stmt in ir.walk_stmts(loop.body)) for loop in loops]
    assert sorted(rows) == list(range(RUN + 1))
    for n in range(ROWS + 2):
        assert np.array_equal(run(without_prefetches(after), n), run(without_prefetches(before), n))


def test_vectors_behind_the_end_are_skipped():
    before = program(*(stored(0, (), vector) for vector in range(3)))
    after = simplify_program(nest_guards(before))
    firsts = [stmt for stmt in ir.walk_stmts(after.body) if isinstance(stmt, ir.If) and isinstance(stmt.then, (ir.Seq, ir.For))]
    assert len(firsts) == 3
    for n in range(COLUMNS + 1):
        assert np.array_equal(run(after, n), run(before, n))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, ROWS - 1), st.lists(st.integers(0, 5), max_size=2), st.none() | st.integers(0, 2)), max_size=6
    )
)
def test_nested_guards_change_nothing(items):
    stmts = [stored(row, tuple(arith.compare("<", arith.Const(low), N) for low in lows), vector) for row, lows, vector in items]
    k = Var("k")
    before = program(*stmts, ir.For(k, arith.Const(2), ir.Seq(tuple(stmts))))
    after = simplify_program(nest_guards(before))
    for n in range(7):
        assert np.array_equal(run(after, n), run(before, n))


def in_registers(scope: str, extent: int, stores: int) -> ir.LoopProgram:
    """Doubles the first n of four elements by way of registers, of which two hold what is loaded and what is stored."""
    data, result = (ir.Buffer(name, (4,), ir.const(0.0, "float32").dtype) for name in ("data", "result"))
    loaded, doubled = ir.Buffer("loaded", (4,), data.dtype, scope), ir.Buffer("doubled", (extent,), data.dtype, "register")
    row = Var("r")
    is_row = arith.compare("<", row, N)
    double = ir.binary("add", ir.load(loaded, (row,)), ir.load(loaded, (row,)))

    def rows(stmt: ir.Stmt) -> ir.Stmt:
        return ir.For(row, arith.Const(4), stmt, ir.ForKind.UNROLLED)

    body = ir.Seq(
        (
            rows(ir.Store(loaded, (row,), ir.load(data, (row,)))),
            *(rows(guarded(ir.Store(doubled, (row,), double), is_row)) for _ in range(stores)),
            rows(guarded(ir.Store(result, (row,), ir.load(doubled, (row,))), is_row)),
        )
    )
    return ir.LoopProgram("double", (data, IN), (result,), ir.Alloc(loaded, ir.Alloc(doubled, body)))


@pytest.mark.parametrize(
    ("scope", "extent", "stores", "branch_count"),
    [
        ("register", 4, 1, 1),
        # What lies in memory is not read for nothing.
        ("", 4, 1, 2),
        # The guard keeps the index inside.
        ("register", 3, 1, 2),
        # The second store must leave what the first one stored.
        ("register", 4, 2, 3),
    ],
)
def test_registers_are_computed_unasked(scope: str, extent: int, stores: int, branch_count: int):
    freed = free_registers(in_registers(scope, extent, stores))
    assert branches(freed.body) == branch_count
    data = np.arange(4, dtype=np.float32)
    for n in range(extent + 1):
        actual = interp.run(freed, [data, np.zeros(n, np.int32)])[0]
        np.testing.assert_array_equal(actual[:n], 2 * data[:n])
