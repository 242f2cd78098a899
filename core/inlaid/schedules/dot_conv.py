"""Convolution of narrow operands by dot-product instructions, over a register tile of pixels times output channels.

Activations have layout N C/b H W b, with b a multiple of the instruction's group g; weights O/w C/r KH KW r/g w g, with w the
output channels of a tile and r input channels, which divide b. Output channels are padded to whole vectors. Input channels that do
not fill groups, such as RGB, are copied with zero padding first. Images of symbolic size, and images that are not 2-d, are
flattened (see `flat_conv`).
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from inlaid.plugins.contract import Core
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.direct_conv import (
    ConvTile,
    DirectConv,
    channel_layouts,
    conv_tiles,
    decide_tile,
    fill_channels,
    find_conv,
    schedule_padding,
    stream_weights,
    tile_nest,
)
from inlaid.schedules.dot import DotTile, dots_for, narrow_product, with_dots
from inlaid.schedules.flat_conv import FlatAxis, flatten, join_pixels, needs_copy, plan_pixels
from inlaid.schedules.register_tile import Tile, cycles, seconds
from inlaid.schedules.shape import accumulate_in_registers, channel_block, expected_extent, share_rows
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import Dot
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _DotConvTiling:
    """A convolution whose channels fill vectors, its instruction, and its tile. The data has `block` channels per block; `run`
    channels are summed together. `padded`: input channels are padded by a copy. `cost` is in seconds. `flat` are the axes of
    flattened images."""

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
    """Schedules convolutions of narrow operands whose output channels per group fill vectors, or fill more than half a vector in a
    single group."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Offer schedules. Declines grouped convolutions whose input channels do not fill groups, and empty results."""
        sums = bool(context.intrinsics) and 0 not in program.outputs[0].shape
        conv = find_conv(program, narrow_product, context.intrinsics) if sums else None
        if conv is None:
            return ()
        offers: list[Offer] = []
        # Shorter vectors only if they leave fewer lanes empty.
        for dot in dots_for(conv.anchor, context):
            if (not offers or conv.outputs % dot.lanes == 0) and (plan := _plan(conv, dot, context, inputs)):
                offers.append(_offer(plan, context))
            if offers and conv.outputs % dot.lanes == 0:
                break
        return tuple(offers)


def _offer(plan: _DotConvTiling, context: KernelContext) -> Offer:
    layouts = _layouts(plan)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in plan.conv.program.params)
    return Offer(params, Traced(lambda: _schedule(plan, layouts, context)), plan.cost, decisions=(plan.decision,))


