"""Lower a region of the graph to a region program: kernels, ordered calls, and placed buffers.

Three stages with immutable results: `choose` selects an implementation of every call, `emit` creates kernels, calls and buffers,
`plan_region` orders the calls and plans the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlaid.lowering.emission.emit import Begin, Finish, Watch, emit
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.memory.region_plan import plan_region
from inlaid.lowering.selection.choose import Programs, RegionSource, choose, schedules
from inlaid.passes.manager import RunPasses, run_passes
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelSchedule, RegionProgram
from inlaid.tensor.scheduling.rule import KernelContext, ScheduleRule

__all__ = ["RegionSource", "lower_region", "report_schedules"]


def lower_region(
    source: RegionSource,
    rules: Sequence[ScheduleRule],
    context: KernelContext,
    progress: Callable[[int, int], None] = lambda count, total: None,
    programs: Programs | None = None,
    finish: Finish = finish,
    watch: Watch | None = None,
    begin: Begin | None = None,
    shared: Sequence[ScheduleRule] = (),
    run: RunPasses[LoopProgram] = run_passes,
) -> RegionProgram:
    """Lower a region. Equal kernels are built once, also across regions that share `programs`. Such regions must have the same
    rules, context and `finish`, which lowers scheduled kernels to plain loops. `progress` is called with the number of expressions
    done and the total, `watch` with every scheduled kernel, `begin` with each finished kernel unless later steps may rewrite it.
    `shared` are as in `choose`; `run` runs the passes over kernels that are not scheduled.

    Raises `CompileError` naming operator and node.
    """
    cache = {} if programs is None else programs
    decisions = choose(source, rules, context, cache, shared)
    scheduled = schedules(decisions, cache, context.capabilities)
    emission = emit(source.function, decisions, context, cache, finish, progress, watch, begin, run)
    return plan_region(source.name, source.function, emission, scheduled, context.capabilities.memory, source.conditions)


def report_schedules(
    source: RegionSource, rules: Sequence[ScheduleRule], context: KernelContext, shared: Sequence[ScheduleRule] = ()
) -> tuple[KernelSchedule, ...]:
    """Report the schedule rules that `lower_region` would choose, without scheduling. Raises the errors of `lower_region`."""
    programs: Programs = {}
    return schedules(choose(source, rules, context, programs, shared), programs, context.capabilities)
