"""A region of the graph as a region program: kernels, calls in order, buffers with places.

Three stages, each of which has a frozen result: `choose` decides how every call is computed, `emit` makes kernels, calls and
buffers of that, and `place` puts these in order and into the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlaid.lowering.choose import Programs, RegionSource, choose, schedules
from inlaid.lowering.emit import Finish, Watch, emit
from inlaid.lowering.finish import finish
from inlaid.lowering.place import place
from inlaid.schedules.rule import KernelContext, ScheduleRule
from inlaid.tensor.region import KernelSchedule, RegionProgram

__all__ = ["RegionSource", "lower_region", "schedules_of"]


def lower_region(
    source: RegionSource,
    rules: Sequence[ScheduleRule],
    context: KernelContext,
    progress: Callable[[int, int], None] = lambda done, total: None,
    programs: Programs | None = None,
    finish: Finish = finish,
    watch: Watch | None = None,
) -> RegionProgram:
    """Lower a region. Equal kernels are built once, also those of regions that share `programs`: of the same rules, context and
    `finish`, which makes plain loops of scheduled kernels. `progress` is told how many expressions are done, and of how many,
    `watch` of every kernel that is scheduled.

    Raises `CompileError` naming operator and node.
    """
    known = {} if programs is None else programs
    decisions = choose(source, rules, context, known)
    scheduled = schedules(decisions, known, context.capabilities)
    emission = emit(source.function, decisions, context, known, finish, progress, watch)
    return place(source.name, source.function, emission, scheduled, context.capabilities.memory)


def schedules_of(source: RegionSource, rules: Sequence[ScheduleRule], context: KernelContext) -> tuple[KernelSchedule, ...]:
    """By which rules a region would be scheduled, without doing so. Raises as `lower_region` does."""
    programs: Programs = {}
    return schedules(choose(source, rules, context, programs), programs, context.capabilities)
