"""Convolutions of narrow numbers through dot-product instructions, over a tile of pixels times output channels in registers.

Activations lie as N C/b H W b, with b channels a multiple of an instruction's group; weights as O/w C/r KH KW r/g w g, with w the
output channels of a tile and r input channels that a block holds whole. Output channels that fill no vectors are padded. So are
input channels that fill no groups, the colours of an image: they are copied first, with zeros beside them. Images of symbolic size,
and those that are no planes, are flat as `flat_conv` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

from inlaid.arith import Var
from inlaid.plugins.contract import Core
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.direct_conv import (
    MOST_VECTORS,
    ConvTile,
    DirectConv,
    channel_layouts,
    conv_tiles,
    decide_tile,
    fill_channels,
    find_conv,
    place_tile,
    schedule_padding,
    stream_weights,
)
from inlaid.schedules.dot import Dot, DotTile, dots_for, narrow_product, with_dots
from inlaid.schedules.flat_conv import FlatAxis, flatten, join_pixels, needs_copy, plan_pixels
from inlaid.schedules.register_tile import Tile, cycles, seconds
from inlaid.schedules.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid.schedules.shape import (
    accumulate_in_registers,
    blocks_of,
    channel_block,
    expected_extent,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR, Layout

SPARE = 1
"""Registers that tiles leave free for what follows: a tile of 28 sums is as fast as one of 30, and needs no stack behind them."""

SHORT_RUN = 2
"""Groups of input channels that are no loop of their own inside one over the window: LLVM keeps the sums of such in memory."""


@dataclass(frozen=True)
class _Plan:
    """A convolution whose channels fill vectors, the instruction that sums it, and its tile. The data has blocks of `block`
    channels, of which `run` are summed together; it is copied where it is `padded`. `cost` is in seconds. Images are flat along the
    axes `flat`."""

    conv: DirectConv
    dot: Dot
    tile: ConvTile
    block: int
    run: int
    padded: bool
    cost: float
    decision: Decision
    flat: tuple[FlatAxis, ...] = ()


class DotConvRule:
    """Convolution of narrow operands where the output channels of a group fill vectors, or are alone and fill half."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Declines groups of input channels that fill no groups of an instruction, and results without elements."""
        sums = bool(context.intrinsics) and 0 not in program.outputs[0].shape
        conv = find_conv(program, narrow_product, context.intrinsics) if sums else None
        if conv is None:
            return ()
        found: list[Offer] = []
        # Shorter vectors only where they leave less empty.
        for dot in dots_for(conv.anchor, context):
            if (not found or conv.outputs % dot.lanes == 0) and (plan := _plan(conv, dot, context, given)):
                found.append(_offer(plan, context))
            if found and conv.outputs % dot.lanes == 0:
                break
        return tuple(found)


def _offer(plan: _Plan, context: KernelContext) -> Offer:
    layouts = _layouts(plan)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in plan.conv.program.params)
    return Offer(params, Traced(lambda: _schedule(plan, layouts, context)), plan.cost, decisions=(plan.decision,))


