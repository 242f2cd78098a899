"""Direct convolution on vector CPUs, in channel-blocked layout, over register tiles of pixels times output channels.

Sums are dot products on vectors (see `dot`): multiply-adds of floats, or instructions for narrow operands. Activations have layout
N C/b H W b, with b a multiple of the dot product's group g; weights O/w C/r KH KW r/g w g, with w the output channels of a tile and
r input channels, which divide b. A tile is accumulated in registers over all input channels and taps; the epilogue is applied
before the only store. Output channels are padded to whole vectors. Input channels that do not fill groups, such as RGB, are copied
with zero padding first. Images of symbolic size, and images that are not 2-d, are flattened (see `flat_conv`), so that tiles are
full.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from inlaid.plugins.contract import Core
from inlaid.plugins.costs import CostConstants
from inlaid.schedules.bands import band_rows
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.conv_sizes import ConvSizes
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
from inlaid.schedules.dot import VectorDot, begin_sum, find_factors, find_vector_dots, use_instruction
from inlaid.schedules.flat_conv import (
    STORE_WHOLE_TILES,
    FlatAxis,
    flatten,
    in_text,
    join_pixels,
    needs_copy,
    padding_of,
    plan_pixels,
    skip_padding,
)
from inlaid.schedules.register_tile import fits, seconds, steps
from inlaid.schedules.shape import (
    accumulate_in_registers,
    channel_block,
    expected_extent,
    is_static,
    lay_out,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import multiplies_in_scopes
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime.arith import ONE, Var, affine
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _ConvTiling:
    """A convolution whose channels fill vectors, its dot product, and its tile. The input has `block` channels per block (0: not
    blocked); `run`: input channels of a run, whose weights may be contiguous. `padded`: input channels are padded by a copy. `cost`
    is in seconds. `flat` are the axes of flattened images. `is_small`: images have few pixels."""

    conv: DirectConv
    dot: VectorDot
    tile: ConvTile
    block: int
    run: int
    padded: bool
    cost: float
    decision: Decision
    flat: tuple[FlatAxis, ...] = ()
    is_small: bool = False


class ConvRule:
    """Schedules convolutions of float32 and float64, and of narrow operands by instructions, whose output channels per group fill
    vectors, or fill more than half a vector in a single group. For float images of symbolic size, and those that are not 2-d, 2
    output channels in a single group suffice, since there is no im2col. Tiles have at most `max_pixels` pixels."""

    name = "conv2d"

    def __init__(self, max_pixels: int | None = None) -> None:
        self._max_pixels = max_pixels

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Offer schedules. Declines other kernels, symbolic channels or windows, groups whose input channels do not fill the groups
        of an instruction, and empty results."""
        is_candidate = bool(context.capabilities.vector_bits or context.intrinsics) and 0 not in program.outputs[0].shape
        conv = find_conv(program, find_factors, context.intrinsics) if is_candidate else None
        if conv is None:
            return ()
        offers: list[Offer] = []
        # Offer shorter vectors only if they leave fewer lanes empty.
        for dot in _dots(conv, context):
            if (not offers or conv.outputs % dot.lanes == 0) and (plan := _plan(conv, dot, context, inputs, self._max_pixels)):
                offers.append(_offer(plan, context))
            if offers and conv.outputs % dot.lanes == 0:
                break
        return tuple(offers)

    def estimate(self, sizes: ConvSizes, context: KernelContext) -> float | None:
        """Predict the cycles of a convolution. None if the rule declines it, if a rule for a matrix unit takes it, or if no model
        is fitted: for a single input channel, and for narrow operands in images that are not 2-d."""
        lines = sizes.lines if sizes.sums_floats else sizes.positions
        if len(lines) != 2 or sizes.inputs < 2 or multiplies_in_scopes(*sizes.dtypes, context):
            return None
        dots = find_vector_dots(*sizes.dtypes, context)
        dot = next((dot for dot in dots if sizes.fills(dot.lanes)), None)
        if dot is None:
            return None
        core, count, depth = context.capabilities.core, -(-sizes.outputs // dot.lanes), dot.groups(sizes.inputs) * sizes.taps
        registers = _registers(dot, context)
        return sizes.images * choose_pixels(count, *lines, depth, dot.lanes, registers, core, None, dot.interleaves)[1]


def _dots(conv: DirectConv, context: KernelContext) -> list[VectorDot]:
    """Return the dot products that may compute a convolution, the widest first. Multiply-adds are left out for one input channel
    per group if there are several groups, which use `WindowRule`, if windows have one element, or if images are static and 2-d,
    which use im2col."""
    dots = find_vector_dots(conv.data.dtype.name, conv.weights.dtype.name, conv.anchor.buffer.dtype.name, context)
    excludes_floats = conv.inputs < 2 and (not conv.single_group or conv.taps < 2 or (conv.is_plane and is_static(conv.program)))
    return [dot for dot in dots if dot.interleaves or not excludes_floats]


def _offer(plan: _ConvTiling, context: KernelContext) -> Offer:
    layouts = _layouts(plan, context.capabilities.core.costs)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in plan.conv.program.params)
    shares = context.decide("share", ("panels", "rows"), "panels" if _shares_panels(plan, context) else "rows")
    decisions = (plan.decision,) if context.threads == 1 else (plan.decision, shares)
    panels = shares.value == "panels"
    return Offer(params, Traced(lambda: _schedule(plan, layouts, panels, context)), plan.cost, decisions=decisions)


