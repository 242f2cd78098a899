"""Compilation from a module to a package: the order of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inlaid.driver.build import Progress, build_regions
from inlaid.driver.candidates import build_candidate
from inlaid.driver.donation import check_donated
from inlaid.driver.extents import check_extents
from inlaid.driver.fallback import with_fallback
from inlaid.driver.isolate import isolation
from inlaid.driver.placement import placement
from inlaid.driver.prepare import FALLBACK, prepare
from inlaid.driver.standalone import check_standalone
from inlaid.graph.ir import Module
from inlaid.partitioning import Partitioned, partition, verify_partition
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.control import absorb_control
from inlaid.passes.manager import Instrument
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid.support.faults import reports_faults
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.package import Package

if TYPE_CHECKING:
    from inlaid_runtime.execution.executable import Executable


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
    capabilities = [registry.capabilities(candidate.target) for candidate in candidates]
    loops = [number for number, item in enumerate(capabilities) if item.control_flow]
    branches = [number for number, item in enumerate(capabilities) if item.branches]
    static = [number for number, item in enumerate(capabilities) if not item.dynamic_dims]
    partitioned = absorb_control(partitioned, loops, branches, static)
    verify_partition(module, partitioned)
    return partitioned, candidates


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
    with isolation(registry, settings, keep) as isolated_compiler:  # the worker process starts during partitioning
        partitioned, candidates = cut(module, targets, registry, instruments, settings)
        check_standalone(partitioned, candidates, len(targets), registry)
        return build_regions(partitioned, candidates, registry, report, settings, keep, isolated_compiler, instruments=instruments)
