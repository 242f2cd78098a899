"""Compilation from a module to a package: the order of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inlaid import ops
from inlaid.driver.build import Progress, at_borders, build_regions
from inlaid.driver.candidates import build_candidate
from inlaid.driver.context import DriverContext
from inlaid.driver.donation import check_donated
from inlaid.driver.extents import check_extents
from inlaid.driver.fallback import with_fallback
from inlaid.driver.isolate import isolation
from inlaid.driver.placement import placement
from inlaid.driver.prepare import FALLBACK, graph_passes, prepare
from inlaid.driver.region import watch_region
from inlaid.driver.standalone import check_standalone
from inlaid.graph.ir import Module
from inlaid.partitioning import Partitioned, partition, verify_partition
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.control import absorb_control
from inlaid.passes.manager import Capture, Instrument, PassManager
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid.support.faults import reports_faults
from inlaid.tensor.ir import LoopProgram
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.package import Package

if TYPE_CHECKING:
    from inlaid_runtime.execution.executable import Executable

PARTITION = "partition"
"""Name of the partitioning step."""


def candidates_for(targets: Sequence[str], registry: PluginRegistry) -> tuple[Candidate, ...]:
    """Return the targets in order of priority, with the fallback last. Raises `TargetError` for a target that is not installed."""
    if not targets:
        raise CompileError("expected at least one target, got none", remedy="give one, such as x86")
    return with_fallback([build_candidate(registry.target(text), registry) for text in targets], registry)


@reports_faults
def cut(
    module: Module,
    targets: Sequence[str],
    registry: PluginRegistry | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
) -> tuple[Partitioned, tuple[Candidate, ...]]:
    """Run the graph passes and partition a module. `instruments` observe the passes. Raises `InputError` for invalid settings."""
    registry = registry or default_registry()
    candidates = candidates_for(targets, registry)
    module = prepare(module, candidates, FALLBACK, registry, instruments, settings.precision)
    partitioned = partition(module, candidates, placer=placement(settings, candidates, registry, FALLBACK))
    able = [registry.capabilities(candidate.target) for candidate in candidates]
    loops = [number for number, item in enumerate(able) if item.control_flow]
    branches = [number for number, item in enumerate(able) if item.branches]
    static = [number for number, item in enumerate(able) if not item.dynamic_dims]
    partitioned = absorb_control(partitioned, loops, branches, static)
    verify_partition(module, partitioned)
    return partitioned, candidates


@reports_faults
def after_step(
    module: Module, targets: Sequence[str], step: str, registry: PluginRegistry | None = None, settings: Settings = DEFAULT
) -> Module | tuple[LoopProgram, ...]:
    """Compile a module up to the step `step` and return the IR: after a graph pass (the last run of `name`, or run n for `name:n`),
    after "partition", after a pass over regions, or all kernels after a pass over kernels. Raises `CompileError` for an unknown
    name, listing all names."""
    registry = registry or default_registry()
    passes = graph_passes(candidates_for(targets, registry), FALLBACK, registry, settings.precision)
    name, _, number = step.partition(":")
    runs = [index for index, item in enumerate(passes) if item.name == name]
    if runs and (not number or (number.isdigit() and 1 <= int(number) <= len(runs))):
        return PassManager(passes[: (runs[int(number) - 1] if number else runs[-1]) + 1]).run(module)
    partitioned, candidates = cut(module, targets, registry, settings=settings)
    if step == PARTITION:
        return partitioned.module
    capture, kernels = Capture[Module](step), Capture[LoopProgram](step)
    bordered = at_borders(partitioned, candidates, registry)
    bordered_module = bordered.partitioned.module
    for lower in (False, True):
        for symbol, index in bordered.partitioned.regions.items():
            region = bordered.region(symbol, bordered_module[symbol], candidates[index].target)
            context = DriverContext(region.target, registry, ops.TABLE, fusion=settings.fusion, instruments=[capture])
            watch_region(region, replace(context, kernel_instruments=[kernels]), lower)
        if capture.units:
            return Module({**bordered_module.functions, **{name: unit[name] for unit in capture.units for name in unit.functions}})
    if not kernels.units:
        names = dict.fromkeys((*(item.name for item in passes), PARTITION, *capture.names, *kernels.names))
        raise CompileError(f"unknown pass {step!r}", remedy=f"choose from {', '.join(names)}")
    return tuple(kernels.units)


@reports_faults
def compile_module(
    module: Module,
    targets: Sequence[str] = ("x86",),
    registry: PluginRegistry | None = None,
    progress: Progress | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
    keep: bool = True,
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """Compile with `build_package` and load the result on `devices`. Raises `Unsupported` if this machine cannot run it."""
    registry = registry or default_registry()
    package = build_package(module, targets, registry, progress, instruments, settings, keep)
    if progress is not None:
        progress("load", 0, 0)
    from inlaid_runtime.execution.executable import Executable  # on use: a command that only compiles does not run

    return Executable(package, registry=registry, devices=devices)


@reports_faults
def build_package(
    module: Module,
    targets: Sequence[str] = ("x86",),
    registry: PluginRegistry | None = None,
    progress: Progress | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
    keep: bool = True,
) -> Package:
    """Compile the entry function of a module for targets, in order of priority. With `keep`, the user's object cache is used.

    Raises `TargetError`, `CompileError`, `Unsupported` or `PluginError`, naming the operator, the source node and the plugin.
    """
    registry = registry or default_registry()
    report = progress or (lambda stage, completed, total: None)
    check_donated(module.main, settings.donate)
    check_extents(module)
    report("partition", 0, 0)
    with isolation(registry, settings, keep) as isolated:  # the worker process starts during partitioning
        partitioned, candidates = cut(module, targets, registry, instruments, settings)
        check_standalone(partitioned, candidates, len(targets), registry)
        return build_regions(partitioned, candidates, registry, report, settings, keep, isolated, instruments=instruments)
