"""Compiler services for code generators: the implementation of `CompileContext`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from inlaid.driver.composition import choose_convolution, shared_rules, shared_transforms
from inlaid.graph.ir import Call, Function, Module, in_order, introduced_sizes, post_order
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import conditions_of
from inlaid.lowering.control import carries, loop_body, loop_of, lower_loop
from inlaid.lowering.kernels.finish import LoopPass, finish, without_prefetches
from inlaid.lowering.region import RegionSource, lower_region, schedules_of
from inlaid.lowering.rewrites.pipeline import rewrites
from inlaid.lowering.selection.updates import Exchange
from inlaid.lowering.steps import Step, StepProgram, steps_of
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.borders import stored_function, stored_type
from inlaid.partitioning.compose import dissolve
from inlaid.partitioning.outline import region_operators
from inlaid.partitioning.rules import check_rule
from inlaid.passes.manager import Instrument, PassManager, UnitPass
from inlaid.plugins import Accept, Form, Phase, Region, Reject, Scratch, Target
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.analysis.memory_scopes import check_scopes
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelSchedule, RegionLoop, RegionProgram
from inlaid.tensor.scheduling.by_hand import ByHandRule
from inlaid.tensor.scheduling.rule import KernelContext, ScheduleRule
from inlaid.tensor.scheduling.trace import Scheduled, replay_kernel
from inlaid_runtime.arith import Constraint
from inlaid_runtime.cache import Store, caches
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.records import dataclass, field, replace

Programs = dict[str, dict[Any, LoopProgram]]
"""Kernels of each target, by the source from which each was made: unscheduled and finished programs."""


def candidate_of(target: Target, registry: PluginRegistry) -> Candidate:
    """Return a target with its operator rules. Raises `PluginError` for invalid rules."""
    capabilities = registry.capabilities(target)
    dtypes, plugin = frozenset(capabilities.dtypes), registry.owner(target.kind)
    rules = registry.op_rules(target, check_rule)
    return Candidate(target, rules, dtypes, capabilities.dynamic_dims, plugin, capabilities.quantisation)


def _conditions_on_computed_sizes(original: Function, rewritten: Function) -> tuple[Constraint, ...]:
    """Return the conditions that a region which computes sizes states: its constraints, the preconditions of the original
    operators, which a rewrite may have removed, and those of the operators that kernels are made from."""
    if not any(map(introduced_sizes, post_order(rewritten.body))):
        return ()
    of_operators = conditions_of((*region_operators(original), *region_operators(rewritten)))
    return tuple({item.condition: item for item in reversed((*original.constraints, *of_operators))}.values())[::-1]


def _inside(region: Region) -> Region:
    """Return the loop's body if the region is a loop, otherwise the region."""
    loop = loop_of(region.function)
    return region if loop is None else Region(f"{region.symbol}.body", loop_body(region.function, loop), region.target)


