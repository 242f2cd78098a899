"""From regions to a package: each region is given to its target's code generator, the rest becomes a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from inlay import ops
from inlay.artifact import Artifact
from inlay.artifact.plan import Program, RegionInfo
from inlay.cache import caches
from inlay.driver.context import DriverContext
from inlay.errors import InlayError
from inlay.graph.ir import Function, Module
from inlay.lowering.plan import build_plans
from inlay.partitioning import Partitioned
from inlay.partitioning.annotate import Candidate
from inlay.partitioning.outline import region_operators
from inlay.passes.manager import PassManager
from inlay.plugins import Level, Phase, Region, Target
from inlay.plugins.registry import PluginRegistry
from inlay.runtime.package import Package
from inlay.settings import DEFAULT, Settings

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many steps of it are done, and how many there are, 0 where that is not known."""


def build_regions(
    partitioned: Partitioned,
    takers: Sequence[Candidate],
    registry: PluginRegistry,
    report: Progress = lambda stage, done, total: None,
    settings: Settings = DEFAULT,
    keep: bool = True,
) -> Package:
    """The package of a module that is cut into the regions of targets. Arguments and errors as of `compile.build_package`."""
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