def _plan(conv: DirectConv, dot: Dot, context: KernelContext, given: tuple[InputInfo, ...]) -> _Plan | None:
    """The convolution through an instruction; None where channels neither fill its lanes and groups nor can be padded."""
    if not conv.fills(dot.lanes) or (conv.inputs % dot.group and not conv.alone):
        return None
    padded = conv.inputs % dot.group != 0
    groups = -(-conv.inputs // dot.group)
    block = _block(channel_block(given[conv.program.inputs.index(conv.source)].layout), conv.inputs, dot)
    filled = fill_channels(conv, dot.lanes, 0 if padded else block, narrow_product)
    if filled is None:
        return None
    images, channels = map(expected_extent, filled.anchor.spatial[:2])
    outputs = channels if conv.alone else conv.outputs
    depth, registers = groups * conv.taps, context.capabilities.vector_registers

    def choose(height: int, width: int, most: int | None) -> tuple[ConvTile, Decision, float]:
        best, count = choose_dot_tile(dot, outputs, height, width, depth, registers, context.capabilities.core, most)
        return *decide_tile(best, outputs // dot.lanes, height, width, registers - SPARE, most, context), count

    found = plan_pixels(filled, choose, padded)
    if found is None:
        return None
    tile, decision, count, flat = found
    cost = seconds(images * channels // outputs * count, context.capabilities)
    return _Plan(filled, dot, tile, block, gcd(block, groups * dot.group), padded, cost, decision, flat)


def _block(given: int, inputs: int, dot: Dot) -> int:
    """How many channels of the data lie together: as it is given, if that can be, or as many as a vector has lanes, or less."""
    if given and given % dot.group == 0 and inputs % dot.group == 0:
        return given
    depth = -(-inputs // dot.group) * dot.group
    return gcd(depth, max(dot.lanes, dot.group))


@cache
def choose_dot_tile(
    dot: Dot, outputs: int, height: int, width: int, depth: int, registers: int, core: Core, most: int | None = None
) -> tuple[ConvTile, float]:
    """The tile, of at most so many pixels, for a whole number of vectors of output channels that takes the fewest cycles, and
    these."""
    best: tuple[float, int, ConvTile] | None = None
    count = outputs // dot.lanes
    for tile in conv_tiles(count, height, width, dot.lanes, registers - SPARE):
        # A broadcast is an instruction of its own here, which a single vector makes no more use of.
        if tile.vectors == 1 and any(count % vectors == 0 for vectors in range(2, MOST_VECTORS + 1)):
            continue
        size = tile.rows * tile.pixels
        if most is not None and size > most:
            continue
        times, length = (1, height * width) if tile.pixels == width else (height, width)
        taken = times * cycles(length, outputs, depth, Tile(dot.lanes, tile.vectors, size), core) * depth
        if best is None or (taken, -size) < best[:2]:
            best = taken, -size, tile
    assert best is not None
    return best[2], best[0]


def _layouts(plan: _Plan) -> dict[ir.Buffer, Layout]:
    """How parameters and what is computed lie."""
    conv = plan.conv
    found = {conv.weights.buffer: Layout(((1, plan.run), (0, plan.tile.width), (1, plan.dot.group)))}
    if not plan.padded:
        found[conv.data.buffer] = found[conv.source] = Layout(((1, plan.block),))
    return channel_layouts(conv, plan.tile, found)


def _schedule(plan: _Plan, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> Schedule:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        total[row, pixel, vector, lane] = 0
        for channel block, ky, kx:
            prefetch a part of the next panel of weights
            for group of channels:
                dot(data, weights, total)     # row, pixel and vector unrolled
        out = after(total)
    """
    s, conv, tile = plan.conv.schedule.copy(), plan.conv, plan.tile
    anchor, name, group = conv.anchor, conv.anchor.block.name, plan.dot.group
    local: dict[str, Layout] = {}
    final = accumulate_in_registers(s, anchor)
    if not anchor.after:
        local[final] = Layout(((1, tile.lanes),))
    copies = [block.name for block in anchor.before]
    data = conv.data.buffer.name
    if plan.padded:
        data = _pad_channels(s, plan)
        copies = [data]
    if plan.flat and (plan.padded or needs_copy(conv, plan.flat)):
        copies = [flatten(s, name, data, plan.flat, final, tile.pixels)]
    elif plan.flat:
        join_pixels(s, name, data, plan.flat, final)
    if plan.flat or plan.padded:
        local.update(dict.fromkeys(copies, Layout(((1, plan.block),))))
    lines: dict[str, Var | None] = {}
    for copy in copies:
        if plan.padded:
            _schedule_channels(s, copy, context)
        else:
            lines[copy] = schedule_padding(s, copy, plan.block, context)
    nest = place_tile(s, conv, tile, final)
    assert nest.channels is not None, "an instruction sums several channels"
    blocks, groups, part = s.split(nest.channels, (None, plan.run // group, group))
    s.reorder(blocks, *nest.taps, groups, *nest.pixels, nest.vector, nest.lane, part)
    if plan.run <= SHORT_RUN * group:
        s.unroll(groups)
    panels: Var | None = nest.panels
    if context.threads != 1:
        panels = share_rows(s, [nest.images], nest.rows, [nest.panels], context.threads)
    dots = DotTile(plan.dot, tile.vectors, tile.pixels)
    with_dots(s, name, blocks, (*nest.pixels, nest.vector), nest.lane, dots, layouts, local)
    stream_weights(s, conv, tile, panels, [blocks, *nest.taps][-1], context.capabilities.core)
    for copy, line in lines.items():
        s.apply(SPLIT_BORDERS, copy, line)
    return s


def _pad_channels(s: Schedule, plan: _Plan) -> str:
    """A copy of the data with channels of zeros, which takes the place of one that pads rows; the name of its buffer and block."""
    anchor, known = plan.conv.anchor, s.blocks
    (block,) = (block for block in blocks_of(s.program) if block.name == anchor.block.name)
    inputs = next(item for item in block.iters if item.kind is ir.IterKind.REDUCTION)
    multiples = tuple(plan.dot.group if item is inputs else 1 for item in block.iters)
    s.pad(block.name, multiples, (plan.conv.weights.buffer.name,))
    (copy,) = (block for block in blocks_of(s.program) if block.name not in known)
    for before in anchor.before:
        s.compute_inline(before.name)
    assert copy.writes[0].buffer.name == copy.name
    return copy.name


def _schedule_channels(s: Schedule, block: str, context: KernelContext) -> None:
    """A copy of few channels, pixel by pixel."""
    n, channel, *image = s.loops(block)
    s.reorder(*image, channel)
    s.unroll(channel)
    if context.threads != 1:
        share_rows(s, [n], image[0], [], context.threads)
