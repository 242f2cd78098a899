"""The schedule of kernels that no other rule for threads knows: a thread for each element."""

from __future__ import annotations

from inlaid import arith
from inlaid.arith import Var
from inlaid.errors import ScheduleError
from inlaid.schedules.rule import Given, KernelContext, Offer, Traced
from inlaid.schedules.shape import blocks_of, loop_extent, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR

BLOCKS, THREADS = "blockIdx.x", "threadIdx.x"


class EachRule:
    """Takes every kernel."""

    name = "each"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Row-major buffers throughout."""
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: _schedule(program, context)))


def _schedule(program: ir.LoopProgram, context: KernelContext) -> Schedule:
    s = Schedule(program)
    merge_chains(s)
    for block in blocks_of(s.program):
        bind_elements(s, block, context)
    return s


def bind_elements(s: Schedule, block: ir.Block, context: KernelContext) -> None:
    """Give each element that a block computes a thread; nothing where its iterations depend on one another, as those of a loop
    program of its own may."""
    threads = context.capabilities.threads
    assert threads is not None, "a rule for threads schedules for threads"
    loops = s.loops(block.name)
    spatial = {binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.SPATIAL}
    chosen: list[Var] = []
    for loop in loops:
        if loop not in spatial:
            break
        chosen.append(loop)
    if not chosen:
        return
    try:
        fused = s.fuse(*chosen) if len(chosen) > 1 else chosen[0]
        extent = loop_extent(s, fused)
        count = threads.block if not isinstance(extent, arith.Const) else min(threads.block, extent.value)
        outer, inner = s.split(fused, (None, max(count, 1)))
        s.bind(outer, BLOCKS)
        s.bind(inner, THREADS)
    except ScheduleError:
        return
