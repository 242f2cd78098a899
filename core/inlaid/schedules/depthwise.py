"""Depthwise convolution with a channel multiplier over row-major images, such as the phases of a depthwise transposed convolution.

Each data channel is copied to flat lines with a zero halo (see `flat_conv`), so that vectors span the ends of lines. All results of
the channel are accumulated in registers and stored in flat lines, from which the epilogue reads them row by row.
"""

from __future__ import annotations

from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.direct_conv import DirectConv, find_conv
from inlaid.schedules.dot import find_factors
from inlaid.schedules.flat_conv import FlatAxis, fit_lines, flat_axes, flat_pixels, flatten
from inlaid.schedules.shape import axis_loops, inline_blocks, last_epilogue, present
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime.arith import ONE, product, unwrap
from inlaid_runtime.types import ROW_MAJOR

UNROLLED = 32
"""Maximum window elements that are unrolled. Of larger windows only the last axis is unrolled."""


class DepthwiseRule:
    """Schedules convolutions of groups with one data channel and fewer result channels than fill a vector."""

    name = "depthwise"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels other than depthwise convolutions, and images of one pixel."""
        capabilities = context.capabilities
        conv = find_conv(program, find_factors) if capabilities.vector_bits and capabilities.masks else None
        if conv is None or conv.inputs != 1 or conv.single_group:
            return None
        lanes = capabilities.vector_bits // (8 * conv.anchor.buffer.dtype.bytes)
        axes, (s, final) = flat_axes(conv), _with_epilogue(conv)
        if not axes or all(axis.size == ONE for axis in axes) or not _reads_own_sums(s.program, conv, final):
            return None
        lines = fit_lines(axes, lanes, capabilities.core.costs)
        layouts = (ROW_MAJOR,) * len(program.params)
        return Offer(layouts, Traced(lambda: _schedule(s.copy(), conv, final, lines, lanes, context)))


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
    line_bytes = max(conv.outputs * line_pixels * conv.anchor.buffer.dtype.bytes, 2 * image_pixels * conv.data.buffer.dtype.bytes)
    return line_bytes <= context.capabilities.thread_stack_bytes


def _schedule(
    s: Schedule, conv: DirectConv, final: str, axes: tuple[FlatAxis, ...], lanes: int, context: KernelContext
) -> Schedule:
    """Build the nest:

    for n, group:                             # parallel; lines that are not private are computed in parallel loops before
        flat = lines of the data channel
        for channel of the group, p:
            acc[lane] = 0
            for taps: acc += weights * flat   # unrolled, lane vectorized
            lines = acc
        for channel of the group, image: out = after(lines)
    """
    name = conv.anchor.block.name
    copy_block = flatten(s, name, conv.data.buffer.name, axes, "", lanes)
    store_block = s.cache_write(name, "register")
    outer_loops = [present(*axis_loops(s, block)[:2]) for block in (final, store_block, copy_block)]
    if is_private := _is_private(conv, axes, context):
        group = outer_loops[0].pop()
        outer_loops = [[*outer_loops[0], s.split(group, (None, conv.outputs))[0] if conv.outputs > 1 else group]]
        s.compute_at(store_block, outer_loops[0][-1])
    *_, pixels = s.loops(store_block)
    tile, lane = s.split(pixels, (None, lanes))
    s.vectorize(lane)
    s.compute_at(name, tile)
    taps = present(*axis_loops(s, name)[3:])
    lane = next(loop for loop in reversed(s.loops(name)) if loop not in taps)
    s.reorder(*taps, lane)
    for part in (name, *([s.decompose_reduction(name, taps[0])] if taps else ())):
        s.vectorize(s.loops(part)[-1])
    for tap in taps if conv.taps <= UNROLLED else taps[-1:]:
        s.unroll(tap)
    if is_private:
        s.compute_at(copy_block, outer_loops[0][-1])
    if context.threads != 1:
        for loops in outer_loops:
            s.parallel(s.fuse(*loops) if len(loops) > 1 else loops[0])
    s.apply(SPLIT_BORDERS, copy_block, s.loops(copy_block)[-1])
    return s
