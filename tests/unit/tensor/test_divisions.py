"""Divisions by symbolic numbers: shared and hoisted, with the same values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid.tensor import interp, ir
from inlaid.tensor.transform.divisions import hoist_divisions
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var

HEIGHT, WIDTH = SizeVar("h", 1), SizeVar("w", 3)


def unrolled(pixels):
    """out[y, x] of pixels that are numbered in runs of so many, each in a loop that divides for nothing."""
    source = ir.Buffer("x", (HEIGHT, WIDTH), ir.const(0, "int32").dtype)
    out = ir.Buffer("out", (HEIGHT, WIDTH), source.dtype)
    tile, again = Var("t"), Var("r")
    stores = []
    for pixel in range(pixels):
        position = tile * pixels + pixel
        indices = (position // WIDTH, position % WIDTH)
        inside = arith.compare("<", indices[0], HEIGHT)
        value = ir.binary("add", ir.load(source, indices), ir.const(1, "int32"))
        stores.append(ir.If(ir.Index(ir.const(True, "bool").dtype, inside), ir.Store(out, indices, value)))
    body = ir.For(again, arith.Const(2), ir.Seq(tuple(stores)))
    return ir.LoopProgram("p", (source,), (out,), ir.For(tile, arith.ceildiv(HEIGHT * WIDTH, pixels), body))


def divisions(stmt):
    """The divisions in a statement, those that are bound to variables left out."""
    parts = set()
    for node in ir.walk_stmts(stmt):
        if not isinstance(node, ir.Let):
            values, indices = ir.statement_operands(node)
            indices = [*indices, *(item.index for value in ir.walk_exprs(*values) if isinstance(item := value, ir.Index))]
            indices += [index for value in ir.walk_exprs(*values) if isinstance(value, ir.Load) for index in value.indices]
            parts |= {part for index in indices for part in arith.walk(index) if isinstance(part, (arith.FloorDiv, arith.FloorMod))}
    return parts


@pytest.mark.parametrize("pixels", [4, 7])
@pytest.mark.parametrize(("height", "width"), [(1, 3), (2, 4), (5, 3), (4, 9)])
def test_neighbors_divide_once(height, width, pixels):
    """A width of 3 is passed once by four pixels, twice by seven."""
    program = unrolled(pixels)
    changed = hoist_divisions(program)
    assert len([stmt for stmt in ir.walk_stmts(changed.body) if isinstance(stmt, ir.Let)]) == 2
    assert isinstance(changed.body, ir.For)
    assert not divisions(changed.body.body)
    x = np.arange(height * width, dtype=np.int32).reshape(height, width)
    assert np.array_equal(interp.run(changed, [x])[0], interp.run(program, [x])[0])


def test_runs_that_may_pass_several_lines_divide_for_each():
    """Twice a width of 3 is less than what is added to the first pixel of eight."""
    changed = hoist_divisions(unrolled(8))
    assert len([stmt for stmt in ir.walk_stmts(changed.body) if isinstance(stmt, ir.Let)]) == 4
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    assert np.array_equal(interp.run(changed, [x])[0], x + 1)


def test_static_programs_stay_the_same():
    var = Var("t")
    buffer = ir.Buffer("x", (8,), ir.const(0, "int32").dtype)
    program = ir.LoopProgram("p", (), (buffer,), ir.For(var, arith.Const(8), ir.Store(buffer, (var,), ir.const(1, "int32"))))
    assert hoist_divisions(program) is program


def test_variables_that_are_bound_count_as_loops_do():
    """What a `let` says of a tile is divided where it is bound, outside of the loop that does not change it."""
    program = unrolled(4)
    tile, start = program.body.var, Var("start")
    body = Rewriter({tile: start}).stmt(program.body.body)
    bound = ir.Let(start, ir.Index(ir.const(0, "int64").dtype, tile), body)
    changed = hoist_divisions(replace(program, body=replace(program.body, body=bound)))
    (again,) = [stmt for stmt in ir.walk_stmts(changed.body) if isinstance(stmt, ir.For) and stmt.var is not tile]
    assert not divisions(again) and len([stmt for stmt in ir.walk_stmts(changed.body) if isinstance(stmt, ir.Let)]) == 3
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    assert np.array_equal(interp.run(changed, [x])[0], x + 1)
