"""Convolution on vector CPUs: direct, in channel-blocked layout, over register tiles.

Activations lie as N C/v H W v, weights as O/b C/v KH KW v b, with v lanes a vector and b one or two vectors of output channels. A
tile of pixels of one row times b channels is accumulated in registers over all input channels and taps; what follows the
convolution is applied before the only store.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay import arith
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
    share_rows,
    tile_size,
)
from inlay.tensor import ir
from inlay.tensor.layouts import with_layouts
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _Tile:
    """Vector length in lanes, vectors of output channels, pixels of a row, and whether input channels are blocked."""

    lanes: int
    vectors: int
    pixels: int
    blocked_input: bool


class ConvRule:
    """Two-dimensional convolution of float32 where the output channels of a group fill vectors."""

    name = "conv2d"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines what is not such a convolution, or has dimensions that are not static."""
        if not is_static(program) or not context.capabilities.vector_bits:
            return None
        anchor = find_anchor(program)
        if anchor is None or not _is_conv(program, anchor):
            return None
        tile = _tile(anchor, context)
        if tile is None:
            return None
        layouts = _layouts(program, anchor, tile)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(source, anchor, tile, layouts, context))


def _is_conv(program: ir.LoopProgram, anchor: Anchor) -> bool:
    """out[n, o, y, x] += data[n, group of o + c, ...] * weights[o, c, ky, kx], over an input or a padded copy of one."""
    spatial, reduced = anchor.spatial, anchor.reduced
    if len(spatial) != 4 or len(reduced) != 3 or anchor.product is None or anchor.buffer.dtype.name != "float32":
        return False
    data, weights = anchor.product
    n, o, _, _ = (item.var for item in spatial)
    c, ky, kx = (item.var for item in reduced)
    if weights.buffer not in program.inputs or weights.indices != (o, c, ky, kx) or data.indices[0] != n:
        return False
    outputs, inputs = _group(anchor)
    if (
        arith.simplify(data.indices[1] - (o // outputs * inputs + c if outputs < constant_extent(anchor.spatial[1]) else c))
        != arith.ZERO
    ):
        return False
    return len(anchor.before) <= 1 and (data.buffer in program.inputs or len(anchor.before) == 1)


def _group(anchor: Anchor) -> tuple[int, int]:
    """Output and input channels of one group."""
    assert anchor.product is not None
    data, inputs = anchor.product[0].buffer, constant_extent(anchor.reduced[0])
    channels = data.shape[1]
    assert isinstance(channels, int)
    return constant_extent(anchor.spatial[1]) // max(channels // inputs, 1), inputs


def _tile(anchor: Anchor, context: KernelContext) -> _Tile | None:
    widest = context.capabilities.vector_bits // 32
    (outputs, inputs), width = _group(anchor), constant_extent(anchor.spatial[3])
    lanes = next((lanes for lanes in (widest, widest // 2) if lanes > 1 and outputs % lanes == 0), 0)
    if not lanes or inputs < 2:
        return None
    vectors = 2 if outputs % (2 * lanes) == 0 else 1
    # All registers but those for the weights of a step, and one for a broadcast.
    limit = max((context.capabilities.vector_registers - vectors - 2) // vectors, 1)
    return _Tile(lanes, vectors, tile_size(width, limit), inputs % lanes == 0)


def _layouts(program: ir.LoopProgram, anchor: Anchor, tile: _Tile) -> dict[ir.Buffer, Layout]:
    assert anchor.product is not None
    data, weights = anchor.product
    blocked = Layout(((1, tile.lanes),))
    found: dict[ir.Buffer, Layout] = {}
    if tile.blocked_input:
        found[weights.buffer] = Layout(((1, tile.lanes), (0, tile.lanes * tile.vectors)))
        found[data.buffer] = blocked
        for block in anchor.before:
            found.update((region.buffer, blocked) for region in block.reads)
    else:
        found[weights.buffer] = Layout(((0, tile.lanes * tile.vectors),))
    shape = anchor.buffer.shape
    for buffer in (*program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer.shape == shape and buffer not in found:
            found[buffer] = blocked
    return found


def _schedule(
    program: ir.LoopProgram, anchor: Anchor, tile: _Tile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        acc[pixel, vector, lane] = 0
        for channel block, ky, kx, channel:
            acc += data * weights             # pixel and vector unrolled, lane vectorised
        out = after(acc)
    """
    s = Schedule(program)
    for block in anchor.before:
        schedule_padding(s, block.name, tile.lanes if tile.blocked_input else 0, context)
    conv, final = anchor.block.name, accumulate_in_registers(s, anchor)
    registers = {} if anchor.after else {final: Layout(((1, tile.lanes),))}
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, vector, lane = s.split(channel, (None, tile.vectors, tile.lanes))
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.pixels))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(pixel), vector, lane)
    s.compute_at(conv, outside[-1])
    mark_tile(s, *present(pixel), vector, lane)
    c, *taps = axis_loops(s, conv)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(conv)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, tile.lanes))
    blocks, c = s.split(c, (None, tile.lanes)) if tile.blocked_input else (c, c)
    s.reorder(*dict.fromkeys((blocks, *present(*taps), c, *pixels, vector, lane)))
    init = s.decompose_reduction(conv, blocks)
    for part in (init, conv):
        mark_tile(s, *s.loops(part)[-2 - len(pixels) :])
    if context.threads != 1:
        share_rows(s, [n], y, [outer], context.threads)
    return with_layouts(s.program, layouts_by_name(s.program, layouts, registers))


def schedule_padding(s: Schedule, block: str, lanes: int, context: KernelContext) -> None:
    """A padded copy of an input, in parallel as `share_rows` has it, `lanes` channels a vector (0: channels are not blocked)."""
    n, channel, y, x = s.loops(block)
    if lanes:
        channel, lane = s.split(channel, (None, lanes))
        s.reorder(n, channel, y, x, lane)
        s.vectorize(lane)
    if context.threads != 1:
        share_rows(s, [n], y, [channel], context.threads)
