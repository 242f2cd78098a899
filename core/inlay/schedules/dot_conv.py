"""Convolutions of narrow numbers through dot-product instructions, over a tile of pixels times output channels in registers.

Activations lie as N C/b H W b, with b channels a multiple of an instruction's group; weights as O/w C/b KH KW b/g w g, with w the
output channels of a tile. Channels that fill no groups, the colours of an image, are copied first, with zeros beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.schedules.conv import schedule_padding
from inlay.schedules.dot import DotTile, choose_dot_tile, dots_for, narrow_product, with_dots
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    blocks_of,
    constant_extent,
    find_anchor,
    is_static,
    layouts_by_name,
    mark_tile,
    present,
    share_rows,
)
from inlay.tensor import ir
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _Conv:
    """A convolution: its anchor, what it reads, its tile, and how many input channels lie together. They are `padded` where there
    are not as many."""

    anchor: Anchor
    data: ir.Buffer
    weights: ir.Buffer
    tile: DotTile
    block: int
    padded: bool


class DotConvRule:
    """Two-dimensional convolution of narrow operands, ungrouped, whose output channels fill vectors."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines output channels that are no multiple of an instruction's lanes."""
        conv = _find(program, context)
        if conv is None:
            return None
        layouts = _layouts(program, conv)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(source, conv, layouts, context))


def _find(program: ir.LoopProgram, context: KernelContext) -> _Conv | None:
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
    dots = dots_for(anchor, context)
    dot = next((dot for dot in dots if outputs % dot.lanes == 0), None)
    if dot is None:
        return None
    depth = -(-inputs // dot.group) * dot.group
    sizes = sorted({dot.group, *(other.lanes for other in dots if other.lanes % dot.group == 0)}, reverse=True)
    block = next(size for size in sizes if depth % size == 0)
    return _Conv(anchor, data.buffer, weights.buffer, choose_dot_tile(dot, width, outputs, context), block, depth != inputs)


def _layouts(program: ir.LoopProgram, conv: _Conv) -> dict[ir.Buffer, Layout]:
    tile, anchor = conv.tile, conv.anchor
    found = {conv.weights: Layout(((1, conv.block), (0, tile.width), (1, tile.dot.group)))}
    if not conv.padded:
        blocked = Layout(((1, conv.block),))
        found[conv.data] = blocked
        for block in anchor.before:
            found.update((region.buffer, blocked) for region in block.reads if len(region.buffer.shape) == 4)
    stored = Layout(((1, tile.dot.lanes),))
    shape = anchor.buffer.shape
    for buffer in (*program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer.shape == shape and buffer not in found:
            found[buffer] = stored
    return found


def _schedule(program: ir.LoopProgram, conv: _Conv, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        total[pixel, vector, lane] = 0
        for channel block, ky, kx, group of channels:
            dot(data, weights, total)         # pixel and vector unrolled
        out = after(total)
    """
    s = Schedule(program, context.intrinsics)
    anchor, tile = conv.anchor, conv.tile
    lanes, group = tile.dot.lanes, tile.dot.group
    name = anchor.block.name
    local: dict[str, Layout] = {}
    if conv.padded:
        local[_pad_channels(s, conv, context)] = Layout(((1, conv.block),))
    else:
        for block in anchor.before:
            schedule_padding(s, block.name, conv.block, context)
    final = accumulate_in_registers(s, anchor)
    if not anchor.after:
        local[final] = Layout(((1, lanes),))
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, vector, lane = s.split(channel, (None, tile.vectors, lanes))
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.rows))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(pixel), vector, lane)
    s.compute_at(name, outside[-1])
    mark_tile(s, *present(pixel), vector, lane)
    c, *taps = axis_loops(s, name)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(name)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, lanes))
    blocks, groups, part = s.split(c, (None, conv.block // group, group))
    s.reorder(blocks, *present(*taps), groups, *pixels, vector, lane, part)
    if context.threads != 1:
        share_rows(s, [n], y, [outer], context.threads)
    return with_dots(s, name, blocks, (*pixels, vector), lane, tile, layouts_by_name(s.program, layouts, local), context)


def _pad_channels(s: Schedule, conv: _Conv, context: KernelContext) -> str:
    """A copy of the data with channels of zeros, which takes the place of one that pads rows; the name of its buffer."""
    anchor, known = conv.anchor, s.blocks
    multiples = tuple(conv.tile.dot.group if item is anchor.reduced[0] else 1 for item in anchor.block.iters)
    s.pad(anchor.block.name, multiples, (conv.weights.name,))
    (copy,) = (block for block in blocks_of(s.program) if block.name not in known)
    for block in anchor.before:
        s.compute_inline(block.name)
    n, channel, y, x = s.loops(copy.name)
    s.reorder(y, x, channel)
    s.unroll(channel)
    if context.threads != 1:
        share_rows(s, [n], y, [], context.threads)
    return copy.writes[0].buffer.name
