"""Applies the paddings that `storage_align` requests to the final sizes of buffers."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.primitives.layout import ALIGNMENTS
from inlaid.tensor.transform.rewrite import Rewriter


def align_buffers(program: ir.LoopProgram) -> ir.LoopProgram:
    """Widen the allocations of aligned buffers so that the strides of their axes are as requested. Indices are unchanged.

        alloc t[8, 30], aligned (0, 32, 1)    becomes    alloc t[8, 33]

    A buffer with a symbolic dimension after the axis is unchanged.
    """
    alignments = {name: (axis, factor, offset) for name, axis, factor, offset in dict(program.annotations).get(ALIGNMENTS, ())}
    if not alignments:
        return program
    buffers = {}
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.Alloc) and stmt.buffer.name in alignments:
            buffers[stmt.buffer] = _widened(stmt.buffer, *alignments[stmt.buffer.name])
    annotations = tuple(pair for pair in program.annotations if pair[0] != ALIGNMENTS)
    return replace(program, body=Rewriter(buffers=buffers).stmt(program.body), annotations=annotations)


def _widened(buffer: ir.Buffer, axis: int, factor: int, offset: int) -> ir.Buffer:
    shape = list(buffer.shape)
    inner = 1
    for dim in shape[axis + 2 :]:
        if not isinstance(dim, int):
            return buffer
        inner *= dim
    extent = shape[axis + 1]
    if isinstance(extent, int):
        for wider in range(extent, extent + factor):
            if wider * inner % factor == offset:
                shape[axis + 1] = wider
                break
    return ir.Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope)