@dataclass(frozen=True)
class DriverContext:
    """Implements `inlaid.plugins.CompileContext` for one target. `progress` is called for each step. Without `fusion`, every
    operator becomes a kernel. `programs` are shared by all regions of a target, `printed` by all regions. `instruments` observe the
    passes over a region, in a module with the region under its symbol; `kernel_instruments` observe the passes over kernels;
    `watch` gets the kernels' schedules; `begin` gets each finished kernel before its region is complete. `instructions` are the
    user's tensor intrinsics with emitters for this target."""

    target: Target
    registry: PluginRegistry
    operators: Mapping[str, Operator]
    progress: Callable[[str, int, int], None] = lambda step, done, total: None
    fusion: bool = True
    objects: Store = field(default_factory=lambda: caches().objects)
    programs: Programs = field(default_factory=dict)
    printed: dict[Any, Any] = field(default_factory=dict)
    instruments: Sequence[Instrument[Module]] = ()
    kernel_instruments: Sequence[Instrument[LoopProgram]] = ()
    instructions: Sequence[Any] = ()
    watch: Callable[[Scheduled], None] | None = None
    begin: Callable[[LoopProgram], object] | None = None

    def unit(self, region: Region) -> RegionProgram | RegionLoop:
        """Lower the region to the input of a loop-level code generator."""
        loop = loop_of(region.function)
        if loop is None:
            return self.lower(region)
        return lower_loop(region.symbol, region.function, loop, self._lower(_inside(region), carries(loop)))

    def lower(self, region: Region) -> RegionProgram:
        """Lower the region to loop programs: fuse, schedule each kernel by the target's rules or else by shared rules, then run the
        target's loop passes. Raises `ScheduleError` if buffers exceed the target's memory scopes."""
        return self._lower(region, lambda result, param: True)

    def _lower(self, region: Region, exchange: Exchange) -> RegionProgram:
        source = self._source(region)
        source = replace(source, conditions=_conditions_on_computed_sizes(region.function, source.function))
        rules, shared, context = self._rules()
        programs = self.programs.setdefault(str(self.target), {})
        early: tuple[LoopPass, ...] = self.registry.passes(self.target, Phase.BEFORE_PEELING)
        if context.capabilities.vector_bits and not context.capabilities.prefetch:
            early = (UnitPass("drop_prefetches", without_prefetches), *early)
        report = partial(self.progress, "lower")
        finished = partial(finish, own=early, instruments=self.kernel_instruments, able=context.capabilities)
        own = PassManager(self.registry.passes(self.target, Phase.LOOP), self.kernel_instruments)
        begin = None if own.passes else self.begin
        source = replace(source, exchange=exchange)
        program = lower_region(source, rules, context, report, programs, finished, self.watch, begin, shared)
        program = replace(program, kernels=tuple(map(own.run, program.kernels)))
        for kernel in program.kernels:
            check_scopes(kernel, context.capabilities.scopes)
        return program

    def schedules(self, region: Region) -> tuple[KernelSchedule, ...]:
        """Return the schedules chosen for the kernels of a region, or of its body if it is a loop."""
        rules, shared, context = self._rules()
        return schedules_of(self._source(_inside(region)), rules, context, shared)

    def replay(self, kernel: LoopProgram, trace: str) -> Scheduled:
        """Replay a trace on an unscheduled kernel. Raises as `replay_kernel`."""
        rules, _, context = self._rules()
        return replay_kernel(kernel, trace, rules, shared_transforms(context.capabilities), context)

    def rewrite(self, region: Region) -> None:
        """Run the rewrites of a region, or of its body if it is a loop, observed by the instruments."""
        self._source(_inside(region))

    def _rules(self) -> tuple[tuple[ScheduleRule, ...], tuple[ScheduleRule, ...], KernelContext]:
        """Return all schedule rules, those among them that targets share, and the kernel context for them."""
        context = self.kernels
        shared = shared_rules(context.capabilities)
        return (ByHandRule(), *self.registry.schedules(self.target), *shared), shared, context

    @property
    def kernels(self) -> KernelContext:
        """The context of schedule rules and cost models for the target."""
        capabilities = self.registry.capabilities(self.target)
        return KernelContext(capabilities, capabilities.cores, self.registry.intrinsics(self.target))

    def _source(self, region: Region) -> RegionSource:
        """Return a region after its rewrites, with its layouts."""
        context = self.kernels
        store = None if region.borders is None else partial(stored_function, borders=region.borders)
        steps = rewrites(context, dissolve, store, choose_convolution, self.fusion, self._takes)
        passes = PassManager(steps, self.instruments)
        module = passes.run(Module({region.symbol: region.function}))
        return RegionSource(region.symbol, module[region.symbol], supports=self._takes)

    @cached_property
    def _candidate(self) -> Candidate:
        return candidate_of(self.target, self.registry)

    def _takes(self, call: Call) -> bool:
        """Test whether the target accepts an operator for all sizes."""
        return isinstance(self._candidate.judge(call), Accept)

    def steps(
        self, region: Region, form: Form | None = None, scratch: Callable[[Step], Sequence[Scratch]] | None = None
    ) -> StepProgram:
        """Convert the region to steps over numbered buffers; values between steps are stored by `form`, and `scratch` states the
        temporary buffers of each step. Raises `Unsupported` for an operator that the target does not accept and for scratch that
        exceeds a memory scope, `PluginError` for a form that does not fit a type and for invalid scratch."""
        for expr in in_order(region.function.body):
            if isinstance(expr, Call) and isinstance(expr.callee, Operator):
                verdict = self._candidate.judge(expr)
                if isinstance(verdict, Reject):
                    raise Unsupported(verdict.reason, operator=expr.callee.name, node=str(expr.span or "") or None)
        outside = region.function if region.borders is None else stored_function(region.function, region.borders)
        inside = (lambda type_: type_) if form is None else (lambda type_: stored_type(type_, form(type_)))
        scopes = self.registry.capabilities(self.target).scopes
        return steps_of(region.symbol, region.function, self._candidate.rules, outside, inside, scratch, scopes)

    def operator(self, name: str) -> Operator:
        """Look up a canonical operator by name. Raises `CompileError` for an unknown name."""
        found = self.operators.get(name)
        if found is None:
            raise CompileError(f"unknown operator {name!r}")
        return found

    def report(self, step: str, done: int, total: int) -> None:
        """Forward the progress of a step."""
        self.progress(step, done, total)
