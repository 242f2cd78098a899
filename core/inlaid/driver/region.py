"""Compiles one region with its target's plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlaid.driver.context import DriverContext
from inlaid.driver.generic import warn_of_bytes, warn_of_generic
from inlaid.driver.target_passes import target_passes
from inlaid.graph.ir import Module
from inlaid.partitioning.borders import check_borders
from inlaid.partitioning.outline import region_operators
from inlaid.passes.manager import Instrument, PassManager, PluginPass, on_function
from inlaid.plugins import Borders, Level, Phase, Region
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.region import KernelSchedule, RegionLoop, RegionProgram
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.variants import joined
from inlaid_runtime.errors import PluginError
from inlaid_runtime.plugins.blame import blame


def source_nodes(region: Region) -> tuple[str, ...]:
    """Return the source nodes of a region, in order."""
    return tuple(dict.fromkeys(call.span.node for call in region_operators(region.function) if call.span is not None))


def request_borders(region: Region, registry: PluginRegistry) -> Borders | None:
    """Return the borders that a region's code generator asks for. Raises as `compile_region` does."""
    target = region.target
    plugin, nodes = registry.owner(target.kind), source_nodes(region)
    with blame(plugin, "the code generator", region.symbol, nodes):
        borders = registry.codegen(target).borders(_run_target_passes(region, registry))
        if borders is not None:
            check_borders(region.function, borders)
        return borders


def _run_target_passes(region: Region, registry: PluginRegistry, instruments: Sequence[Instrument[Module]] = ()) -> Region:
    """Run the target's passes on a region, as the entry function of a module. `instruments` get the region under its symbol."""
    symbol = region.symbol
    with blame(registry.owner(region.target.kind), "passes after partitioning", symbol, source_nodes(region)):
        passes = [
            PluginPass(item.plugin, on_function(item.step, symbol))
            for item in target_passes(region.target, Phase.AFTER_PARTITION, registry)
        ]
        return replace(region, function=PassManager(passes, instruments).run(Module({symbol: region.function}))[symbol])


def compile_region(region: Region, context: DriverContext) -> Artifact:
    """Compile a region into an artifact, with a variant for each further version of its target. Issues a `ScheduleWarning` for
    kernels predicted to be slow. Inlaid's errors from the plugin pass through; other exceptions become a `PluginError`, naming the
    plugin, the region and the source nodes."""
    targets = context.registry.versions(region.target)
    versions = [_compile(replace(region, target=target), replace(context, target=target)) for target in targets]
    warn_of_generic(region.symbol, versions[-1][1])  # once, for the most demanding version
    warn_of_bytes(region, replace(context, target=targets[-1]).kernels)
    return joined([artifact for artifact, _ in versions])


def schedules_of_region(region: Region, context: DriverContext) -> tuple[KernelSchedule, ...]:
    """Return the schedules chosen for the kernels of a region; empty for region-level targets. Raises as `compile_region` does."""
    registry = context.registry
    if registry.spec(region.target.kind).level is not Level.LOOP:
        return ()
    rewritten_region = _run_target_passes(region, registry)
    with blame(registry.owner(region.target.kind), "the schedules", region.symbol, source_nodes(region)):
        return context.schedules(rewritten_region)


def watch_region(region: Region, context: DriverContext, kernels: bool) -> None:
    """Run the passes over a region, observed by the context's instruments: its target's passes, the passes before lowering, and,
    with `kernels`, the passes over kernels up to those of the code generator. Raises as `compile_region` does."""
    rewritten_region, registry = _run_target_passes(region, context.registry, context.instruments), context.registry
    is_loop_level = registry.spec(region.target.kind).level is Level.LOOP
    with blame(registry.owner(region.target.kind), "the passes over kernels", region.symbol, source_nodes(region)):
        if kernels:
            registry.codegen(region.target).legalized(
                context.unit(rewritten_region) if is_loop_level else rewritten_region, context
            )
        elif is_loop_level:
            context.rewrite(rewritten_region)


def _compile(region: Region, context: DriverContext) -> tuple[Artifact, tuple[KernelSchedule, ...]]:
    """Compile one version of a region: run its target's passes, lower it for a loop-level target, and call the code generator. Also
    returns the schedules of its kernels, if any."""
    target, registry = region.target, context.registry
    plugin, nodes = registry.owner(target.kind), source_nodes(region)
    region = _run_target_passes(region, registry, context.instruments)
    with blame(plugin, "the code generator", region.symbol, nodes):
        codegen = registry.codegen(target)
        with codegen.compiling(context) as begin:
            unit = replace(context, begin=begin).unit(region) if registry.spec(target.kind).level is Level.LOOP else region
            context.report("generate", 0, 0)
            artifact = codegen.compile(unit, context)
        if not isinstance(artifact, Artifact) or artifact.symbol != region.symbol:
            raise PluginError(f"the code generator must return the artifact {region.symbol}, got {type(artifact).__name__}")
        program = unit.body if isinstance(unit, RegionLoop) else unit
        if not isinstance(program, RegionProgram):
            return artifact, ()
        return replace(artifact, constraints=(*program.constraints, *artifact.constraints)), program.schedules
