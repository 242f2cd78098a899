"""Kernels without a reduction over data that lies in blocks of channels: they stay in that layout, a block of channels a vector.

So element-wise operators and concatenations between convolutions cost no copy to another layout and back.
"""

from __future__ import annotations

from collections import Counter

from inlaid import arith
from inlaid.schedules.rule import Given, KernelContext, Offer
from inlaid.schedules.shape import (
    axis_loops,
    blocks_of,
    channel_block,
    layouts_by_name,
    merge_chains,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.layouts import with_layouts
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR, Layout


class BlockedRule:
    """One element-wise block, some of whose inputs lie in channel blocks."""

    name = "blocked"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines kernels that read channels in another order than they write them."""
        counts = Counter(item.layout for item in given if channel_block(item.layout))
        if not counts or len(program.outputs) != 1:
            return None
        schedule = Schedule(program)
        merge_chains(schedule)
        blocks = blocks_of(schedule.program)
        layout = counts.most_common(1)[0][0]
        if len(blocks) != 1 or not _fits(blocks[0], program, layout):
            return None
        output = program.outputs[0]
        layouts = {buffer: layout for buffer in (*program.inputs, output) if _blockable(buffer, len(output.shape), layout)}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(schedule, blocks[0].name, layout, layouts, context))


def _blockable(buffer: ir.Buffer, rank: int, layout: Layout) -> bool:
    return len(buffer.shape) == rank and rank > 2 and not layout.pads(buffer.shape) and buffer.shape[1] != 1


def _fits(block: ir.Block, program: ir.LoopProgram, layout: Layout) -> bool:
    """Whether the block stores at its own variables, and reads what is blocked at its own channel, moved or not."""
    output = program.outputs[0]
    if block.init is not None or not isinstance(block.body, ir.Store) or block.body.buffer is not output:
        return False
    if block.body.indices != tuple(item.var for item in block.iters) or not _blockable(output, len(block.iters), layout):
        return False
    channel = block.iters[1].var
    for node in ir.walk_exprs(block.body.value):
        if isinstance(node, ir.Load) and _blockable(node.buffer, len(output.shape), layout):
            found = arith.affine(node.indices[1], channel)
            if found is None or found[0] != arith.ONE:
                return False
    return True


def _schedule(s: Schedule, block: str, layout: Layout, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> ir.LoopProgram:
    """
    for n, channels, rows...:                 # parallel over n, runs of rows, channels
        lane vectorised
    """
    n, channel, *rest = axis_loops(s, block)
    assert channel is not None
    outer, lane = s.split(channel, (None, channel_block(layout)))
    s.reorder(*present(n, outer, *rest), lane)
    s.vectorize(lane)
    if context.threads != 1:
        share_rows(s, [n], rest[0] if rest else None, [outer], context.threads)
    return with_layouts(s.program, layouts_by_name(s.program, layouts))
