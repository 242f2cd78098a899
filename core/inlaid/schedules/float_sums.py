"""Sum the integer products of short windows in float32, exactly: products of bytes, and sums of a few, are integers that float32
represents. A vector unit multiplies and adds floats in one instruction; integers must be extended, multiplied and added."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import Anchor, constant_extent, find_anchor, is_constant
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.math.floats import FLOAT32
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.rewrite import Rewriter

LIMIT = 1 << (FLOAT32.digits - 1)
"""Sums below this magnitude are converted to integers by adding `FLOAT32.magic`."""


def float_sums(program: ir.LoopProgram) -> ir.LoopProgram:
    """Sum products of integers in float32, if no sum can reach `LIMIT` and the sums read a copy of the data, which is converted to
    float32 once and read several times. Any other program is returned unchanged.

        copy[i] = x[i]                                  copy[i] = float32(x[i])
        sum[i] += int32(copy[i + k]) * int32(w[k])      sum[i] += copy[i + k] * float32(w[k])
        out[i] = f(sum[i])                              out[i] = f(int32(sum[i]))
    """
    anchor = find_anchor(program)
    loads = None if anchor is None else narrow_product(anchor)
    if anchor is None or loads is None or len(anchor.before) != 1 or not anchor.after or anchor.buffer in program.params:
        return program
    (copy,), data = anchor.before, loads[0].buffer
    epilogue_reads = any(region.buffer is data for block in anchor.after for region in block.reads)
    if copy.writes[0].buffer is not data or data in program.params or epilogue_reads or not _is_exact(anchor, loads):
        return program
    buffers = {buffer: replace(buffer, dtype=FLOAT32.dtype) for buffer in (data, anchor.buffer)}
    sums = buffers[anchor.buffer]
    blocks_by_name = {block.name: block for block in collect_blocks(program)}

    def as_integer(node: ir.Expr) -> ir.Expr | None:
        """Convert a sum to an integer."""
        if not isinstance(node, ir.Load) or node.buffer is not anchor.buffer:
            return None
        return ir.bitcast(ir.load(sums, node.indices) + FLOAT32.magic, FLOAT32.integer) - FLOAT32.magic_bits

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.Block):
            return None
        block = blocks_by_name[stmt.name]
        assert isinstance(block.body, ir.Store)
        indices = block.body.indices
        if block is copy:
            return with_footprint(replace(block, body=ir.Store(buffers[data], indices, _as_float(block.body.value))))
        if block is not anchor.block:
            return with_footprint(replace(block, body=Rewriter(expr=as_integer).stmt(block.body)))
        product = ir.load(buffers[data], loads[0].indices) * ir.cast(loads[1], FLOAT32.dtype)
        body = ir.Store(sums, indices, ir.load(sums, indices) + product)
        return with_footprint(replace(block, body=body, init=ir.Store(sums, indices, ir.const(0, FLOAT32.dtype))))

    return Rewriter(buffers=buffers, stmt=change).program(program)


def _is_exact(anchor: Anchor, loads: tuple[ir.Load, ir.Load]) -> bool:
    """Test whether the magnitudes of all sums are below `LIMIT`."""
    types, init = [load.dtype for load in loads], anchor.block.init
    starts_at_zero = isinstance(init, ir.Store) and isinstance(init.value, ir.Const) and init.value.value == 0
    if not starts_at_zero or not is_constant(*anchor.reduced) or not all(dtype.is_int for dtype in (*types, anchor.buffer.dtype)):
        return False
    return prod(max(map(abs, dtype.limits)) for dtype in types) * prod(map(constant_extent, anchor.reduced)) < LIMIT


def _as_float(value: ir.Expr) -> ir.Expr:
    """Convert a copied value to float32. A select keeps its form, which `split_borders` matches."""
    if isinstance(value, ir.Select):
        return ir.select(value.condition, _as_float(value.then), _as_float(value.otherwise))
    return ir.const(value.value, FLOAT32.dtype) if isinstance(value, ir.Const) else ir.cast(value, FLOAT32.dtype)


FLOAT_SUMS = Transform("float_sums", float_sums)
