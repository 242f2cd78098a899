"""Long float32 sums in blocks: the values of integers stay exact, and errors do not grow with the number of additions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.transform import block_sums as module
from inlaid.tensor.transform.block_sums import BLOCK, block_sums
from inlaid.tensor.transform.lower_blocks import flatten_blocks, guarded, simplify_program
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar, Var
from inlaid_runtime.types import dtype

FLOAT32, FLOAT64 = dtype("float32"), dtype("float64")


def row_sums(rows: Dim, *extents: Dim) -> ir.LoopProgram:
    """Sums over all axes but the first."""
    x = te.placeholder((rows, *extents), "float32", "x")
    axes = [te.reduce_axis(extent, f"k{axis}") for axis, extent in enumerate(extents)]
    sums = te.compute((rows,), lambda i: te.sum_(x[(i, *axes)], axes), "sums")
    return simplify_program(flatten_blocks(lower([sums], [x], "row_sums")))


def loops(program: ir.LoopProgram) -> int:
    return sum(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(program.body))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("extents", [(3 * BLOCK,), (3, BLOCK), (5000, 3), (3, 5000), (2, 70, 70)])
def test_the_error_does_not_grow(extents: tuple[int, ...], symbolic: bool) -> None:
    sizes = tuple(SizeVar(f"n{axis}", 0) for axis in range(len(extents))) if symbolic else extents
    program = row_sums(2, *sizes)
    blocked = block_sums(program, FLOAT64)
    x = np.full((2, *extents), 0.1, np.float32)
    exact = np.float64(np.float32(0.1)) * np.prod(extents)
    (plain,), (sums,) = interp.run(program, [x]), interp.run(blocked, [x])
    assert np.abs(sums - exact).max() < np.abs(plain - exact).min() / 2


@pytest.mark.parametrize("extents", [(BLOCK,), (64, 64), (SizeVar("n", 0, BLOCK),), (SizeVar("n", 0, 64), SizeVar("m", 0, 64))])
def test_short_sums_stay(extents: tuple[Dim, ...]) -> None:
    program = row_sums(2, *extents)
    assert block_sums(program, FLOAT64) is program


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sums_of_integers_are_exact(data: st.DataObject, monkeypatch_block: None) -> None:
    """Random nests: symbolic and static extents, guards, several loops, tiles of elements, and more than one sum."""
    count = data.draw(st.integers(1, 3), "reductions")
    extents = [data.draw(st.integers(0 if axis else 1, 9), f"extent {axis}") for axis in range(count)]
    dims: list[Dim] = [
        SizeVar(f"n{axis}", 0) if data.draw(st.booleans(), "symbolic") else size for axis, size in enumerate(extents)
    ]
    rows = data.draw(st.integers(1, 3), "rows")
    x, y = (ir.Buffer(name, (*dims, rows), FLOAT32) for name in "xy")
    sums = [ir.Buffer(name, (rows,), FLOAT32) for name in ("first", "second")]
    row, variables = Var("row"), [Var(f"k{axis}") for axis in range(count)]
    axis = (*variables, row)
    stmts: list[ir.Stmt] = []
    for total, source in zip(sums, (x, y), strict=True):
        value = ir.load(source, axis)
        update: ir.Stmt = ir.Store(total, (row,), ir.load(total, (row,)) + value)
        if data.draw(st.booleans(), "guard"):
            update = guarded(update, arith.compare("<", variables[0] + data.draw(st.integers(0, 2), "ahead"), dims[0]))
        stmts.append(update)
    body: ir.Stmt = ir.Seq(tuple(stmts))
    outermost = data.draw(st.integers(0, count), "place of the loop over rows")
    nest = [(var, dim) for var, dim in zip(variables, dims, strict=True)]
    nest.insert(outermost, (row, rows))
    for var, dim in reversed(nest):
        body = ir.For(var, arith.wrap(dim), body)
    start = [ir.For(row, arith.wrap(rows), ir.Store(total, (row,), ir.const(1, FLOAT32))) for total in sums]
    program = simplify_program(ir.LoopProgram("sums", (x, y), tuple(sums), ir.Seq((*start, body))))
    arrays = [np.arange(np.prod(extents) * rows, dtype=np.float32).reshape(*extents, rows) + shift for shift in (0, 5)]
    total_type = data.draw(st.sampled_from([FLOAT32, FLOAT64]), "type of totals")
    blocked = block_sums(program, total_type)
    for expected, result in zip(interp.run(program, arrays), interp.run(blocked, arrays), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.fixture(scope="module")
def monkeypatch_block() -> object:
    """Blocks of 5 numbers."""
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "BLOCK", 5)
    yield
    patch.undo()


def test_a_sum_that_is_read_inside_stays() -> None:
    """A running sum, whose steps are stored."""
    x, steps, total = (ir.Buffer(name, shape, FLOAT32) for name, shape in (("x", (5000,)), ("steps", (5000,)), ("total", (1,))))
    k = Var("k")
    update = ir.Store(total, (arith.ZERO,), ir.load(total, (arith.ZERO,)) + ir.load(x, (k,)))
    body = ir.For(k, arith.wrap(5000), ir.Seq((update, ir.Store(steps, (k,), ir.load(total, (arith.ZERO,))))))
    start = ir.Store(total, (arith.ZERO,), ir.const(0, FLOAT32))
    program = ir.LoopProgram("running", (x,), (steps, total), ir.Seq((start, body)))
    assert block_sums(program, FLOAT64) is program


def test_elements_that_data_chooses_stay() -> None:
    """The index of the element is read from a buffer that the loop changes."""
    x, chosen, sums = (
        ir.Buffer("x", (5000,), FLOAT32),
        ir.Buffer("chosen", (5000,), dtype("int64")),
        ir.Buffer("sums", (4,), FLOAT32),
    )
    cell, k, row = ir.Buffer("cell", (1,), dtype("int64")), Var("k"), Var("row")
    indices = (ir.checked(ir.load(cell, (arith.ZERO,)), 0, 3),)
    update = ir.Store(sums, indices, ir.load(sums, indices) + ir.load(x, (k,)))
    body = ir.For(k, arith.wrap(5000), ir.Seq((ir.Store(cell, (arith.ZERO,), ir.load(chosen, (k,))), update)))
    start = ir.For(row, arith.wrap(4), ir.Store(sums, (row,), ir.const(0, FLOAT32)))
    program = ir.LoopProgram("groups", (x, chosen), (sums,), ir.Seq((start, ir.Alloc(cell, body))))
    assert block_sums(program, FLOAT64) is program


def test_totals_are_as_large_as_a_tile() -> None:
    """A product of 64 x 64 whose tile of 4 rows is accumulated at a time."""
    x, out = ir.Buffer("x", (64, 5000), FLOAT32), ir.Buffer("out", (64,), FLOAT32)
    tile, k, row = Var("tile"), Var("k"), Var("row")
    index = tile * 4 + row
    update = ir.Store(out, (index,), ir.load(out, (index,)) + ir.load(x, (index, k)))
    start = ir.For(row, arith.wrap(4), ir.Store(out, (index,), ir.const(0, FLOAT32)), ir.ForKind.UNROLLED)
    sums = ir.For(k, arith.wrap(5000), ir.For(row, arith.wrap(4), update, ir.ForKind.UNROLLED))
    program = ir.LoopProgram("tiles", (x,), (out,), ir.For(tile, arith.wrap(16), ir.Seq((start, sums))))
    blocked = block_sums(program, FLOAT64)
    (total,) = (stmt.buffer for stmt in ir.walk_stmts(blocked.body) if isinstance(stmt, ir.Alloc))
    assert total.shape == (4,) and total.dtype == FLOAT64
    value = np.random.default_rng(0).random((64, 5000), np.float32)
    np.testing.assert_allclose(interp.run(blocked, [value])[0], value.astype(np.float64).sum(1), rtol=2e-6)
