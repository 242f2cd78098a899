"""Convolution on vector CPUs: direct, in channel-blocked layout, over register tiles.

Activations lie as N C/v H W v, weights as O/b C/v KH KW v b, with v lanes a vector and b some vectors of output channels. A tile of
pixels times b channels is accumulated in registers over all input channels and taps; what follows the convolution is applied before
the only store. Output channels that fill no vectors are padded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from inlay import arith
from inlay.arith import Var
from inlay.schedules.fill import filled
from inlay.schedules.register_tile import fits, seconds, steps
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
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
from inlay.tensor.layouts import with_layouts
from inlay.tensor.primitives import stream
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout

LEAST_RUN = 4
"""Input channels of a run that weights are packed for: shorter ones are no better than single channels."""
STREAMED_BYTES = 1 << 14
"""Bytes of weights from which on each panel is fetched while the one before is used: fewer stay in the first-level cache."""
MANY_PANELS = 8
"""Panels of a thread from which on one more or less does not matter."""
MOST_VECTORS = 4
"""Vectors of output channels of a tile: with more there are too few pixels to use a weight for."""


@dataclass(frozen=True)
class _Tile:
    """Lanes of a vector, vectors of output channels, rows of pixels, and pixels of a row."""

    lanes: int
    vectors: int
    rows: int
    pixels: int

    @property
    def width(self) -> int:
        """Output channels."""
        return self.lanes * self.vectors


@dataclass(frozen=True)
class _Conv:
    """A convolution to schedule: the program, whose channels fill vectors, its anchor, and the tile. The input has blocks of so
    many channels (0: its channels are not blocked), of which `run` at a time are summed together. `axes` tells, by buffer, which
    axis was padded. `cost` is in seconds."""

    program: ir.LoopProgram
    anchor: Anchor
    tile: _Tile
    block: int
    run: int
    axes: dict[str, int]
    cost: float


class ConvRule:
    """Two-dimensional convolution of float32 where the output channels of a group fill vectors, or are alone and fill half."""

    name = "conv2d"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> tuple[Offer, ...]:
        """Declines what is not such a convolution, or has dimensions that are not static."""
        if not is_static(program) or not context.capabilities.vector_bits:
            return ()
        anchor = find_anchor(program)
        if anchor is None or not _is_conv(program, anchor) or constant_extent(anchor.reduced[0]) < 2:
            return ()
        widest = context.capabilities.vector_bits // 32
        outputs = _group(anchor)[0]
        found: list[Offer] = []
        # Half vectors only where they leave less empty.
        for lanes in (widest, widest // 2):
            if lanes > 1 and (not found or outputs % lanes == 0) and (conv := _conv(program, anchor, lanes, context, given)):
                found.append(_offer(conv, context))
            if outputs % lanes == 0:
                break
        return tuple(found)


def _offer(conv: _Conv, context: KernelContext) -> Offer:
    layouts = _layouts(conv)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in conv.program.params)
    return Offer(params, lambda _: _schedule(conv, layouts, context), conv.cost)


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
    return len(anchor.before) <= 1 and _source(anchor) in program.inputs


def _group(anchor: Anchor) -> tuple[int, int]:
    """Output and input channels of one group."""
    assert anchor.product is not None
    data, inputs = anchor.product[0].buffer, constant_extent(anchor.reduced[0])
    channels = data.shape[1]
    assert isinstance(channels, int)
    return constant_extent(anchor.spatial[1]) // max(channels // inputs, 1), inputs


def _source(anchor: Anchor) -> ir.Buffer:
    """What is convolved, padding aside."""
    assert anchor.product is not None
    return anchor.before[0].reads[0].buffer if anchor.before and anchor.before[0].reads else anchor.product[0].buffer


def _conv(program: ir.LoopProgram, anchor: Anchor, lanes: int, context: KernelContext, given: tuple[Given, ...]) -> _Conv | None:
    """The convolution with vectors of so many lanes; None where its output channels do not fill them, nor can be padded."""
    outputs, inputs = _group(anchor)
    alone = outputs == constant_extent(anchor.spatial[1])
    if outputs % lanes and (not alone or -(-outputs // lanes) * lanes >= 2 * outputs):
        return None
    read_twice = any(node.buffer is _source(anchor) for block in anchor.after for node in _loads(block))
    block = channel_block(given[program.inputs.index(_source(anchor))].layout)
    if read_twice or (not block and inputs % lanes == 0):
        block = lanes
    axes: dict[str, int] = {}
    for size, blocks in ((lanes, (anchor.block, *anchor.after)), (block, anchor.before)):
        if not size or not blocks or constant_extent(blocks[0].iters[1]) % size == 0:
            continue
        if any(len(item.iters) < 2 for item in blocks):
            return None
        larger = filled(program, {item.name: item.iters[1].var for item in blocks}, size)
        found = None if larger is None else find_anchor(larger[0])
        if larger is None or found is None:
            return None
        program, anchor, axes = larger[0], found, axes | larger[1]
    _, channels, *rest = (constant_extent(item) for item in anchor.spatial)
    outputs = channels if alone else outputs
    depth = inputs * prod(constant_extent(item) for item in anchor.reduced[1:])
    tile, cycles = choose_pixels(outputs // lanes, rest[0], rest[1], depth, lanes, context.capabilities.vector_registers)
    images = constant_extent(anchor.spatial[0]) * channels // outputs
    cost = seconds(images * cycles, context.capabilities)
    return _Conv(program, anchor, tile, block, gcd(block, inputs) if block else 1, axes, cost)


def _loads(block: ir.Block) -> list[ir.Load]:
    """What an element-wise block reads."""
    assert isinstance(block.body, ir.Store)
    return [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]


@cache
def choose_pixels(count: int, height: int, width: int, depth: int, lanes: int, registers: int) -> tuple[_Tile, float]:
    """The tile for `count` vectors of output channels that takes the fewest cycles, and these. All tiles have as many channels. A
    tile has several rows only where it has all their pixels."""
    best: tuple[float, int, _Tile] | None = None
    for vectors in (vectors for vectors in range(1, MOST_VECTORS + 1) if count % vectors == 0):
        for size in range(1, height * width + 1):
            if size > 1 and not fits(size, vectors, registers):
                break
            if size > width and size % width:
                continue
            rows, pixels = max(size // width, 1), min(size, width)
            lines, length = (1, height * width) if pixels == width else (height, width)
            whole, edge = (steps(extent, vectors, lanes, depth, length > size, crowded=False) for extent in (size, length % size))
            cycles = count // vectors * lines * depth * (length // size * whole + (edge if length % size else 0))
            if best is None or (cycles, -size) < best[:2]:
                best = cycles, -size, _Tile(lanes, vectors, rows, pixels)
    assert best is not None
    return best[2], best[0]


def _layouts(conv: _Conv) -> dict[ir.Buffer, Layout]:
    """How parameters and what is computed lie."""
    anchor, tile = conv.anchor, conv.tile
    assert anchor.product is not None
    data, weights = anchor.product
    found = {weights.buffer: Layout(((1, conv.run), (0, tile.width)) if conv.run >= LEAST_RUN else ((0, tile.width),))}
    if conv.block:
        found[data.buffer] = found[_source(anchor)] = Layout(((1, conv.block),))
    shape = anchor.buffer.shape
    for buffer in (*conv.program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer in found:
            continue
        if buffer.shape == shape:
            found[buffer] = Layout(((1, tile.lanes),))
        elif buffer.name in conv.axes:
            found[buffer] = Layout(((conv.axes[buffer.name], tile.lanes),))
    return found


def _schedule(conv: _Conv, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        acc[row, pixel, vector, lane] = 0
        for channels, ky, kx:
            prefetch a part of the next panel of weights
            for channel:
                acc += data * weights         # row, pixel and vector unrolled, lane vectorised
        out = after(acc)
    """
    s, anchor, tile = Schedule(conv.program), conv.anchor, conv.tile
    assert anchor.product is not None
    for block in anchor.before:
        schedule_padding(s, block.name, conv.block, context)
    name, final = anchor.block.name, accumulate_in_registers(s, anchor)
    registers = {} if anchor.after else {final: Layout(((1, tile.lanes),))}
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, vector, lane = s.split(channel, (None, tile.vectors, tile.lanes))
    y, row = s.split(y, (None, tile.rows)) if y is not None and tile.rows > 1 else (y, None)
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.pixels))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(row, pixel), vector, lane)
    s.compute_at(name, outside[-1])
    mark_tile(s, *present(row, pixel), vector, lane)
    c, *taps = axis_loops(s, name)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(name)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, tile.lanes))
    blocks, c = s.split(c, (None, conv.run)) if conv.run >= LEAST_RUN else (c, c)
    s.reorder(*dict.fromkeys((blocks, *present(*taps), c, *pixels, vector, lane)))
    init = s.decompose_reduction(name, blocks)
    for part in (init, name):
        mark_tile(s, *s.loops(part)[-2 - len(pixels) :])
    panels: Var | None = outer
    if context.threads != 1:
        panels = share_rows(s, [n], None if _shares_panels(conv, context) else y, [outer], context.threads)
    program = with_layouts(s.program, layouts_by_name(s.program, layouts, registers))
    weights = anchor.product[1].buffer
    if panels is not None and weights.shape[0] != tile.width and 4 * _elements(weights) >= STREAMED_BYTES:
        program, _ = stream(program, name, weights.name, panels, [blocks, *present(*taps)][-1])
    return program


def _elements(buffer: ir.Buffer) -> int:
    return prod(dim for dim in buffer.shape if isinstance(dim, int))


def _shares_panels(conv: _Conv, context: KernelContext) -> bool:
    """Whether threads share out output channels, so that each reads weights of its own, instead of rows: where there are more
    weights than inputs, and threads get the same number of panels, or many."""
    assert conv.anchor.product is not None
    data, weights = (_elements(load.buffer) for load in conv.anchor.product)
    panels = constant_extent(conv.anchor.spatial[1]) // conv.tile.width
    return weights > data and (panels % max(context.threads, 1) == 0 or panels >= MANY_PANELS * context.threads)


def schedule_padding(s: Schedule, block: str, lanes: int, context: KernelContext) -> None:
    """A padded copy of an input, in parallel as `share_rows` has it, `lanes` channels a vector (0: channels are not blocked)."""
    n, channel, y, x = s.loops(block)
    if lanes:
        channel, lane = s.split(channel, (None, lanes))
        s.reorder(n, channel, y, x, lane)
        s.vectorize(lane)
    if context.threads != 1:
        share_rows(s, [n], y, [channel], context.threads)
