"""Loop programs over buffers of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inlay import arith
from inlay.tensor import ir
from inlay.tensor.footprint import reads, writes
from inlay.tensor.rewrite import Rewriter
from inlay.types import ROW_MAJOR, DType, Layout


def with_layouts(program: ir.LoopProgram, layouts: Mapping[ir.Buffer, Layout]) -> ir.LoopProgram:
    """The program with buffers, parameters or allocated ones, laid out as given: every access goes to where the element lies."""
    chosen = {buffer: layout for buffer, layout in layouts.items() if layout != ROW_MAJOR}
    if not chosen:
        return program
    physical = {b: ir.Buffer(b.name, layout.shape(b.shape), b.dtype, b.scope) for b, layout in chosen.items()}

    def load(node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Load) and node.buffer in physical:
            return ir.load(physical[node.buffer], chosen[node.buffer].indices(node.indices))
        return None

    def access(stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.Store(buffer=buffer, indices=indices, value=value) if buffer in physical:
                return ir.Store(physical[buffer], chosen[buffer].indices(indices), value)
            case ir.Alloc(buffer=buffer, body=body) if buffer in physical:
                return ir.Alloc(physical[buffer], body)
            case ir.Block(body=body):
                # What a block reads and writes is told again: its own regions are of the logical buffers.
                return replace(stmt, reads=reads(body), writes=writes(body))
        return None

    def params(buffers: tuple[ir.Buffer, ...]) -> tuple[ir.Buffer, ...]:
        return tuple(physical.get(buffer, buffer) for buffer in buffers)

    body = Rewriter(expr=load, stmt=access).stmt(program.body)
    return replace(program, inputs=params(program.inputs), outputs=params(program.outputs), body=body)


def relayout(shape: tuple[arith.Dim, ...], dtype: DType, source: Layout, target: Layout) -> ir.LoopProgram:
    """A kernel that copies a tensor from one layout to another, walking along the target."""
    a, b = ir.Buffer("source", source.shape(shape), dtype), ir.Buffer("target", target.shape(shape), dtype)
    variables = tuple(arith.Var(f"i{axis}") for axis in range(len(b.shape)))
    logical: list[arith.Expr] = list(variables[: len(shape)])
    inner: list[arith.Expr] = list(variables[len(shape) :])
    for (axis, factor), lane in zip(reversed(target.blocks), reversed(inner), strict=True):
        logical[axis] = logical[axis] * factor + lane
    value: ir.Expr = ir.load(a, source.indices(tuple(logical)))
    if target.pads(shape):
        inside: arith.Expr = arith.ONE
        for axis, _ in target.blocks:
            inside = arith.logical_and(inside, arith.compare("<", logical[axis], shape[axis]))
        value = ir.select(inside, value, ir.const(0, dtype))
    body: ir.Stmt = ir.Store(b, variables, value)
    for variable, extent in zip(reversed(variables), reversed(b.shape), strict=True):
        body = ir.For(variable, arith.wrap(extent), body)
    return ir.LoopProgram("relayout", (a,), (b,), body)
