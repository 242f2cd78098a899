"""From a scheduled kernel to what code generators print: plain loops, no blocks, large scratch buffers given by the caller."""

from __future__ import annotations

from dataclasses import replace

from inlay import arith
from inlay.tensor import ir
from inlay.tensor.align import align_buffers
from inlay.tensor.compact import compact_buffers
from inlay.tensor.lower_blocks import check_registers, flatten_blocks, simplify_program, unroll_loops
from inlay.tensor.peel import peel_loops
from inlay.tensor.vthread import lower_vthreads

STACK_BYTES = 4096
"""Buffers larger than this are not left to a kernel's stack."""


def finish(program: ir.LoopProgram) -> ir.LoopProgram:
    """The kernel as plain loops with simplified indices. Raises `ScheduleError` for a register buffer with a varying index."""
    program = align_buffers(compact_buffers(simplify_program(flatten_blocks(program))))
    program = simplify_program(unroll_loops(peel_loops(lower_vthreads(program))))
    check_registers(program)
    return hoist_scratch(program)


def hoist_scratch(program: ir.LoopProgram) -> ir.LoopProgram:
    """Make allocations outside parallel loops into outputs, which the caller gives: all but registers and small buffers. Their
    contents are scratch. Output buffers for defined sizes stay last."""
    scratch: list[ir.Buffer] = []
    body = _hoist(program.body, scratch)
    if not scratch:
        return program
    results = len(program.outputs) - len(program.defines)
    outputs = (*program.outputs[:results], *scratch, *program.outputs[results:])
    return replace(program, outputs=outputs, body=body)


def _hoist(stmt: ir.Stmt, scratch: list[ir.Buffer]) -> ir.Stmt:
    match stmt:
        case ir.Alloc(buffer=buffer, body=body):
            inner = _hoist(body, scratch)
            if _stays(buffer):
                return stmt if inner is body else ir.Alloc(buffer, inner)
            scratch.append(buffer)
            return inner
        case ir.Seq(stmts=stmts):
            new = tuple(_hoist(item, scratch) for item in stmts)
            return stmt if all(a is b for a, b in zip(new, stmts, strict=True)) else ir.Seq(new)
        case ir.For(body=body, kind=kind) if kind is not ir.ForKind.PARALLEL:
            inner = _hoist(body, scratch)
            return stmt if inner is body else replace(stmt, body=inner)
        case ir.If() | ir.Let() | ir.While():
            return _hoist_within(stmt, scratch)
    return stmt


def _hoist_within(stmt: ir.If | ir.Let | ir.While, scratch: list[ir.Buffer]) -> ir.Stmt:
    match stmt:
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            return ir.If(condition, _hoist(then, scratch), None if otherwise is None else _hoist(otherwise, scratch))
        case ir.Let(body=body) | ir.While(body=body):
            inner = _hoist(body, scratch)
            return stmt if inner is body else replace(stmt, body=inner)


def _stays(buffer: ir.Buffer) -> bool:
    size = arith.product(buffer.shape)
    return buffer.scope != "" or (isinstance(size, int) and size * buffer.dtype.bytes <= STACK_BYTES)
