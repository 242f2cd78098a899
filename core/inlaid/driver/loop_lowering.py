"""Lowering of regions to scheduled loop programs, by the schedule rules and loop passes of one target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from inlaid.driver.composition import choose_convolution, shared_rules, shared_transforms
from inlaid.driver.target_passes import target_passes
from inlaid.graph.ir import Function, Module, introduced_sizes, post_order
from inlaid.graph.scope_conditions import call_conditions
from inlaid.lowering.control import carries, find_loop, loop_body, lower_loop
from inlaid.lowering.kernels.finish import kernel_passes
from inlaid.lowering.region import RegionSource, lower_region, report_schedules
from inlaid.lowering.rewrites.pipeline import region_passes
from inlaid.lowering.selection.updates import Exchange
from inlaid.partitioning.borders import stored_function
from inlaid.partitioning.compose import dissolve
from inlaid.partitioning.outline import region_operators
from inlaid.passes.manager import Instrument, PassManager, RunPasses
from inlaid.passes.supported import Supports
from inlaid.plugins import Phase, Region, Target
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.analysis.memory_scopes import check_scopes
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelSchedule, RegionLoop, RegionProgram
from inlaid.tensor.scheduling.by_hand import ByHandRule
from inlaid.tensor.scheduling.rule import KernelContext, ScheduleRule
from inlaid.tensor.scheduling.trace import Scheduled, replay_kernel
from inlaid_runtime.arith import Constraint
from inlaid_runtime.records import dataclass, replace


def kernel_context(target: Target, registry: PluginRegistry) -> KernelContext:
    """Return the context of schedule rules and cost models for a target."""
    capabilities = registry.capabilities(target)
    return KernelContext(capabilities, capabilities.cores, registry.intrinsics(target))


@dataclass(frozen=True)
class LoopLowering:
    """Lowers regions of one target. `supports` tests whether the target accepts an operator for all sizes. The other fields are as
    in `DriverContext`; `programs` are those of the target."""

    target: Target
    registry: PluginRegistry
    context: KernelContext
    supports: Supports
    progress: Callable[[str, int, int], None]
    fusion: bool
    programs: dict[Any, LoopProgram]
    instruments: Sequence[Instrument[Module]]
    run_passes: RunPasses[LoopProgram]
    watch: Callable[[Scheduled], None] | None
    begin: Callable[[LoopProgram], object] | None

    def unit(self, region: Region) -> RegionProgram | RegionLoop:
        """Lower the region to the input of a loop-level code generator."""
        loop = find_loop(region.function)
        if loop is None:
            return self.lower(region)
        return lower_loop(region.symbol, region.function, loop, self.lower(_inside(region), carries(loop)))

    def lower(self, region: Region, exchange: Exchange = lambda result, param: True) -> RegionProgram:
        """Lower the region to loop programs: fuse, schedule each kernel by the target's rules or else by shared rules, then run the
        target's loop passes. `exchange` is as in `RegionSource`. Raises `ScheduleError` if buffers exceed the target's memory
        scopes."""
        source = self._source(region)
        source = replace(source, conditions=_conditions_on_computed_sizes(region.function, source.function), exchange=exchange)
        rules, shared = self._rules()
        capabilities = self.context.capabilities
        before_peeling = target_passes(self.target, Phase.BEFORE_PEELING, self.registry)
        report = partial(self.progress, "lower")
        finish = partial(self.run_passes, kernel_passes(capabilities, before_peeling))
        loop_passes = target_passes(self.target, Phase.LOOP, self.registry)
        begin = None if loop_passes else self.begin
        program = lower_region(
            source, rules, self.context, report, self.programs, finish, self.watch, begin, shared, self.run_passes
        )
        program = replace(program, kernels=tuple(self.run_passes(loop_passes, kernel) for kernel in program.kernels))
        for kernel in program.kernels:
            check_scopes(kernel, capabilities.scopes)
        return program

    def schedules(self, region: Region) -> tuple[KernelSchedule, ...]:
        """Return the schedules chosen for the kernels of a region, or of its body if it is a loop."""
        rules, shared = self._rules()
        return report_schedules(self._source(_inside(region)), rules, self.context, shared)

    def replay(self, kernel: LoopProgram, trace: str) -> Scheduled:
        """Replay a trace on an unscheduled kernel. Raises as `replay_kernel` does."""
        rules, _ = self._rules()
        return replay_kernel(kernel, trace, rules, shared_transforms(self.context.capabilities), self.context)

    def rewrite(self, region: Region) -> None:
        """Run the rewrites of a region, or of its body if it is a loop, observed by the instruments."""
        self._source(_inside(region))

    def _rules(self) -> tuple[tuple[ScheduleRule, ...], tuple[ScheduleRule, ...]]:
        """Return all schedule rules, and those among them that targets share."""
        shared = shared_rules(self.context.capabilities)
        return (ByHandRule(), *self.registry.schedules(self.target), *shared), shared

    def _source(self, region: Region) -> RegionSource:
        """Return a region after its rewrites, with its layouts."""
        store = None if region.borders is None else partial(stored_function, borders=region.borders)
        steps = region_passes(self.context, dissolve, store, choose_convolution, self.fusion, self.supports)
        module = PassManager(steps, self.instruments).run(Module({region.symbol: region.function}))
        return RegionSource(region.symbol, module[region.symbol], supports=self.supports)


def _conditions_on_computed_sizes(original: Function, rewritten: Function) -> tuple[Constraint, ...]:
    """Return the conditions on sizes that a region states, if it computes sizes: its constraints, the preconditions of the original
    operators, which a rewrite may have removed, and those of the operators that kernels are made from."""
    if not any(map(introduced_sizes, post_order(rewritten.body))):
        return ()
    operator_conditions = call_conditions((*region_operators(original), *region_operators(rewritten)))
    return tuple({item.condition: item for item in reversed((*original.constraints, *operator_conditions))}.values())[::-1]


def _inside(region: Region) -> Region:
    """Return the loop's body if the region is a loop, otherwise the region."""
    loop = find_loop(region.function)
    return region if loop is None else Region(f"{region.symbol}.body", loop_body(region.function, loop), region.target)