def _plan(conv: DirectConv, dot: Dot, context: KernelContext, inputs: tuple[InputInfo, ...]) -> _DotConvTiling | None:
    """Plan the convolution by an instruction; None if channels do not fill lanes and groups and cannot be padded."""
    if not conv.fills(dot.lanes) or (conv.inputs % dot.group and not conv.single_group):
        return None
    padded = conv.inputs % dot.group != 0
    groups = -(-conv.inputs // dot.group)
    block = _block(channel_block(inputs[conv.program.inputs.index(conv.source)].layout), conv.inputs, dot)
    filled = fill_channels(conv, dot.lanes, 0 if padded else block, narrow_product)
    if filled is None:
        return None
    images, channels = map(expected_extent, filled.anchor.spatial[:2])
    outputs = channels if conv.single_group else conv.outputs
    depth, registers, costs = groups * conv.taps, context.capabilities.vector_registers, context.capabilities.core.costs

    def choose(height: int, width: int, max_pixels: int | None) -> tuple[ConvTile, Decision, float]:
        best, count = choose_dot_tile(dot, outputs, height, width, depth, registers, context.capabilities.core, max_pixels)
        return *decide_tile(
            best, outputs // dot.lanes, height, width, registers - costs.spare_registers, max_pixels, context
        ), count

    tile_choice = plan_pixels(filled, choose, costs, padded, joins=True)
    if tile_choice is None:
        return None
    tile, decision, count, flat = tile_choice
    cost = seconds(images * channels // outputs * count, context.capabilities)
    return _DotConvTiling(filled, dot, tile, block, gcd(block, groups * dot.group), padded, cost, decision, flat)


def _block(layout_block: int, inputs: int, dot: Dot) -> int:
    """Choose the channels per block of the data: `layout_block` if the instruction allows it, else at most the lanes of a
    vector."""
    if layout_block and layout_block % dot.group == 0 and inputs % dot.group == 0:
        return layout_block
    depth = -(-inputs // dot.group) * dot.group
    return gcd(depth, max(dot.lanes, dot.group))


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def choose_dot_tile(
    dot: Dot, outputs: int, height: int, width: int, depth: int, registers: int, core: Core, max_pixels: int | None = None
) -> tuple[ConvTile, float]:
    """Choose the tile of at most `max_pixels` pixels that minimizes cycles, for a multiple of the instruction's lanes of output
    channels; returns tile and cycles."""
    best: tuple[float, int, ConvTile] | None = None
    count = outputs // dot.lanes
    for tile in conv_tiles(count, height, width, dot.lanes, registers - core.costs.spare_registers, core.costs):
        # The broadcast is a separate instruction here, which a tile of a single vector would not amortize.
        if tile.vectors == 1 and any(count % vectors == 0 for vectors in range(2, core.costs.tile_vectors + 1)):
            continue
        size = tile.rows * tile.pixels
        if max_pixels is not None and size > max_pixels:
            continue
        times, length = (1, height * width) if tile.pixels == width else (height, width)
        tile_cycles = times * cycles(length, outputs, depth, Tile(dot.lanes, tile.vectors, size), core) * depth
        if best is None or (tile_cycles, -size) < best[:2]:
            best = tile_cycles, -size, tile
    assert best is not None
    return best[2], best[0]


def _layouts(plan: _DotConvTiling) -> dict[ir.Buffer, Layout]:
    """Return the layouts of parameters and intermediate buffers."""
    conv = plan.conv
    layouts = {conv.weights.buffer: Layout(((1, plan.run), (0, plan.tile.width), (1, plan.dot.group)))}
    if not plan.padded:
        layouts[conv.data.buffer] = layouts[conv.source] = Layout(((1, plan.block),))
    return channel_layouts(conv, plan.tile, layouts)


def _schedule(plan: _DotConvTiling, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> Schedule:
    """Build the nest:

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
    nest = tile_nest(s, conv, tile, final)
    assert nest.channels is not None, "an instruction sums several channels"
    blocks, groups, part = s.split(nest.channels, (None, plan.run // group, group))
    s.reorder(blocks, *nest.taps, groups, *nest.pixels, nest.vector, nest.lane, part)
    if plan.run <= context.capabilities.core.costs.unrolled_groups * group:
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


def _pad_channels(s: Schedule, plan: _DotConvTiling) -> str:
    """Copy the data with zero-padded channels; the copy absorbs spatial padding. Returns the name of its buffer and block."""
    anchor, earlier_blocks = plan.conv.anchor, s.blocks
    (block,) = (block for block in collect_blocks(s.program) if block.name == anchor.block.name)
    inputs = next(item for item in block.iters if item.kind is ir.IterKind.REDUCTION)
    multiples = tuple(plan.dot.group if item is inputs else 1 for item in block.iters)
    s.pad(block.name, multiples, (plan.conv.weights.buffer.name,))
    (copy,) = (block for block in collect_blocks(s.program) if block.name not in earlier_blocks)
    for before in anchor.before:
        s.compute_inline(before.name)
    assert copy.writes[0].buffer.name == copy.name
    return copy.name


def _schedule_channels(s: Schedule, block: str, context: KernelContext) -> None:
    """Schedule a copy of few channels pixel by pixel."""
    n, channel, *image = s.loops(block)
    s.reorder(*image, channel)
    s.unroll(channel)
    if context.threads != 1:
        share_rows(s, [n], image[0], [], context.threads)
