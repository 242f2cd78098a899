"""Convolutions of narrow numbers through dot-product instructions, over a tile of pixels times output channels in registers.

Activations lie as N C/b H W b, with b channels a multiple of an instruction's group; weights as O/w C/r KH KW r/g w g, with w the
output channels of a tile and r input channels that a block holds whole. Output channels that fill no vectors are padded. So are
input channels that fill no groups, the colours of an image: they are copied first, with zeros beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from inlay import arith
from inlay.arith import Var
from inlay.schedules.conv import STREAMED_BYTES, schedule_padding
from inlay.schedules.dot import Dot, DotTile, dots_for, narrow_product, with_dots
from inlay.schedules.fill import filled
from inlay.schedules.register_tile import Tile, cycles, fits, seconds
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    blocks_of,
    channel_block,
    constant_extent,
    find_anchor,
    is_static,
    layouts_by_name,
    mark_tile,
    present,
    share_rows,
)
from inlay.tensor import ir
from inlay.tensor.primitives import stream
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout

MOST_VECTORS = 4
"""Vectors of output channels of a tile: with more there are too few pixels to use a weight for."""

SPARE = 1
"""Registers that tiles leave free for what follows: a tile of 28 sums is as fast as one of 30, and needs no stack behind them."""

SHORT_RUN = 2
"""Groups of input channels that are no loop of their own inside one over the window: LLVM keeps the sums of such in memory."""


@dataclass(frozen=True)
class _Conv:
    """A convolution to schedule: the program, whose output channels fill vectors, its anchor, and the tile, of `lines` rows of
    pixels. The data has blocks of `block` channels, of which `run` are summed together; it is copied where it is `padded`. `axes`
    tells, by buffer, which axis was padded. `cost` is in seconds."""

    program: ir.LoopProgram
    anchor: Anchor
    data: ir.Buffer
    weights: ir.Buffer
    tile: DotTile
    lines: int
    block: int
    run: int
    padded: bool
    axes: dict[str, int]
    cost: float


class DotConvRule:
    """Two-dimensional convolution of narrow operands where the output channels of a group fill vectors, or are alone and fill
    half."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> tuple[Offer, ...]:
        """Declines groups of input channels that fill no groups of an instruction, and results without elements."""
        if not is_static(program) or not context.intrinsics or 0 in program.outputs[0].shape:
            return ()
        anchor = find_anchor(program)
        if anchor is None or not _is_conv(program, anchor):
            return ()
        found: list[Offer] = []
        outputs = _group(anchor)[0]
        # Shorter vectors only where they leave less empty.
        for dot in dots_for(anchor, context):
            if (not found or outputs % dot.lanes == 0) and (conv := _conv(program, anchor, dot, context, given)):
                found.append(_offer(conv, context))
            if found and outputs % dot.lanes == 0:
                break
        return tuple(found)


def _offer(conv: _Conv, context: KernelContext) -> Offer:
    layouts = _layouts(conv)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in conv.program.params)
    return Offer(params, lambda _: _schedule(conv, layouts, context), conv.cost)


def _is_conv(program: ir.LoopProgram, anchor: Anchor) -> bool:
    """out[n, o, y, x] += data[n, group of o + c, ...] * weights[o, c, ky, kx], over an input or a padded copy of one."""
    if len(anchor.spatial) != 4 or len(anchor.reduced) != 3 or len(anchor.before) > 1:
        return False
    product = narrow_product(anchor)
    if product is None:
        return False
    data, weights = product
    n, o, _, _ = (item.var for item in anchor.spatial)
    c, ky, kx = (item.var for item in anchor.reduced)
    if weights.buffer not in program.inputs or weights.indices != (o, c, ky, kx) or data.indices[0] != n:
        return False
    outputs, inputs = _group(anchor)
    first = o // outputs * inputs if outputs < constant_extent(anchor.spatial[1]) else arith.ZERO
    return arith.simplify(data.indices[1] - (first + c)) == arith.ZERO and _source(anchor) in program.inputs


def _group(anchor: Anchor) -> tuple[int, int]:
    """Output and input channels of one group."""
    product = narrow_product(anchor)
    assert product is not None
    inputs, channels = constant_extent(anchor.reduced[0]), product[0].buffer.shape[1]
    assert isinstance(channels, int)
    return constant_extent(anchor.spatial[1]) // max(channels // inputs, 1), inputs


def _source(anchor: Anchor) -> ir.Buffer:
    """What is convolved, padding aside."""
    product = narrow_product(anchor)
    assert product is not None
    return anchor.before[0].reads[0].buffer if anchor.before and anchor.before[0].reads else product[0].buffer


