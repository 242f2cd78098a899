"""Convolution in groups of few channels over row-major images: grouped convolutions, and depthwise ones with a channel multiplier,
such as the phases of a depthwise transposed convolution.

The data channels of a group are copied to flat lines with a zero halo (see `flat_conv`), so that vectors span the ends of lines.
The results of several channels and vectors of pixels are accumulated in registers, and stored in flat lines, from which the
epilogue reads them row by row.
"""

from __future__ import annotations

from math import prod

from inlaid.plugins.contract import Core
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.conv_sizes import ConvSizes
from inlaid.schedules.direct_conv import DirectConv, find_conv
from inlaid.schedules.dot import find_factors
from inlaid.schedules.flat_conv import FlatAxis, fit_lines, flat_axes, flat_pixels, flatten
from inlaid.schedules.register_tile import Tile, fits
from inlaid.schedules.shape import axis_loops, inline_blocks, last_epilogue, mark_tile, present
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid_runtime.arith import IMAGE_SIDE, ONE, Var, product, size_hint, unwrap
from inlaid_runtime.types import ROW_MAJOR

UNROLLED = 32
"""Maximum window elements that are unrolled. Of larger windows only the last axis is unrolled."""
MAX_CHANNELS = 8
"""Maximum result channels in a register tile."""


class GroupsRule:
    """Schedules convolutions of groups whose result channels do not fill vectors."""

    name = "groups"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels other than grouped convolutions, images of one pixel, and 1x1 windows over several
        channels, which are matrix products."""
        capabilities = context.capabilities
        conv = find_conv(program, find_factors) if capabilities.vector_bits and capabilities.masks else None
        if conv is None or conv.single_group or _is_product(conv.inputs, conv.taps):
            return None
        lanes = capabilities.vector_bits // (8 * conv.anchor.buffer.dtype.bytes)
        axes, (s, final) = flat_axes(conv), _with_epilogue(conv)
        if not axes or all(axis.size == ONE for axis in axes) or not _reads_own_sums(s.program, conv, final):
            return None
        tile, tile_decision = _choose_tile(
            conv.inputs, conv.outputs, size_hint(unwrap(flat_pixels(axes)), IMAGE_SIDE), lanes, context
        )
        lines = fit_lines(axes, lanes, capabilities.core.costs)
        layouts = (ROW_MAJOR,) * len(program.params)
        return Offer(layouts, Traced(lambda: _schedule(s.copy(), conv, final, lines, tile, context)), decisions=(tile_decision,))

    def estimate(self, sizes: ConvSizes, context: KernelContext) -> float | None:
        """Predict the cycles of a grouped convolution in float32. None if the rule declines it, and for other element types, to
        which no model is fitted."""
        capabilities = context.capabilities
        if (
            not (capabilities.vector_bits and capabilities.masks and sizes.is_float32)
            or sizes.groups == 1
            or sizes.pixels == 1
            or _is_product(sizes.inputs, sizes.taps)
        ):
            return None
        *lines, length = sizes.positions
        # Neighboring lines share their halo.
        pixels = prod(lines) * (length + (sizes.window[-1] - 1) * sizes.dilations[-1] // (2 * sizes.strides[-1]))
        lanes, core = capabilities.vector_bits // 32, capabilities.core
        tile, _ = _choose_tile(sizes.inputs, sizes.outputs, pixels, lanes, context)
        sums = sizes.depth * sizes.outputs // tile.rows * _tile_cycles(tile, pixels, core)
        return sizes.images * (sums + core.costs.flat_line_cycles * (sizes.inputs + sizes.outputs) * -(-pixels // lanes))


def _is_product(inputs: int, taps: int) -> bool:
    """Test whether a convolution with `inputs` data channels per group and `taps` elements of a window is a matrix product."""
    return inputs > 1 and taps == 1


def _choose_tile(inputs: int, outputs: int, pixels: int, lanes: int, context: KernelContext) -> tuple[Tile, Decision]:
    """Choose the register tile, and record it as a decision (vectors, rows): vectors of pixels, and result channels as rows. Of a
    single data channel, results are computed one channel at a time."""
    core, registers = context.capabilities.core, context.capabilities.vector_registers
    if inputs == 1:
        tiles = [Tile(lanes, 1, 1)]
    else:
        rows = max(rows for rows in range(1, MAX_CHANNELS + 1) if outputs % rows == 0 and fits(rows, 1, registers))
        widths = range(1, max(-(-pixels // lanes), 1) + 1)
        tiles = [Tile(lanes, vectors, rows) for vectors in widths if fits(rows, vectors, registers)]
    best = min(tiles, key=lambda tile: _tile_cycles(tile, pixels, core))
    decision = context.decide("tile", ((tile.vectors, tile.rows) for tile in tiles), (best.vectors, best.rows))
    return Tile(lanes, *decision.numbers), decision


def _tile_cycles(tile: Tile, pixels: int, core: Core) -> float:
    """Predict the cycles of a tile's result channels over an image per data element of the window: a step loads vectors of data,
    which are not aligned, and broadcasts a weight per channel."""
    loads = core.costs.unaligned_load * tile.vectors + tile.rows
    return -(-pixels // tile.width) * max(tile.rows * tile.vectors / core.units, core.latency, loads / core.units)


def _with_epilogue(conv: DirectConv) -> tuple[Schedule, str]:
    """Inline the epilogue into one block. Without an epilogue, add a block that copies the sums. Returns the schedule and the name
    of that block."""
    s, final = conv.schedule.copy(), last_epilogue(conv.anchor)
    inline_blocks(s, [block.name for block in conv.anchor.after if block.name != final])
    return s, s.cache_write(conv.anchor.block.name) if final is None else final


def _reads_own_sums(program: ir.LoopProgram, conv: DirectConv, final: str) -> bool:
    """Test whether block `final` reads only the sum of the element that it writes."""
    blocks = {block.name: block for block in collect_blocks(program)}
    sums, block = blocks[conv.anchor.block.name].writes[0].buffer, blocks[final]
    assert isinstance(block.body, ir.Store)
    iter_vars = tuple(item.var for item in block.iters)
    loads = (node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) and node.buffer is sums)
    return block.body.indices == iter_vars and all(node.indices == iter_vars for node in loads)


def _is_private(conv: DirectConv, axes: tuple[FlatAxis, ...], context: KernelContext) -> bool:
    """Test whether the lines of a group are computed in the iteration that reads them. On several threads they must fit on a
    thread's stack."""
    if context.threads == 1:
        return True
    line_pixels, image_pixels = unwrap(flat_pixels(axes)), product(conv.data.buffer.shape[2:])
    if not isinstance(line_pixels, int) or not isinstance(image_pixels, int):
        return False
    # A flat copy with slack, or split into phases, takes less than twice the bytes of the padded data.
    copied_bytes = 2 * conv.inputs * image_pixels * conv.data.buffer.dtype.bytes
    line_bytes = max(conv.outputs * line_pixels * conv.anchor.buffer.dtype.bytes, copied_bytes)
    return line_bytes <= context.capabilities.thread_stack_bytes


