"""Image sampling at data-dependent positions on vector CPUs: vectors hold the channels of one position."""

from __future__ import annotations

from inlaid.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    find_anchor,
    lay_out,
    mark_tile,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout


class SampleRule:
    """Schedules out[n, c, ...] = reduction of x[n, c, data-dependent indices], optionally with weights equal for all channels."""

    name = "sample"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines symbolic channels, channels that do not fill vectors, and symbolic numbers of taps."""
        anchor = find_anchor(program)
        if anchor is None or not context.capabilities.vector_bits or len(anchor.spatial) < 3 or not _samples(anchor):
            return None
        channels = anchor.spatial[1].extent
        lanes = context.capabilities.vector_bits // (8 * anchor.buffer.dtype.bytes)
        if isinstance(channels, arith.Const) and channels.value % lanes and channels.value % (lanes // 2) == 0:
            lanes //= 2
        if not isinstance(channels, arith.Const) or channels.value % lanes:
            return None
        rank, outputs = len(anchor.spatial), {region.buffer for block in (anchor.block, *anchor.after) for region in block.writes}
        channel_buffers = {node.buffer for block in (anchor.block, *anchor.after) for node in _channel_loads(block)} | outputs
        channel_layouts = {buffer: Layout(((1, lanes),)) for buffer in channel_buffers if len(buffer.shape) == rank}
        layouts = tuple(channel_layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(layouts, Traced(lambda: _schedule(Schedule(program), anchor, channel_layouts, lanes, context)))


def _channel_loads(block: ir.Block) -> list[ir.Load]:
    """Return the loads of a block that depend on the channel, which is the block's second iteration variable."""
    assert isinstance(block.body, ir.Store)
    return [
        node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) and block.iters[1].var in node.free_vars()
    ]


def _samples(anchor: Anchor) -> bool:
    """Test whether the kernel samples: it reads at data-dependent indices, and only the channel of the result."""
    for block in (anchor.block, *anchor.after):
        assert isinstance(block.body, ir.Store)
        spatial = tuple(item.var for item in block.iters if item.kind is ir.IterKind.SPATIAL)
        if len(spatial) != len(anchor.spatial) or block.body.indices != spatial:
            return False
        for node in _channel_loads(block):
            has_channel = [spatial[1] in arith.free_vars(index) for index in node.indices]
            if len(has_channel) < 2 or node.indices[1] != spatial[1] or sum(has_channel) > 1:
                return False
    taps = (item.extent for item in anchor.block.iters if item.kind is ir.IterKind.REDUCTION)
    if not all(isinstance(extent, arith.Const) for extent in taps):  # loops over taps are unrolled
        return False
    return any(arith.reads_data(index) for node in _channel_loads(anchor.block) for index in node.indices)


def _schedule(
    s: Schedule, anchor: Anchor, channel_layouts: dict[ir.Buffer, Layout], lanes: int, context: KernelContext
) -> Schedule:
    """Build the nest:

    for n, positions..., channels:            # parallel
        acc[lane] = identity
        for taps: acc = combine(acc, x)       # unrolled, lane vectorized
        out = after(acc)
    """
    window, final = anchor.block.name, accumulate_in_registers(s, anchor)
    n, channel, *position_loops = axis_loops(s, final)
    assert channel is not None
    outer, lane = s.split(channel, (None, lanes))
    s.reorder(*present(n, *position_loops, outer), lane)
    s.compute_at(window, outer)
    s.vectorize(lane)
    taps = present(*axis_loops(s, window)[len(anchor.spatial) :])
    lane = next(loop for loop in reversed(s.loops(window)) if loop not in taps)
    s.reorder(*taps, lane)
    init = s.decompose_reduction(window, taps[0]) if taps else window
    for block in dict.fromkeys((init, window)):
        mark_tile(s, *(loop for loop in s.loops(block) if loop in taps), s.loops(block)[-1])
    if context.threads != 1:
        share_rows(
            s,
            [n],
            present(*position_loops)[0] if present(*position_loops) else None,
            [*present(*position_loops)[1:], outer],
            context.threads,
        )
    registers = {} if anchor.after else {final: Layout(((1, lanes),))}
    lay_out(s, channel_layouts, registers)
    return s
