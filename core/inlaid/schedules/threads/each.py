"""Fallback schedule for grids of threads: one thread per element."""

from __future__ import annotations

from inlaid.schedules.shape import merge_chains
from inlaid.schedules.threads.elementwise import bind_vectors, block_lanes
from inlaid.schedules.threads.grid import bind_flat, device_threads, is_elementwise
from inlaid.schedules.threads.serial import runs_serially
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR


class EachRule:
    """Schedules any kernel whose elements are independent, as a fallback."""

    name = "each"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer row-major layouts. Declines kernels in which a single thread would run a loop."""
        scheduled = _schedule(program, context)
        if runs_serially(scheduled.program):
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: scheduled))


def _schedule(program: ir.LoopProgram, context: KernelContext) -> Schedule:
    s = Schedule(program)
    merge_chains(s)
    for block in collect_blocks(s.program) if not program.defines else ():
        s = bound_elements(s, block, context)
    return s


def bound_elements(s: Schedule, block: ir.Block, context: KernelContext) -> Schedule:
    """Bind the spatial loops of a block to the grid, one thread per element or vector.

    Returns the schedule unchanged if the iterations are not independent, which is possible in an opaque loop program."""
    threads, scheduled = device_threads(context), s.copy()
    spatial = {binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.SPATIAL}
    outer_loops: list[Var] = []
    for loop in scheduled.loops(block.name):
        if loop not in spatial:
            break
        outer_loops.append(loop)
    try:
        if is_elementwise(block):
            bind_vectors(scheduled, block, threads.block, lanes=block_lanes(block, threads.vector_bytes))
        elif outer_loops:
            bind_flat(scheduled, scheduled.fuse(*outer_loops) if len(outer_loops) > 1 else outer_loops[0], threads.block)
    except ScheduleError:
        return s
    return scheduled
