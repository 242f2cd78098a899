"""Convolutions of narrow numbers through dot-product instructions, over a tile of pixels times output channels in registers."""

from __future__ import annotations

from inlay.schedules.conv import schedule_padding
from inlay.schedules.dot import DotTile, choose_dot_tile, fitting_dot, narrow_product, with_dots
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    constant_extent,
    find_anchor,
    is_static,
    layouts_by_name,
    mark_tile,
    present,
)
from inlay.tensor import ir
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout


class DotConvRule:
    """Two-dimensional convolution of narrow operands, ungrouped, whose channels fill vectors on both sides."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines channels that are no multiple of an instruction's lanes."""
        if not is_static(program):
            return None
        anchor = find_anchor(program)
        if anchor is None or len(anchor.spatial) != 4 or len(anchor.reduced) != 3 or len(anchor.before) > 1:
            return None
        product = narrow_product(anchor)
        if product is None:
            return None
        data, weights = product
        n, o, _, _ = (item.var for item in anchor.spatial)
        c, ky, kx = (item.var for item in anchor.reduced)
        if weights.buffer not in program.inputs or weights.indices != (o, c, ky, kx) or data.indices[:2] != (n, c):
            return None
        if data.buffer not in program.inputs and not anchor.before:
            return None
        outputs, inputs, width = (constant_extent(item) for item in (anchor.spatial[1], anchor.reduced[0], anchor.spatial[3]))
        dot = fitting_dot(anchor, context, outputs, inputs)
        if dot is None or inputs % dot.lanes:
            return None
        tile = choose_dot_tile(dot, width, outputs, context)
        layouts = _layouts(program, anchor, data.buffer, weights.buffer, tile)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(source, anchor, tile, layouts, context))


def _layouts(
    program: ir.LoopProgram, anchor: Anchor, data: ir.Buffer, weights: ir.Buffer, tile: DotTile
) -> dict[ir.Buffer, Layout]:
    lanes = tile.dot.lanes
    blocked = Layout(((1, lanes),))
    found = {weights: Layout(((1, lanes), (0, tile.width), (1, tile.dot.group))), data: blocked}
    for block in anchor.before:
        found.update((region.buffer, blocked) for region in block.reads if len(region.buffer.shape) == 4)
    shape = anchor.buffer.shape
    for buffer in (*program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer.shape == shape and buffer not in found:
            found[buffer] = blocked
    return found


def _schedule(
    program: ir.LoopProgram, anchor: Anchor, tile: DotTile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel over n, outer, y
        total[pixel, vector, lane] = 0
        for channel block, ky, kx, group of channels:
            dot(data, weights, total)         # pixel and vector unrolled
        out = after(total)
    """
    s = Schedule(program, context.intrinsics)
    lanes = tile.dot.lanes
    for block in anchor.before:
        schedule_padding(s, block.name, lanes, context)
    conv, final = anchor.block.name, accumulate_in_registers(s, anchor)
    registers = {} if anchor.after else {final: Layout(((1, lanes),))}
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, vector, lane = s.split(channel, (None, tile.vectors, lanes))
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.rows))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(pixel), vector, lane)
    s.compute_at(conv, outside[-1])
    mark_tile(s, *present(pixel), vector, lane)
    c, *taps = axis_loops(s, conv)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(conv)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, lanes))
    blocks, groups, part = s.split(c, (None, lanes // tile.dot.group, tile.dot.group))
    s.reorder(blocks, *present(*taps), groups, *pixels, vector, lane, part)
    if context.threads != 1:
        s.parallel(s.fuse(*present(n, outer, y)))
    return with_dots(s, conv, blocks, (*pixels, vector), lane, tile, layouts_by_name(s.program, layouts, registers), context)