def _schedule(
    s: Schedule, conv: DirectConv, final: str, axes: tuple[FlatAxis, ...], tile: Tile, context: KernelContext
) -> Schedule:
    """Build the nest:

    for n, group:                             # parallel; lines that are not private are computed in parallel loops before
        flat = lines of the group's data channels
        for channels of the group, p:
            acc[channel, vector, lane] = 0
            for data channels, taps:
                acc += weights * flat         # channel, vector and taps unrolled, lane vectorized
            lines = acc
        for channel of the group, image: out = after(lines)
    """
    name = conv.anchor.block.name
    copy_block = flatten(s, name, conv.data.buffer.name, axes, "", tile.width)
    store_block = s.cache_write(name, "register")
    outer_loops = [present(*axis_loops(s, block)[:2]) for block in (final, store_block, copy_block)]
    if is_private := _is_private(conv, axes, context):
        group = outer_loops[0].pop()
        outer_loops = [[*outer_loops[0], s.split(group, (None, conv.outputs))[0] if conv.outputs > 1 else group]]
        s.compute_at(store_block, outer_loops[0][-1])
    *channels, pixels = s.loops(store_block)
    rows: list[Var] = []
    if tile.rows > 1:
        panels, row = s.split(channels[-1], (None, tile.rows))
        outer_loops = [[panels if loop is channels[-1] else loop for loop in loops] for loops in outer_loops]
        rows = [row]
    outer, vector, lane = s.split(pixels, (None, tile.vectors, tile.lanes))
    s.reorder(outer, *rows, vector, lane)
    s.compute_at(name, outer)
    mark_tile(s, *rows, vector, lane)
    depth, *taps = axis_loops(s, name)[3:]
    reduced = present(depth, *taps)
    *rows, pixels = [loop for loop in s.loops(name)[s.loops(name).index(outer) + 1 :] if loop not in reduced]
    vector, lane = s.split(pixels, (tile.vectors, tile.lanes))
    s.reorder(*reduced, *rows, vector, lane)
    for part in (name, *([s.decompose_reduction(name, reduced[0])] if reduced else ())):
        mark_tile(s, *s.loops(part)[-2 - len(rows) :])
    for tap in present(*taps) if conv.taps <= UNROLLED else present(*taps)[-1:]:
        s.unroll(tap)
    if is_private:
        s.compute_at(copy_block, outer_loops[0][-1])
    if context.threads != 1:
        for loops in outer_loops:
            s.parallel(s.fuse(*loops) if len(loops) > 1 else loops[0])
    s.apply(SPLIT_BORDERS, copy_block, s.loops(copy_block)[-1])
    return s
