"""Applies layouts to the buffers of loop programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.copies import copy_dimensions, copy_program, padded_program
from inlaid.tensor.transform.paths import remapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, DType, Layout


def with_layouts(program: ir.LoopProgram, layouts: Mapping[ir.Buffer, Layout]) -> ir.LoopProgram:
    """Apply layouts to buffers (parameters or allocated) and remap all accesses to them."""
    blocked_layouts = {buffer: layout for buffer, layout in layouts.items() if layout != ROW_MAJOR}
    if not blocked_layouts:
        return program
    return remapped(
        program,
        {
            buffer: (ir.Buffer(buffer.name, layout.shape(buffer.shape), buffer.dtype, buffer.scope), layout.indices)
            for buffer, layout in blocked_layouts.items()
        },
    )


def is_intrinsic_operand(program: ir.LoopProgram, number: int) -> bool:
    """Test whether an intrinsic accesses parameter number `number`."""
    buffer, stmts = program.params[number], ir.walk_stmts(program.body)
    return any(isinstance(stmt, ir.Intrinsic) and buffer in (item.buffer for item in stmt.regions) for stmt in stmts)


def as_slice(program: ir.LoopProgram, number: int, axis: int, first: arith.Dim, extent: arith.Dim) -> ir.LoopProgram:
    """Replace a parameter by a slice of a longer buffer. The slice starts at index `first` of dimension `axis`, whose extent
    becomes `extent`. The program must have no blocks, and no intrinsic may access the parameter.

        for n, c in 4: b[n, c] = ...    becomes    for n, c in 4: b[n, c + first] = ...
    """
    buffer = program.params[number]
    longer = ir.Buffer(buffer.name, (*buffer.shape[:axis], extent, *buffer.shape[axis + 1 :]), buffer.dtype, buffer.scope)

    def slice_indices(indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        return (*indices[:axis], indices[axis] + first, *indices[axis + 1 :])

    def load(node: ir.Expr) -> ir.Expr | None:
        return ir.load(longer, slice_indices(node.indices)) if isinstance(node, ir.Load) and node.buffer is buffer else None

    def store(stmt: ir.Stmt) -> ir.Stmt | None:
        return (
            ir.Store(longer, slice_indices(stmt.indices), stmt.value)
            if isinstance(stmt, ir.Store) and stmt.buffer is buffer
            else None
        )

    inputs, outputs = (tuple(longer if item is buffer else item for item in side) for side in (program.inputs, program.outputs))
    return replace(program, inputs=inputs, outputs=outputs, body=Rewriter(expr=load, stmt=store).stmt(program.body))


def relayout(shape: tuple[arith.Dim, ...], dtype: DType, source: Layout, target: Layout, threads: int = 1) -> ir.LoopProgram:
    """Build a kernel that copies a tensor from one layout to another. If a blocked axis has a symbolic extent, the kernel's loops
    iterate in the order of the target layout."""
    if dtype.bits >= 8:
        dims = copy_dimensions(shape, source, target)
        program = copy_program("relayout", dtype, dims, threads) if dims is not None else None
        program = program or padded_program("relayout", dtype, shape, source, target, threads)
        if program is not None:
            return program
    a, b = ir.Buffer("source", source.shape(shape), dtype), ir.Buffer("target", target.shape(shape), dtype)
    variables = tuple(arith.Var(f"i{axis}") for axis in range(len(b.shape)))
    logical: list[arith.Expr] = list(variables[: len(shape)])
    inner: list[arith.Expr] = list(variables[len(shape) :])
    for (axis, _), extent, lane in zip(target.blocks, b.shape[len(shape) :], inner, strict=True):
        logical[axis] = logical[axis] * extent + lane
    value: ir.Expr = ir.load(a, source.indices(tuple(logical)))
    if target.pads(shape):
        in_bounds: arith.Expr = arith.ONE
        for axis, _ in target.blocks:
            in_bounds = arith.logical_and(in_bounds, arith.compare("<", logical[axis], shape[axis]))
        value = ir.select(in_bounds, value, ir.const(0, dtype))
    body: ir.Stmt = ir.Store(b, variables, value)
    for variable, extent in zip(reversed(variables), reversed(b.shape), strict=True):
        body = ir.For(variable, arith.wrap(extent), body)
    return ir.LoopProgram("relayout", (a,), (b,), body)
