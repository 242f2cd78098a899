"""Dissolving blocks, unrolling and simplification keep the interpreter's answer and leave what code generators expect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import check_registers, flatten_blocks, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype


def unrolled(program: ir.LoopProgram, name: str) -> ir.LoopProgram:
    def mark(stmt: ir.Stmt) -> ir.Stmt | None:
        return replace(stmt, kind=ir.ForKind.UNROLLED) if isinstance(stmt, ir.For) and stmt.var.name == name else None

    return Rewriter(stmt=mark).program(program)


def statements(program: ir.LoopProgram, kind: type[ir.Stmt]) -> list[ir.Stmt]:
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, kind)]


def test_each_step_keeps_the_answer(
    conv_program: ir.LoopProgram, check_equal: Callable[[ir.LoopProgram, ir.LoopProgram], None]
) -> None:
    program = unrolled(conv_program, "r")
    for step in (flatten_blocks, unroll_loops, simplify_program):
        stepped = step(program)
        check_equal(program, stepped)
        program = stepped
    assert not statements(program, ir.Block)
    assert not statements(program, ir.If)  # the init stands in front of the reduction loops
    assert not [loop for loop in statements(program, ir.For) if loop.extent == arith.ONE]
    assert not [loop for loop in statements(program, ir.For) if loop.kind is ir.ForKind.UNROLLED]


def test_nothing_changes_twice(conv_program: ir.LoopProgram) -> None:
    program = simplify_program(flatten_blocks(conv_program))
    assert flatten_blocks(program) is program
    assert unroll_loops(program) is program


def test_decided_branches_and_known_conditions_go() -> None:
    out = ir.Buffer("out", (8,), dtype("int32"))
    i = arith.Var("i")
    store = ir.Store(out, (i,), ir.const(1, "int32"))
    inner = ir.If(ir.Index(dtype("bool"), arith.compare("<", i, 5)), store)
    decided = ir.If(ir.Index(dtype("bool"), arith.compare("<", i * 4, 29)), inner)
    twice = ir.If(ir.Index(dtype("bool"), arith.compare("<", i, 5)), decided)
    program = ir.LoopProgram("p", (), (out,), ir.For(i, arith.Const(8), twice))
    simple = simplify_program(program)
    assert len(statements(simple, ir.If)) == 1


def test_register_indices_must_be_constant() -> None:
    register = ir.Buffer("acc", (4,), dtype("int32"), "register")
    i = arith.Var("i")
    loop = ir.For(i, arith.Const(4), ir.Store(register, (i,), ir.const(0, "int32")))
    program = ir.LoopProgram("p", (), (), ir.Alloc(register, loop))
    with pytest.raises(ScheduleError, match=r"acc.*loop i"):
        check_registers(program)
    marked = unrolled(program, "i")
    check_registers(unroll_loops(marked))
    check_registers(replace(program, body=ir.Alloc(register, replace(loop, kind=ir.ForKind.VECTORIZED))))


def test_unrolling_needs_a_constant_extent() -> None:
    out = ir.Buffer("out", (arith.SizeVar("n"),), dtype("int32"))
    i = arith.Var("i")
    loop = ir.For(i, arith.SizeVar("n"), ir.Store(out, (i,), ir.const(0, "int32")), ir.ForKind.UNROLLED)
    with pytest.raises(ScheduleError, match="loop i"):
        unroll_loops(ir.LoopProgram("p", (), (out,), loop))
