"""compile(): the one place that knows the order of the stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from inlay import ops
from inlay.artifact import Artifact
from inlay.artifact.plan import Program, RegionInfo
from inlay.cache import caches
from inlay.driver.context import DriverContext
from inlay.driver.prepare import graph_passes, prepare
from inlay.errors import CompileError, InlayError, InputError
from inlay.graph.ir import Function, Module
from inlay.lowering.plan import build_plans
from inlay.partitioning import Partitioned, partition, verify_partition
from inlay.partitioning.annotate import Candidate
from inlay.partitioning.cost import CostModel
from inlay.partitioning.outline import Place, first_come, region_operators
from inlay.passes.manager import Instrument, PassManager
from inlay.plugins import Level, Phase, Region, Target
from inlay.plugins.registry import PluginRegistry, default_registry
from inlay.runtime.executable import Executable
from inlay.runtime.package import Package
from inlay.settings import DEFAULT, PLACEMENTS, PRIORITY, Settings

FALLBACK = "reference"
"""The target that takes what no listed target does."""
PARTITION = "partition"
"""What cutting a model into regions is called among its steps."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many steps of it are done, and how many there are, 0 where that is not known."""


def candidates(targets: Sequence[str], registry: PluginRegistry) -> tuple[Candidate, ...]:
    """The targets in order of priority, the fallback last. Raises `TargetError` for one that is not installed."""
    if not targets:
        raise CompileError("no target is given", remedy="name at least one, such as x86")
    found = [registry.target(text) for text in targets]
    if FALLBACK in registry.kinds() and all(target.kind != FALLBACK for target in found):
        found.append(registry.target(FALLBACK))
    return tuple(_candidate(target, registry) for target in found)


def _candidate(target: Target, registry: PluginRegistry) -> Candidate:
    capabilities = registry.capabilities(target)
    return Candidate(target, tuple(registry.op_rules(target)), frozenset(capabilities.dtypes), capabilities.dynamic_dims)


def cut(
    module: Module,
    targets: Sequence[str],
    registry: PluginRegistry | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
) -> tuple[Partitioned, tuple[Candidate, ...]]:
    """Prepare a module for targets and cut it into their regions. `instruments` watch the graph passes. Raises `InputError` for a
    precision or placement that there is not."""
    registry = registry or default_registry()
    takers = candidates(targets, registry)
    module = prepare(module, takers, FALLBACK, registry, instruments, settings.precision)
    partitioned = partition(module, takers, place=_placement(settings.placement, takers, registry))
    verify_partition(module, partitioned)
    return partitioned, takers


def cost_model(takers: Sequence[Candidate], registry: PluginRegistry) -> CostModel:
    """What predicts the time that targets take."""
    return CostModel(tuple(registry.capabilities(taker.target) for taker in takers))


def _placement(name: str, takers: Sequence[Candidate], registry: PluginRegistry) -> Place:
    if name not in PLACEMENTS:
        raise InputError(f"there is no placement {name!r}", remedy=f"the placements are {', '.join(PLACEMENTS)}")
    if name == PRIORITY:
        return first_come
    from inlay.partitioning.optimise import by_cost

    costs = cost_model(takers, registry)
    last = next((number for number, taker in enumerate(takers) if taker.target.kind == FALLBACK), None)
    return lambda name, annotated: by_cost(annotated, costs, last).claims


def module_after(
    module: Module, targets: Sequence[str], step: str, registry: PluginRegistry | None = None, settings: Settings = DEFAULT
) -> Module:
    """A module as it is after one step of its way to regions for targets: the name of a graph pass (its last run, or run number n
    as `name:n`), or "partition". Raises `CompileError` for a name that is none, with all that are."""
    if step == PARTITION:
        return cut(module, targets, registry, settings=settings)[0].module
    registry = registry or default_registry()
    passes = graph_passes(candidates(targets, registry), FALLBACK, registry, settings.precision)
    name, _, number = step.partition(":")
    runs = [index for index, item in enumerate(passes) if item.name == name]
    if not runs or (number and not (number.isdigit() and 1 <= int(number) <= len(runs))):
        names = dict.fromkeys(item.name for item in passes)
        raise CompileError(f"there is no pass {step!r}", remedy=f"the passes are {', '.join((*names, PARTITION))}")
    last = runs[int(number) - 1] if number else runs[-1]
    return PassManager(passes[: last + 1]).run(module)


def compile_module(
    module: Module,
    targets: Sequence[str] = ("x86",),
    registry: PluginRegistry | None = None,
    progress: Progress | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
    keep: bool = True,
) -> Executable:
    """`build_package`, loaded. Raises `Unsupported` besides where this machine cannot run it."""
    registry = registry or default_registry()
    package = build_package(module, targets, registry, progress, instruments, settings, keep)
    if progress is not None:
        progress("load", 0, 0)
    return Executable(package, registry=registry)


def build_package(
    module: Module,
    targets: Sequence[str] = ("x86",),
    registry: PluginRegistry | None = None,
    progress: Progress | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
    keep: bool = True,
) -> Package:
    """Compile the entry of a module for targets, in order of priority. Without `keep` objects are neither taken from the user's
    cache nor put there.

    Raises `TargetError`, `CompileError`, `Unsupported` or `PluginError`, naming the operator, the node and the plugin.
    """
    registry = registry or default_registry()
    report = progress or (lambda stage, done, total: None)
    report("partition", 0, 0)
    partitioned, takers = cut(module, targets, registry, instruments, settings)
    return build_regions(partitioned, takers, registry, report, settings, keep)


def build_regions(
    partitioned: Partitioned,
    takers: Sequence[Candidate],
    registry: PluginRegistry,
    report: Progress = lambda stage, done, total: None,
    settings: Settings = DEFAULT,
    keep: bool = True,
) -> Package:
    """The package of a module that is cut into the regions of targets. Arguments and errors as of `build_package`."""
    plans = build_plans(partitioned.module, partitioned.regions)
    artifacts: dict[str, Artifact] = {}
    infos = []
    for name, index in partitioned.regions.items():
        target = takers[index].target
        region = Region(name, _own_passes(partitioned.module[name], target, registry), target)
        context = DriverContext(
            target, registry, ops.TABLE, partial(_of_region, report, name), settings.fusion, caches(keep).objects
        )
        artifacts[name] = _compile_region(region, context, report)
        nodes = dict.fromkeys(call.span.node for call in region_operators(region.function) if call.span is not None)
        infos.append(RegionInfo(name, str(target), tuple(nodes)))
    return Package(Program(plans.plans, tuple(infos)), tuple(artifacts.values()), plans.constants)


def _of_region(report: Progress, region: str, step: str, done: int, total: int) -> None:
    report(f"{step} {region}", done, total)


def _own_passes(function: Function, target: Target, registry: PluginRegistry) -> Function:
    """A region's function after the passes that its target asks for."""
    own = registry.passes(target, Phase.AFTER_PARTITION)
    return PassManager(own).run(Module({"main": function})).main if own else function


def _compile_region(region: Region, context: DriverContext, report: Progress) -> Artifact:
    target, registry = region.target, context.registry
    codegen = registry.codegen(target)
    try:
        unit = context.lower(region) if registry.spec(target.kind).level is Level.LOOP else region
        report(f"generate {region.symbol}", 0, 0)
        return codegen.compile(unit, context)
    except InlayError as error:
        error.plugin = error.plugin or registry.owner(target.kind)
        raise