def _conv(program: ir.LoopProgram, anchor: Anchor, dot: Dot, context: KernelContext, given: tuple[Given, ...]) -> _Conv | None:
    """The convolution through an instruction; None where channels neither fill its lanes and groups nor can be padded."""
    outputs, inputs = _group(anchor)
    alone = outputs == constant_extent(anchor.spatial[1])
    if outputs % dot.lanes and (not alone or -(-outputs // dot.lanes) * dot.lanes >= 2 * outputs):
        return None
    if inputs % dot.group and not alone:
        return None
    padded = inputs % dot.group != 0
    block = _block(channel_block(given[program.inputs.index(_source(anchor))].layout), inputs, dot)
    axes: dict[str, int] = {}
    for size, blocks in ((dot.lanes, (anchor.block, *anchor.after)), (block, () if padded else anchor.before)):
        if not blocks or constant_extent(blocks[0].iters[1]) % size == 0:
            continue
        # Blocks without channels are those of single numbers.
        larger = filled(program, {item.name: item.iters[1].var for item in blocks if item.iters}, size)
        found = None if larger is None else find_anchor(larger[0])
        if larger is None or found is None:
            return None
        program, anchor, axes = larger[0], found, axes | larger[1]
    product = narrow_product(anchor)
    assert product is not None
    images, channels, *rest = (constant_extent(item) for item in anchor.spatial)
    outputs = channels if alone else outputs
    depth = -(-inputs // dot.group) * prod(constant_extent(item) for item in anchor.reduced[1:])
    tile, lines, count = _choose_tile(dot, outputs, rest[0], rest[1], depth, context.capabilities.vector_registers)
    cost = seconds(images * channels // outputs * count, context.capabilities)
    data, weights = (load.buffer for load in product)
    return _Conv(
        program, anchor, data, weights, tile, lines, block, gcd(block, -(-inputs // dot.group) * dot.group), padded, axes, cost
    )


def _block(given: int, inputs: int, dot: Dot) -> int:
    """How many channels of the data lie together: as it is given, if that can be, or as many as a vector has lanes, or less."""
    if given and given % dot.group == 0 and inputs % dot.group == 0:
        return given
    depth = -(-inputs // dot.group) * dot.group
    return gcd(depth, max(dot.lanes, dot.group))


@cache
def _choose_tile(dot: Dot, outputs: int, height: int, width: int, depth: int, registers: int) -> tuple[DotTile, int, float]:
    """The tile that takes the fewest cycles, its rows of pixels, and these cycles. It has several rows only where it has all their
    pixels."""
    best: tuple[float, int, DotTile, int] | None = None
    count = outputs // dot.lanes
    widths = [vectors for vectors in range(1, MOST_VECTORS + 1) if count % vectors == 0]
    # A broadcast is an instruction of its own here, which a single vector makes no more use of.
    for vectors in widths[1:] or widths:
        for size in range(1, height * width + 1):
            if size > 1 and not fits(size, vectors, registers - SPARE):
                break
            if size > width and size % width:
                continue
            lines, pixels = max(size // width, 1), min(size, width)
            times, length = (1, height * width) if pixels == width else (height, width)
            taken = times * cycles(length, outputs, depth, Tile(dot.lanes, vectors, size)) * depth
            if best is None or (taken, -size) < best[:2]:
                best = taken, -size, DotTile(dot, vectors, pixels), lines
    assert best is not None
    return best[2], best[3], best[0]


def _layouts(conv: _Conv) -> dict[ir.Buffer, Layout]:
    """How parameters and what is computed lie."""
    tile, anchor = conv.tile, conv.anchor
    found = {conv.weights: Layout(((1, conv.run), (0, tile.width), (1, tile.dot.group)))}
    if not conv.padded:
        found[conv.data] = found[_source(anchor)] = Layout(((1, conv.block),))
    shape = anchor.buffer.shape
    for buffer in (*conv.program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer in found:
            continue
        if buffer.shape == shape:
            found[buffer] = Layout(((1, tile.dot.lanes),))
        elif buffer.name in conv.axes:
            found[buffer] = Layout(((conv.axes[buffer.name], tile.dot.lanes),))
    return found


def _schedule(conv: _Conv, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        total[row, pixel, vector, lane] = 0
        for channel block, ky, kx:
            prefetch a part of the next panel of weights
            for group of channels:
                dot(data, weights, total)     # row, pixel and vector unrolled
        out = after(total)
    """
    s, anchor, tile = Schedule(conv.program, context.intrinsics), conv.anchor, conv.tile
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
    y, row = s.split(y, (None, conv.lines)) if y is not None and conv.lines > 1 else (y, None)
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.rows))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(row, pixel), vector, lane)
    s.compute_at(name, outside[-1])
    mark_tile(s, *present(row, pixel), vector, lane)
    c, *taps = axis_loops(s, name)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(name)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, lanes))
    blocks, groups, part = s.split(c, (None, conv.run // group, group))
    s.reorder(blocks, *present(*taps), groups, *pixels, vector, lane, part)
    if taps and conv.run <= SHORT_RUN * group:
        s.unroll(groups)
    panels: Var | None = outer
    if context.threads != 1:
        panels = share_rows(s, [n], y, [outer], context.threads)
    program = with_dots(s, name, blocks, (*pixels, vector), lane, tile, layouts_by_name(s.program, layouts, local), context)
    if panels is None or conv.weights.shape[0] == tile.width or _bytes(conv.weights) < STREAMED_BYTES:
        return program
    name = next(block.name for block in blocks_of(program) if any(item.buffer.name == conv.weights.name for item in block.reads))
    return stream(program, name, conv.weights.name, panels, [blocks, *present(*taps)][-1])[0]


def _bytes(buffer: ir.Buffer) -> int:
    return prod(dim for dim in buffer.shape if isinstance(dim, int)) * buffer.dtype.bytes


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
