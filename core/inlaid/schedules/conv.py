"""Convolution of float32 on vector CPUs: direct, in channel-blocked layout, over register tiles.

Activations lie as N C/v H W v, weights as O/b C/v KH KW v b, with v lanes a vector and b some vectors of output channels. A tile of
pixels times b channels is accumulated in registers over all input channels and taps; what follows the convolution is applied before
the only store. Images of symbolic size, and those that are no planes, are copied as `flat_conv` has it, so that tiles are whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

from inlaid.arith import ONE, Var, affine
from inlaid.plugins.contract import Core
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.direct_conv import (
    ConvTile,
    DirectConv,
    channel_layouts,
    conv_tiles,
    count_elements,
    decide_tile,
    fill_channels,
    find_conv,
    place_tile,
    schedule_padding,
    stream_weights,
)
from inlaid.schedules.flat_conv import STORE_WHOLE_TILES, FlatAxis, flatten, in_text, join_pixels, needs_copy, plan_pixels
from inlaid.schedules.register_tile import seconds, steps
from inlaid.schedules.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    channel_block,
    expected_extent,
    is_static,
    lay_out,
    mark_tile,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid.types import ROW_MAJOR, Layout

LEAST_RUN = 4
"""Input channels of a run that weights are packed for: shorter ones are no better than single channels."""
SHALLOW = 512
"""Products of a sum up to which it matters that results are stored without conditions."""
MANY_PANELS = 8
"""Panels of a thread from which on one more or less does not matter."""


@dataclass(frozen=True)
class _Plan:
    """A convolution whose channels fill vectors, and its tile. The input has blocks of so many channels (0: its channels are not
    blocked), of which `run` at a time are summed together. `cost` is in seconds. Images are flat along the axes `flat`."""

    conv: DirectConv
    tile: ConvTile
    block: int
    run: int
    cost: float
    decision: Decision
    flat: tuple[FlatAxis, ...] = ()


class ConvRule:
    """Convolution of float32 where the output channels of a group fill vectors, or are alone and fill half; any but a single one
    that is alone where sizes are symbolic or images no planes, since windows are not unfolded then."""

    name = "conv2d"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Declines what is not such a convolution, or has symbolic channels or windows."""
        conv = find_conv(program, _product) if context.capabilities.vector_bits else None
        # A static plane of one channel is unfolded, and a group of one has windows of its own.
        if conv is None or (conv.inputs < 2 and (not conv.alone or conv.taps < 2 or (conv.is_plane and is_static(conv.program)))):
            return ()
        widest = context.capabilities.vector_bits // 32
        found: list[Offer] = []
        # Half vectors only where they leave less empty.
        for lanes in (widest, widest // 2):
            if lanes > 1 and (not found or conv.outputs % lanes == 0) and (plan := _plan(conv, lanes, context, given)):
                found.append(_offer(plan, context))
            if conv.outputs % lanes == 0:
                break
        return tuple(found)


def _product(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    return anchor.product if anchor.buffer.dtype.name == "float32" else None


def _offer(plan: _Plan, context: KernelContext) -> Offer:
    layouts = _layouts(plan)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in plan.conv.program.params)
    shares = context.decide("share", ("panels", "rows"), "panels" if _shares_panels(plan, context) else "rows")
    decisions = (plan.decision,) if context.threads == 1 else (plan.decision, shares)
    panels = shares.value == "panels"
    return Offer(params, Traced(lambda: _schedule(plan, layouts, panels, context)), plan.cost, decisions=decisions)


def _plan(conv: DirectConv, lanes: int, context: KernelContext, given: tuple[InputInfo, ...]) -> _Plan | None:
    """The convolution with vectors of so many lanes; None where its output channels do not fill them, nor can be padded."""
    static = conv.is_plane and is_static(conv.program)
    # A single one is summed row by row, by vectors of pixels, unless those lie far apart.
    step = affine(conv.data.indices[-1], conv.anchor.spatial[-1].var)
    single = conv.outputs == 1 and step is not None and step[0] == ONE
    few = conv.alone and not static and not single and 2 * lanes <= context.capabilities.vector_bits // 32
    if not conv.fills(lanes) and not few:
        return None
    read_twice = any(node.buffer is conv.source for block in conv.anchor.after for node in _loads(block))
    block = channel_block(given[conv.program.inputs.index(conv.source)].layout)
    if read_twice or (not block and conv.inputs % lanes == 0):
        block = lanes
    filled = fill_channels(conv, lanes, block, _product)
    if filled is None:
        return None
    images, channels = map(expected_extent, filled.anchor.spatial[:2])
    outputs = channels if conv.alone else conv.outputs
    size, registers = (conv.inputs * conv.taps, lanes), context.capabilities.vector_registers

    def choose(height: int, width: int, most: int | None) -> tuple[ConvTile, Decision, float]:
        best, cycles = choose_pixels(outputs // lanes, height, width, *size, registers, context.capabilities.core, most)
        return *decide_tile(best, outputs // lanes, height, width, registers, most, context), cycles

    found = plan_pixels(filled, choose)
    if found is None:
        return None
    tile, decision, cycles, flat = found
    cost = seconds(images * channels // outputs * cycles, context.capabilities)
    return _Plan(filled, tile, block, gcd(block, conv.inputs) if block else 1, cost, decision, flat)


def _loads(block: ir.Block) -> list[ir.Load]:
    """What an element-wise block reads."""
    assert isinstance(block.body, ir.Store)
    return [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]


@cache
def choose_pixels(
    count: int, height: int, width: int, depth: int, lanes: int, registers: int, core: Core, most: int | None = None
) -> tuple[ConvTile, float]:
    """The tile, of at most so many pixels, for `count` vectors of output channels that takes the fewest cycles, and these."""
    best: tuple[float, int, ConvTile] | None = None
    for tile in conv_tiles(count, height, width, lanes, registers):
        size = tile.rows * tile.pixels
        if most is not None and size > most:
            continue
        lines, length = (1, height * width) if tile.pixels == width else (height, width)
        whole, edge = (steps(extent, tile.vectors, lanes, depth, length > size, False, core) for extent in (size, length % size))
        cycles = count // tile.vectors * lines * depth * (length // size * whole + (edge if length % size else 0))
        if best is None or (cycles, -size) < best[:2]:
            best = cycles, -size, tile
    assert best is not None
    return best[2], best[0]


def _layouts(plan: _Plan) -> dict[ir.Buffer, Layout]:
    """How parameters and what is computed lie."""
    conv, panel = plan.conv, (0, plan.tile.width)
    found = {conv.weights.buffer: Layout(((1, plan.run), panel) if plan.run >= LEAST_RUN else (panel,))}
    if plan.block:
        found[conv.data.buffer] = found[conv.source] = Layout(((1, plan.block),))
    return channel_layouts(conv, plan.tile, found)


def _schedule(plan: _Plan, layouts: dict[ir.Buffer, Layout], share_panels: bool, context: KernelContext) -> Schedule:
    """
    for n, outer, y, x:                       # parallel: see `share_rows`
        acc[row, pixel, vector, lane] = 0
        for channels, ky, kx:
            prefetch a part of the next panel of weights
            for channel:
                acc += data * weights         # row, pixel and vector unrolled, lane vectorised
        out = after(acc)
    """
    s, conv, anchor, tile = plan.conv.schedule.copy(), plan.conv, plan.conv.anchor, plan.tile
    name, final = anchor.block.name, accumulate_in_registers(s, anchor)
    local = {} if anchor.after else {final: Layout(((1, tile.lanes),))}
    copies = [block.name for block in anchor.before]
    copied = bool(plan.flat) and needs_copy(conv, plan.flat)
    # Threads share out tiles of all images, of which none is the last.
    cut = copied and len(plan.flat) == 1 and context.threads == 1
    if copied:
        copy = flatten(s, name, conv.data.buffer.name, plan.flat, final, tile.pixels, cut)
        copies = [copy]
        if plan.block:
            local[copy] = Layout(((1, plan.block),))
    elif plan.flat:
        join_pixels(s, name, conv.data.buffer.name, plan.flat, final)
    lines: dict[str, Var | None] = {}
    for copy in copies:
        lines[copy] = schedule_padding(s, copy, plan.block, context)
    nest = place_tile(s, conv, tile, final)
    blocks = c = nest.channels
    if c is not None and plan.run >= LEAST_RUN:
        blocks, c = s.split(c, (None, plan.run))
    if cut and nest.rows is not None:
        s.annotate(nest.rows, REMAINDERS.name, 1)
    turns = present(blocks, *nest.taps)
    s.reorder(*dict.fromkeys((*turns, *present(c), *nest.pixels, nest.vector, nest.lane)))
    init = s.decompose_reduction(name, turns[0])
    for part in (init, name):
        mark_tile(s, *s.loops(part)[-2 - len(nest.pixels) :])
    panels: Var | None = nest.panels
    if context.threads != 1:
        rows = None if share_panels else nest.rows
        panels = share_rows(s, [nest.images], rows, [nest.panels], context.threads)
    if copied and not cut and conv.inputs * conv.taps <= SHALLOW:
        s.apply(STORE_WHOLE_TILES, final, in_text(plan.flat), tile.pixels)
    lay_out(s, layouts, local)
    stream_weights(s, conv, tile, panels, turns[-1], context.capabilities.core)
    for copy, line in lines.items():
        s.apply(SPLIT_BORDERS, copy, line)
    return s


def _shares_panels(plan: _Plan, context: KernelContext) -> bool:
    """Whether threads share out output channels, so that each reads weights of its own, instead of rows: where there are more
    weights than inputs, and threads get the same number of panels, or many."""
    data, weights = (count_elements(load.buffer) for load in (plan.conv.data, plan.conv.weights))
    panels = plan.conv.channels // plan.tile.width
    return weights > data and (panels % max(context.threads, 1) == 0 or panels >= MANY_PANELS * context.threads)
