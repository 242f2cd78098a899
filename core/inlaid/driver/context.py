"""Compiler services for code generators: the implementation of `CompileContext`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from inlaid.driver.candidates import build_candidate
from inlaid.driver.loop_lowering import LoopLowering, kernel_context
from inlaid.driver.region_steps import region_steps
from inlaid.graph.ir import Call, Module
from inlaid.graph.operator import Operator
from inlaid.lowering.steps import Step, StepProgram
from inlaid.partitioning.annotate import Candidate
from inlaid.passes.manager import Instrument, Pass, PassManager, PluginPass
from inlaid.plugins import Accept, Form, Region, Scratch, Target
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelSchedule, RegionLoop, RegionProgram
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.scheduling.trace import Scheduled
from inlaid_runtime.cache import DiskCache, caches
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass, field

Programs = dict[str, dict[Any, LoopProgram]]
"""Kernels of each target, by the source from which each was made: unscheduled and finished programs."""


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
    progress: Callable[[str, int, int], None] = lambda step, completed, total: None
    fusion: bool = True
    objects: DiskCache = field(default_factory=lambda: caches().objects)
    programs: Programs = field(default_factory=dict)
    printed: dict[Any, Any] = field(default_factory=dict)
    instruments: Sequence[Instrument[Module]] = ()
    kernel_instruments: Sequence[Instrument[LoopProgram]] = ()
    instructions: Sequence[Any] = ()
    watch: Callable[[Scheduled], None] | None = None
    begin: Callable[[LoopProgram], object] | None = None

    def unit(self, region: Region) -> RegionProgram | RegionLoop:
        """Lower the region to the input of a loop-level code generator."""
        return self._loops.unit(region)

    def lower(self, region: Region) -> RegionProgram:
        """Lower the region to loop programs: fuse, schedule each kernel by the target's rules or else by shared rules, then run the
        target's loop passes. Raises `ScheduleError` if buffers exceed the target's memory scopes."""
        return self._loops.lower(region)

    def schedules(self, region: Region) -> tuple[KernelSchedule, ...]:
        """Return the schedules chosen for the kernels of a region, or of its body if it is a loop."""
        return self._loops.schedules(region)

    def replay(self, kernel: LoopProgram, trace: str) -> Scheduled:
        """Replay a trace on an unscheduled kernel. Raises as `replay_kernel` does."""
        return self._loops.replay(kernel, trace)

    def rewrite(self, region: Region) -> None:
        """Run the rewrites of a region, or of its body if it is a loop, observed by the instruments."""
        self._loops.rewrite(region)

    @property
    def kernels(self) -> KernelContext:
        """The context of schedule rules and cost models for the target."""
        return kernel_context(self.target, self.registry)

    def steps(
        self, region: Region, form: Form | None = None, scratch: Callable[[Step], Sequence[Scratch]] | None = None
    ) -> StepProgram:
        """Convert the region to steps over numbered buffers; values between steps are stored by `form`, and `scratch` states the
        temporary buffers of each step. Raises `Unsupported` for an operator that the target does not accept and for scratch that
        exceeds a memory scope, `PluginError` for a form that does not fit a type and for invalid scratch."""
        return region_steps(region, self._candidate, self.registry.capabilities(self.target).scopes, form, scratch)

    def operator(self, name: str) -> Operator:
        """Look up a canonical operator by name. Raises `CompileError` for an unknown name."""
        operator = self.operators.get(name)
        if operator is None:
            raise CompileError(f"unknown operator {name!r}")
        return operator

    def report(self, step: str, completed: int, total: int) -> None:
        """Forward the progress of a step."""
        self.progress(step, completed, total)

    def run_passes(self, passes: Sequence[Pass[LoopProgram]], kernel: LoopProgram) -> LoopProgram:
        """Run passes of the code generator on a kernel, observed by the kernel instruments."""
        if self.kernel_instruments:
            plugin = self.registry.owner(self.target.kind)
            passes = [PluginPass(plugin, step) for step in passes]
        return self._run(passes, kernel)

    def _run(self, passes: Sequence[Pass[LoopProgram]], kernel: LoopProgram) -> LoopProgram:
        return PassManager(passes, self.kernel_instruments).run(kernel)

    @cached_property
    def _candidate(self) -> Candidate:
        return build_candidate(self.target, self.registry)

    @cached_property
    def _loops(self) -> LoopLowering:
        return LoopLowering(
            self.target,
            self.registry,
            self.kernels,
            self._supports,
            self.progress,
            self.fusion,
            self.programs.setdefault(str(self.target), {}),
            self.instruments,
            self._run,
            self.watch,
            self.begin,
        )

    def _supports(self, call: Call) -> bool:
        """Test whether the target accepts an operator for all sizes."""
        return isinstance(self._candidate.judge(call), Accept)