def _plan(
    conv: DirectConv, dot: VectorDot, context: KernelContext, inputs: tuple[InputInfo, ...], limit: int | None
) -> _ConvTiling | None:
    """Plan the convolution with dot product `dot`, in tiles of at most `limit` pixels (None: any number); None if channels do not
    fill lanes and groups and cannot be padded."""
    if not _fills(conv, dot, context):
        return None
    padded, groups = conv.inputs % dot.group != 0, dot.groups(conv.inputs)
    block = _block(conv, dot, channel_block(inputs[conv.program.inputs.index(conv.source)].layout))
    filled_conv = fill_channels(conv, dot.lanes, 0 if padded else block, find_factors)
    if filled_conv is None:
        return None
    images, channels = map(expected_extent, filled_conv.anchor.spatial[:2])
    outputs, depth = channels if conv.single_group else conv.outputs, groups * conv.taps
    core, count = context.capabilities.core, outputs // dot.lanes
    registers = _registers(dot, context)
    takes_wide = dot.peels and not is_static(conv.program) and _takes_wide_tile(count, depth, dot.lanes, registers, core)

    def choose(height: int, width: int, max_pixels: int | None) -> tuple[ConvTile, Decision, float]:
        max_pixels = core.costs.wide_tile_pixels if takes_wide and max_pixels is not None else max_pixels
        max_pixels = max_pixels if limit is None else min(limit, max_pixels or limit)
        best, cycles = choose_pixels(count, height, width, depth, dot.lanes, registers, core, max_pixels, dot.interleaves)
        return *decide_tile(best, count, height, width, registers, max_pixels, context), cycles

    tile_choice = plan_pixels(filled_conv, choose, core.costs, padded, joins=dot.interleaves)
    if tile_choice is None:
        return None
    tile, decision, cycles, flat = tile_choice
    cost = seconds(images * channels // outputs * cycles, context.capabilities)
    run = gcd(block, groups * dot.group) if block else 1
    return _ConvTiling(filled_conv, dot, tile, block, run, padded, cost, decision, flat, limit is not None)


def _fills(conv: DirectConv, dot: VectorDot, context: KernelContext) -> bool:
    """Test whether channels fill lanes and groups, or can be padded."""
    if conv.fills(dot.lanes):
        return conv.inputs % dot.group == 0 or conv.single_group
    if dot.interleaves or not conv.single_group or (conv.is_plane and is_static(conv.program)):
        return False
    # A single output channel is vectorized over pixels by another rule, if these are contiguous.
    step = affine(conv.data.indices[-1], conv.anchor.spatial[-1].var)
    vectorizes_pixels = conv.outputs == 1 and step is not None and step[0] == ONE
    return not vectorizes_pixels and 2 * dot.lanes <= context.capabilities.vector_bits // conv.anchor.buffer.dtype.bits


def _registers(dot: VectorDot, context: KernelContext) -> int:
    """Return the vector registers that tiles may use."""
    capabilities = context.capabilities
    return capabilities.vector_registers - (capabilities.core.costs.spare_registers if dot.interleaves else 0)


def _block(conv: DirectConv, dot: VectorDot, layout_block: int) -> int:
    """Choose the channels per block of the data; 0: not blocked. An instruction keeps the blocks of the data's layout if they are
    whole groups; otherwise blocks are whole groups, at most as many channels as a vector has lanes. A multiply-add also keeps the
    layout's blocks, except that blocks are vectors if the epilogue reads the data too, or if an unblocked layout's channels fill
    vectors."""
    if dot.interleaves:
        allowed = layout_block % dot.group == 0 and conv.inputs % dot.group == 0
        return layout_block if layout_block and allowed else gcd(dot.groups(conv.inputs) * dot.group, max(dot.lanes, dot.group))
    read_twice = any(node.buffer is conv.source for block in conv.anchor.after for node in _loads(block))
    return dot.lanes if read_twice or (not layout_block and conv.inputs % dot.lanes == 0) else layout_block


def _loads(block: ir.Block) -> list[ir.Load]:
    """Return the loads of an element-wise block."""
    assert isinstance(block.body, ir.Store)
    return [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]


def _takes_wide_tile(count: int, depth: int, lanes: int, registers: int, core: Core) -> bool:
    """Test whether, over flat images, tiles of few pixels and the most vectors are as fast as tiles of more pixels."""
    costs = core.costs
    max_depth = costs.wide_tile_share * core.l2_bytes / (4 * lanes * costs.tile_vectors)
    tile_fits = fits(costs.wide_tile_pixels, costs.tile_vectors, registers)
    return costs.deep <= depth <= max_depth and count % costs.tile_vectors == 0 and tile_fits


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def choose_pixels(
    count: int,
    height: int,
    width: int,
    depth: int,
    lanes: int,
    registers: int,
    core: Core,
    max_pixels: int | None = None,
    instruction: bool = False,
) -> tuple[ConvTile, float]:
    """Choose the tile of at most `max_pixels` pixels that minimizes cycles, for `count` vectors of output channels, with `depth`
    groups per sum; returns tile and cycles. `instruction`: data are broadcast by an instruction of their own."""
    best: tuple[float, int, ConvTile] | None = None
    crowded = instruction and any(4 * extent % core.alias_bytes == 0 for extent in (depth, count * lanes))
    # A tile of a single vector would not amortize the broadcast.
    amortizes = not instruction or all(count % vectors for vectors in range(2, core.costs.tile_vectors + 1))
    for tile in conv_tiles(count, height, width, lanes, registers, core.costs):
        size = tile.rows * tile.pixels
        if (max_pixels is not None and size > max_pixels) or (tile.vectors == 1 and not amortizes):
            continue
        lines, length = (1, height * width) if tile.pixels == width else (height, width)
        full_steps, edge_steps = (
            steps(extent, tile.vectors, lanes, depth, length > size, crowded, core) for extent in (size, length % size)
        )
        cycles = count // tile.vectors * lines * depth * (length // size * full_steps + (edge_steps if length % size else 0))
        if best is None or (cycles, -size) < best[:2]:
            best = cycles, -size, tile
    assert best is not None
    return best[2], best[0]


def _packs_runs(plan: _ConvTiling, costs: CostConstants) -> bool:
    """Test whether the weights of a run of input channels are contiguous."""
    return plan.dot.interleaves or plan.run >= costs.packed_run


def _layouts(plan: _ConvTiling, costs: CostConstants) -> dict[ir.Buffer, Layout]:
    """Return the layouts of parameters and intermediate buffers."""
    conv, runs = plan.conv, ((1, plan.run),) if _packs_runs(plan, costs) else ()
    layouts = {conv.weights.buffer: Layout((*runs, (0, plan.tile.width), *plan.dot.interleaved(1)))}
    if plan.block and not plan.padded:
        layouts[conv.data.buffer] = layouts[conv.source] = Layout(((1, plan.block),))
    return channel_layouts(conv, plan.tile, layouts)


def _schedule(plan: _ConvTiling, layouts: dict[ir.Buffer, Layout], share_panels: bool, context: KernelContext) -> Schedule:
    """Build the nest:

    for n, outer, y, x:                       # parallel: see `share_rows`
        acc[row, pixel, vector, lane] = 0
        for channels, ky, kx:
            prefetch a part of the next panel of weights
            for group of channels:
                acc += dot(data, weights)     # row, pixel and vector unrolled, lane vectorized
        out = after(acc)
    """
    s, conv, anchor, tile, dot = plan.conv.schedule.copy(), plan.conv, plan.conv.anchor, plan.tile, plan.dot
    costs, name, final = context.capabilities.core.costs, anchor.block.name, accumulate_in_registers(s, anchor)
    local_layouts = {} if anchor.after else {final: Layout(((1, tile.lanes),))}
    data, copies = conv.data.buffer.name, [block.name for block in anchor.before]
    if plan.padded:
        data = _pad_channels(s, plan)
        copies = [data]
    has_copy = bool(plan.flat) and (plan.padded or needs_copy(conv, plan.flat))
    # With several threads, tiles of all images are distributed, so that no tile is the last of its loop.
    cuts_lines = has_copy and dot.peels and len(plan.flat) == 1 and context.threads == 1
    if has_copy:
        copies = [flatten(s, name, data, plan.flat, final, tile.pixels, cuts_lines)]
    elif plan.flat:
        join_pixels(s, name, data, plan.flat, final)
    if plan.block and (plan.flat or plan.padded):
        local_layouts.update(dict.fromkeys(copies, Layout(((1, plan.block),))))
    line_loops: dict[str, Var | None] = {}
    for copy in copies:
        if plan.padded:
            _schedule_channels(s, copy, context)
        else:
            line_loops[copy] = schedule_padding(s, copy, plan.block, context)
    nest = tile_nest(s, conv, tile, final)
    # Bands were measured with multiply-adds alone.
    may_have_bands = dot.peels and not share_panels and nest.rows is not None
    band = band_rows(conv, tile, context.capabilities.core, context.threads) if may_have_bands else 0
    if band and nest.rows is not None:
        bands, _ = s.split(nest.rows, (None, band))
        s.reorder(bands, nest.panels)
        nest = replace(nest, rows=bands)
    uses_strips = (
        context.capabilities.vector_registers >= costs.strip_registers and context.threads == 1 and not is_static(conv.program)
    )
    if nest.rows is not None and dot.peels and (cuts_lines or uses_strips):
        s.annotate(nest.rows, REMAINDERS.name, int(cuts_lines))
    blocks, groups, part = _split_channels(s, plan, nest.channels, costs)
    outer = present(blocks, *nest.taps)
    s.reorder(*dict.fromkeys((*outer, *present(groups), *nest.pixels, nest.vector, nest.lane, *present(part))))
    begin_sum(s, name, outer[0], (*nest.pixels, nest.vector), nest.lane, dot)
    panels: Var | None = nest.panels
    if context.threads != 1:
        panels = share_rows(s, [nest.images], None if share_panels else nest.rows, [nest.panels], context.threads)
    if has_copy and dot.peels and not cuts_lines and conv.inputs * conv.taps <= costs.whole_tile_depth:
        s.apply(STORE_WHOLE_TILES, final, in_text(plan.flat), tile.pixels)
    lay_out(s, layouts, local_layouts)
    use_instruction(s, nest.lane, dot)
    stream_weights(s, conv, tile, panels, outer[-1], context.capabilities.core)
    for copy, line in line_loops.items():
        s.apply(SPLIT_BORDERS, copy, line)
    # Windows of neighboring elements read little padding, except in images of few pixels.
    may_skip = has_copy and dot.peels and not plan.padded and (plan.is_small or any(axis.dilation > 1 for axis in plan.flat))
    if may_skip and (padding := padding_of(anchor)):
        skip_padding(s, name, plan.flat, padding)
    return s


def _split_channels(
    s: Schedule, plan: _ConvTiling, channels: Var | None, costs: CostConstants
) -> tuple[Var | None, Var | None, Var | None]:
    """Split the loop over input channels into loops over runs, over the groups of a run, and over a group. The first two are the
    same loop if runs are not packed; the last is None for groups of one."""
    if channels is None or not _packs_runs(plan, costs):
        return channels, channels, None
    if not plan.dot.interleaves:
        blocks, groups = s.split(channels, (None, plan.run))
        return blocks, groups, None
    blocks, groups, part = s.split(channels, (None, plan.run // plan.dot.group, plan.dot.group))
    if plan.run <= costs.unrolled_groups * plan.dot.group:
        s.unroll(groups)
    return blocks, groups, part


def _shares_panels(plan: _ConvTiling, context: KernelContext) -> bool:
    """Test whether to distribute panels of output channels over threads instead of rows, so that each thread reads different
    weights: if there are more weights than inputs, and each thread gets an equal number of panels, or at least
    `conv_panels`. This was measured with multiply-adds; with an instruction, rows are distributed."""
    data, weights = (count_elements(load.buffer) for load in (plan.conv.data, plan.conv.weights))
    panels = plan.conv.channels // plan.tile.width
    is_even = panels % max(context.threads, 1) == 0 or panels >= context.capabilities.core.costs.conv_panels * context.threads
    return plan.dot.peels and weights > data and is_even


def _pad_channels(s: Schedule, plan: _ConvTiling) -> str:
    """Copy the data with zero-padded channels; the copy absorbs spatial padding. Returns the name of its buffer and block."""
    anchor, earlier_blocks = plan.conv.anchor, s.blocks
    (block,) = (block for block in collect_blocks(s.program) if block.name == anchor.block.name)
    inputs = next(item for item in block.iters if item.kind is ir.IterKind.REDUCTION)
    multiples = tuple(plan.dot.group if item is inputs else 1 for item in block.iters)
    s.pad(block.name, multiples, (plan.conv.weights.buffer.name,))
    (copy,) = (block for block in collect_blocks(s.program) if block.name not in earlier_blocks)
    for producer in anchor.before:
        s.compute_inline(producer.name)
    assert copy.writes[0].buffer.name == copy.name
    return copy.name


def _schedule_channels(s: Schedule, block: str, context: KernelContext) -> None:
    """Schedule a copy of few channels pixel by pixel."""
    n, channel, *image = s.loops(block)
    s.reorder(*image, channel)
    s.unroll(channel)
    if context.threads != 1:
        share_rows(s, [n], image[0], [], context.threads)
