"""Direct float32 convolution on vector CPUs, in channel-blocked layout, over register tiles.

Activations have layout N C/v H W v, weights O/b C/v KH KW v b, with v lanes per vector and b output channels per panel, a multiple
of v. A tile of pixels times b channels is accumulated in registers over all input channels and taps; the epilogue is applied before
the only store. Images of symbolic size, and images that are not 2-d, are flattened (see `flat_conv`), so that tiles are full.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from inlaid.plugins.contract import Core
from inlaid.plugins.costs import CostConstants
from inlaid.schedules.bands import band_rows
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
    schedule_padding,
    stream_weights,
    tile_nest,
)
from inlaid.schedules.flat_conv import STORE_WHOLE_TILES, FlatAxis, flatten, in_text, join_pixels, needs_copy, plan_pixels
from inlaid.schedules.register_tile import fits, seconds, steps
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
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime.arith import ONE, Var, affine
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _ConvTiling:
    """A convolution whose channels fill vectors, and its tile. The input has `block` channels per block (0: not blocked); `run`
    channels are summed together. `cost` is in seconds. `flat` are the axes of flattened images."""

    conv: DirectConv
    tile: ConvTile
    block: int
    run: int
    cost: float
    decision: Decision
    flat: tuple[FlatAxis, ...] = ()


class ConvRule:
    """Schedules float32 convolutions whose output channels per group fill vectors, or fill more than half a vector in a single
    group. For symbolic sizes, and images that are not 2-d, 2 output channels in a single group suffice, since there is no
    im2col."""

    name = "conv2d"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Offer schedules. Declines kernels other than float32 convolutions, and symbolic channels or windows."""
        conv = find_conv(program, _product) if context.capabilities.vector_bits else None
        # A static 2-d image of one channel uses im2col; groups of one channel use WindowRule.
        if conv is None or (
            conv.inputs < 2 and (not conv.single_group or conv.taps < 2 or (conv.is_plane and is_static(conv.program)))
        ):
            return ()
        widest = context.capabilities.vector_bits // 32
        offers: list[Offer] = []
        # Half vectors only if they leave fewer lanes empty.
        for lanes in (widest, widest // 2):
            if lanes > 1 and (not offers or conv.outputs % lanes == 0) and (plan := _plan(conv, lanes, context, inputs)):
                offers.append(_offer(plan, context))
            if conv.outputs % lanes == 0:
                break
        return tuple(offers)


def _product(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    return anchor.product if anchor.buffer.dtype.name == "float32" else None


def _offer(plan: _ConvTiling, context: KernelContext) -> Offer:
    layouts = _layouts(plan, context.capabilities.core.costs)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in plan.conv.program.params)
    shares = context.decide("share", ("panels", "rows"), "panels" if _shares_panels(plan, context) else "rows")
    decisions = (plan.decision,) if context.threads == 1 else (plan.decision, shares)
    panels = shares.value == "panels"
    return Offer(params, Traced(lambda: _schedule(plan, layouts, panels, context)), plan.cost, decisions=decisions)


def _plan(conv: DirectConv, lanes: int, context: KernelContext, inputs: tuple[InputInfo, ...]) -> _ConvTiling | None:
    """Plan the convolution with vectors of `lanes`; None if its output channels neither fill vectors nor can be padded."""
    static = conv.is_plane and is_static(conv.program)
    # A single output channel is vectorized over pixels by another rule, if these are contiguous.
    step = affine(conv.data.indices[-1], conv.anchor.spatial[-1].var)
    single = conv.outputs == 1 and step is not None and step[0] == ONE
    half_vectors = conv.single_group and not static and not single and 2 * lanes <= context.capabilities.vector_bits // 32
    if not conv.fills(lanes) and not half_vectors:
        return None
    read_twice = any(node.buffer is conv.source for block in conv.anchor.after for node in _loads(block))
    block = channel_block(inputs[conv.program.inputs.index(conv.source)].layout)
    if read_twice or (not block and conv.inputs % lanes == 0):
        block = lanes
    filled = fill_channels(conv, lanes, block, _product)
    if filled is None:
        return None
    images, channels = map(expected_extent, filled.anchor.spatial[:2])
    outputs = channels if conv.single_group else conv.outputs
    depth, able, registers = conv.inputs * conv.taps, context.capabilities, context.capabilities.vector_registers
    costs = able.core.costs
    max_depth = costs.wide_tile_share * able.core.l2_bytes / (4 * lanes * costs.tile_vectors)
    small = not is_static(conv.program) and costs.deep <= depth <= max_depth
    wide = small and outputs // lanes % costs.tile_vectors == 0 and fits(costs.wide_tile_pixels, costs.tile_vectors, registers)

    def choose(height: int, width: int, max_pixels: int | None) -> tuple[ConvTile, Decision, float]:
        max_pixels = costs.wide_tile_pixels if wide and max_pixels is not None else max_pixels
        best, cycles = choose_pixels(outputs // lanes, height, width, depth, lanes, registers, able.core, max_pixels)
        return *decide_tile(best, outputs // lanes, height, width, registers, max_pixels, context), cycles

    tile_choice = plan_pixels(filled, choose, costs)
    if tile_choice is None:
        return None
    tile, decision, cycles, flat = tile_choice
    cost = seconds(images * channels // outputs * cycles, context.capabilities)
    return _ConvTiling(filled, tile, block, gcd(block, conv.inputs) if block else 1, cost, decision, flat)


def _loads(block: ir.Block) -> list[ir.Load]:
    """Return the loads of an element-wise block."""
    assert isinstance(block.body, ir.Store)
    return [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def choose_pixels(
    count: int, height: int, width: int, depth: int, lanes: int, registers: int, core: Core, max_pixels: int | None = None
) -> tuple[ConvTile, float]:
    """Choose the tile of at most `max_pixels` pixels that minimizes cycles, for `count` vectors of output channels; returns tile
    and cycles."""
    best: tuple[float, int, ConvTile] | None = None
    for tile in conv_tiles(count, height, width, lanes, registers, core.costs):
        size = tile.rows * tile.pixels
        if max_pixels is not None and size > max_pixels:
            continue
        lines, length = (1, height * width) if tile.pixels == width else (height, width)
        full_steps, edge_steps = (
            steps(extent, tile.vectors, lanes, depth, length > size, False, core) for extent in (size, length % size)
        )
        cycles = count // tile.vectors * lines * depth * (length // size * full_steps + (edge_steps if length % size else 0))
        if best is None or (cycles, -size) < best[:2]:
            best = cycles, -size, tile
    assert best is not None
    return best[2], best[0]


def _layouts(plan: _ConvTiling, costs: CostConstants) -> dict[ir.Buffer, Layout]:
    """Return the layouts of parameters and intermediate buffers."""
    conv, panel = plan.conv, (0, plan.tile.width)
    layouts = {conv.weights.buffer: Layout(((1, plan.run), panel) if plan.run >= costs.packed_run else (panel,))}
    if plan.block:
        layouts[conv.data.buffer] = layouts[conv.source] = Layout(((1, plan.block),))
    return channel_layouts(conv, plan.tile, layouts)


def _schedule(plan: _ConvTiling, layouts: dict[ir.Buffer, Layout], share_panels: bool, context: KernelContext) -> Schedule:
    """Build the nest:

    for n, outer, y, x:                       # parallel: see `share_rows`
        acc[row, pixel, vector, lane] = 0
        for channels, ky, kx:
            prefetch a part of the next panel of weights
            for channel:
                acc += data * weights         # row, pixel and vector unrolled, lane vectorized
        out = after(acc)
    """
    s, conv, anchor, tile = plan.conv.schedule.copy(), plan.conv, plan.conv.anchor, plan.tile
    costs = context.capabilities.core.costs
    name, final = anchor.block.name, accumulate_in_registers(s, anchor)
    local = {} if anchor.after else {final: Layout(((1, tile.lanes),))}
    copies = [block.name for block in anchor.before]
    copied = bool(plan.flat) and needs_copy(conv, plan.flat)
    # With several threads, tiles of all images are distributed, so that no tile is the last of its loop.
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
    nest = tile_nest(s, conv, tile, final)
    band = 0 if share_panels or nest.rows is None else band_rows(conv, tile, context.capabilities.core, context.threads)
    if band and nest.rows is not None:
        bands, _ = s.split(nest.rows, (None, band))
        s.reorder(bands, nest.panels)
        nest = replace(nest, rows=bands)
    blocks = c = nest.channels
    if c is not None and plan.run >= costs.packed_run:
        blocks, c = s.split(c, (None, plan.run))
    has_strip_registers = context.capabilities.vector_registers >= costs.strip_registers
    if nest.rows is not None and (cut or (has_strip_registers and context.threads == 1 and not is_static(conv.program))):
        s.annotate(nest.rows, REMAINDERS.name, int(cut))
    outer = present(blocks, *nest.taps)
    s.reorder(*dict.fromkeys((*outer, *present(c), *nest.pixels, nest.vector, nest.lane)))
    init = s.decompose_reduction(name, outer[0])
    for part in (init, name):
        mark_tile(s, *s.loops(part)[-2 - len(nest.pixels) :])
    panels: Var | None = nest.panels
    if context.threads != 1:
        rows = None if share_panels else nest.rows
        panels = share_rows(s, [nest.images], rows, [nest.panels], context.threads)
    if copied and not cut and conv.inputs * conv.taps <= costs.whole_tile_depth:
        s.apply(STORE_WHOLE_TILES, final, in_text(plan.flat), tile.pixels)
    lay_out(s, layouts, local)
    stream_weights(s, conv, tile, panels, outer[-1], context.capabilities.core)
    for copy, line in lines.items():
        s.apply(SPLIT_BORDERS, copy, line)
    return s


def _shares_panels(plan: _ConvTiling, context: KernelContext) -> bool:
    """Test whether to distribute panels of output channels over threads instead of rows, so that each thread reads different
    weights: if there are more weights than inputs, and each thread gets an equal number of panels, or at least
    `conv_panels`."""
    data, weights = (count_elements(load.buffer) for load in (plan.conv.data, plan.conv.weights))
    panels = plan.conv.channels // plan.tile.width
    return weights > data and (
        panels % max(context.threads, 1) == 0 or panels >= context.capabilities.core.costs.conv_panels * context.threads
    )
