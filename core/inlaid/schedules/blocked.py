"""Schedule element-wise kernels in the channel-blocked layout of their inputs, with one block of channels per vector.

Element-wise operators and concatenations between convolutions then need no layout copies.
"""

from __future__ import annotations

from collections import Counter

from inlaid.schedules.shape import (
    axis_loops,
    channel_block,
    constant_extent,
    is_constant,
    lay_out,
    merge_chains,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout


class BlockedRule:
    """Schedules element-wise kernels with channel-blocked inputs. Inputs without channels, such as tables, keep their layout."""

    name = "blocked"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels that read channels in a different order than they write them."""
        counts = Counter(item.layout for item in inputs if channel_block(item.layout))
        if not counts or len(program.outputs) != 1:
            return None
        schedule = Schedule(program)
        merge_chains(schedule)
        layout = counts.most_common(1)[0][0]
        rank = len(program.outputs[0].shape)
        blocks = collect_blocks(schedule.program)
        if not all(_fits(block, rank, layout) for block in blocks) or not _is_blocked(blocks[-1], rank, layout):
            return None
        local_buffers = [stmt.buffer for stmt in ir.walk_stmts(schedule.program.body) if isinstance(stmt, ir.Alloc)]
        layouts = {buffer: layout for buffer in (*program.params, *local_buffers) if _blockable(buffer, rank, layout)}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        names = [block.name for block in blocks if _is_blocked(block, rank, layout)]
        if lanes := _table_lanes(schedule.program, layouts, context):
            return Offer(params, Traced(lambda: _schedule_table(schedule.copy(), names[0], lanes, layout, layouts, context)))
        return Offer(params, Traced(lambda: _schedule(schedule.copy(), names, layout, layouts, context)))


def _blockable(buffer: ir.Buffer, rank: int, layout: Layout) -> bool:
    return len(buffer.shape) == rank and rank > 2 and not layout.pads(buffer.shape) and buffer.shape[1] != 1


def _is_blocked(block: ir.Block, rank: int, layout: Layout) -> bool:
    """Test whether a block writes a channel-blocked buffer."""
    return isinstance(block.body, ir.Store) and _blockable(block.body.buffer, rank, layout)


def _fits(block: ir.Block, rank: int, layout: Layout) -> bool:
    """Test whether a block stores at its iteration variables and reads blocked buffers at its channel variable plus an offset."""
    if block.init is not None or not isinstance(block.body, ir.Store):
        return False
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]
    blocked_loads = [node for node in loads if _blockable(node.buffer, rank, layout)]
    if not _is_blocked(block, rank, layout):
        return not blocked_loads
    if block.body.indices != tuple(item.var for item in block.iters):
        return False
    channel = block.iters[1].var
    offsets = [arith.affine(node.indices[1], channel) for node in blocked_loads]
    return all(parts is not None and parts[0] == arith.ONE for parts in offsets)


def _schedule(s: Schedule, names: list[str], layout: Layout, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> Schedule:
    """Build the nest of each block in `names`:

    for n, channels, rows...:                 # parallel over n, runs of rows, channels
        lane vectorized
    """
    for name in names:
        n, channel, *image_loops = axis_loops(s, name)
        assert channel is not None
        outer, lane = s.split(channel, (None, channel_block(layout)))
        s.reorder(*present(n, outer, *image_loops), lane)
        s.vectorize(lane)
        if context.threads != 1:
            share_rows(s, [n], image_loops[0] if image_loops else None, [outer], context.threads)
    lay_out(s, layouts)
    return s


def _table_lanes(program: ir.LoopProgram, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> int:
    """Return the lanes of the vectors, whole or half, that the bytes of a row fill, for a kernel that only looks up the bytes of
    one tensor in a table. 0 for any other kernel, and if rows fill neither."""
    block, *other_blocks = collect_blocks(program)
    assert isinstance(block.body, ir.Store)
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]
    tables = [node for node in loads if node.indices and isinstance(node.indices[0], arith.Opaque)]
    is_elementwise = all(node.indices == block.body.indices and node.dtype.bytes == 1 for node in loads if node not in tables)
    if other_blocks or len(loads) != 2 or len(tables) != 1 or not is_elementwise or not is_constant(*block.iters):
        return 0
    row = constant_extent(block.iters[-1]) * channel_block(layouts[block.body.buffer])
    widest = context.capabilities.vector_bits // 8
    return next((lanes for lanes in (widest, widest // 2) if lanes and row % lanes == 0), 0)


def _schedule_table(
    s: Schedule, name: str, lanes: int, layout: Layout, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> Schedule:
    """Build the nest:

    for bytes in memory, in vectors:          # parallel
        lane vectorized
    """
    n, channel, *image_loops = axis_loops(s, name)
    assert channel is not None
    outer, lane = s.split(channel, (None, channel_block(layout)))
    loops = present(n, outer, *image_loops, lane)
    s.reorder(*loops)
    vectors, lane = s.split(s.fuse(*loops), (None, lanes))
    s.vectorize(lane)
    if context.threads != 1:
        s.parallel(vectors)
    lay_out(s, layouts)
    return s
