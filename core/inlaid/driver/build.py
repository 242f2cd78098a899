"""Builds a package from a partitioned module: regions are compiled by code generators, and the entry function becomes a plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from inlaid import ops
from inlaid.driver.context import DriverContext, Programs
from inlaid.driver.donation import warn_of_unused
from inlaid.driver.fallback import with_fallback, without
from inlaid.driver.isolate import Isolated, isolation
from inlaid.driver.prepare import FALLBACK
from inlaid.driver.region import compile_region, request_borders, source_nodes
from inlaid.driver.standalone import on_fallback, standalone
from inlaid.graph import ir
from inlaid.graph.ir import Function
from inlaid.graph.scope_conditions import conditions_in, scope_constraints
from inlaid.graph.scopes import analyse
from inlaid.lowering.plans.build import build_plans
from inlaid.lowering.signature import constrained
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.borders import Bordered, with_borders
from inlaid.partitioning.outline import call_by_name, outlined, region_conditions
from inlaid.passes.manager import Instrument
from inlaid.plugins import Borders, Region
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import DEFAULT, Settings
from inlaid_runtime.arith import Dim
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import Program, RegionInfo
from inlaid_runtime.cache import MemoryCache, caches
from inlaid_runtime.errors import FallbackWarning, InlaidError
from inlaid_runtime.execution.package import Package

ALONE = "region0"
"""Name of the only region of `package_alone`."""
Progress = Callable[[str, int, int], None]
"""Progress callback: stage, completed steps, and total steps (0 if unknown)."""


def build_regions(
    partitioned: Partitioned,
    candidates: Sequence[Candidate],
    registry: PluginRegistry,
    report: Progress = lambda stage, completed, total: None,
    settings: Settings = DEFAULT,
    keep: bool = True,
    isolated_compiler: Isolated | None = None,
    bound: bool = False,
    instruments: Sequence[Instrument[ir.Module]] = (),
    instructions: Sequence[Any] = (),
) -> Package:
    """Compile a partitioned module into a package. Arguments and errors are as for `compile.build_package`.

    With `isolated_compiler`, a region that fails to compile is partitioned again for the other targets, with a `FallbackWarning`;
    if regions are `bound` to their targets, the error is raised instead. `instruments` observe the passes over regions, except in
    isolation. For `instructions`, see `CompileContext`.
    """
    artifacts: dict[str, Artifact] = {}
    functions: dict[str, Function] = {}
    infos = []
    failed: dict[str, frozenset[int]] = {}
    bordered = at_borders(partitioned, candidates, registry, isolated_compiler)
    partitioned = bordered.partitioned
    pending = list(partitioned.regions)
    disk_cache = caches(keep).objects
    objects = MemoryCache() if disk_cache.folder is None else disk_cache  # kernels shared by several regions are compiled once
    programs: Programs = {}
    printed: dict[Any, Any] = {}
    for name in pending:
        index = partitioned.regions[name]
        target = candidates[index].target
        region = bordered.region(name, partitioned.module[name], target)
        context = DriverContext(
            target, registry, ops.TABLE, partial(_report_step, report, name), settings.fusion, objects, programs, printed,
            instruments, instructions=instructions,
        )  # fmt: skip
        try:
            if isolated_compiler is None or target.kind == FALLBACK:
                artifacts[name] = compile_region(region, context)
            else:
                context.report("generate", 0, 0)
                artifacts[name] = isolated_compiler.compile(region)
        except InlaidError as error:
            failed_targets = failed.get(name, frozenset()) | {index}
            if bound or isolated_compiler is None or len(failed_targets) == len(candidates):
                raise
            partitioned, new_regions = without(partitioned, name, candidates, failed_targets, registry)
            if standalone(candidates, registry) and on_fallback(candidates, partitioned, new_regions):
                raise
            failed.update(dict.fromkeys(new_regions, failed_targets))
            pending += new_regions
            new_targets = ", ".join(dict.fromkeys(str(candidates[partitioned.regions[other]].target) for other in new_regions))
            warnings.warn(f"region {name} falls back from {target} to {new_targets}: {error}", FallbackWarning, stacklevel=2)
        else:
            functions[name] = region.function
            infos.append(RegionInfo(name, str(target), source_nodes(region)))
    artifacts = _with_constraints(artifacts, functions, partitioned)
    aliases = {name: artifacts[name].aliases for name in partitioned.regions}
    plans = build_plans(partitioned.module, aliases, donate=settings.donate, devices=_devices(partitioned, candidates, registry))
    warn_of_unused(plans.plans["main"], settings.donate)
    return Package(Program(plans.plans, tuple(infos)), tuple(artifacts.values()), plans.constants)


def _with_constraints(
    artifacts: Mapping[str, Artifact], functions: Mapping[str, Function], partitioned: Partitioned
) -> dict[str, Artifact]:
    """Add the conditions of each region's operators to its artifact, except those that the plan checks before it runs the region.
    `functions` has the regions' functions."""
    conditions_by_callee: dict[str, frozenset[Dim]] = {}
    args: dict[str, Sequence[ir.Expr]] = {}
    for name, function in partitioned.module.functions.items():
        if name not in partitioned.regions:
            scopes = analyse(function)
            constraints = scope_constraints(scopes)
            for scope in scopes.inner.values():
                for expr in scope.order:
                    if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar):
                        call_conditions, callee = conditions_in(scope, constraints), expr.callee.name
                        conditions_by_callee[callee], args[callee] = (
                            conditions_by_callee.get(callee, call_conditions) & call_conditions,
                            expr.args,
                        )
    constrained_artifacts = {}
    for name, artifact in artifacts.items():
        region = functions[name]
        computed_sizes = frozenset().union(*map(ir.introduced_sizes, ir.post_order(region.body)))
        conditions = region_conditions(region, args.get(name, ()))
        plan_conditions = conditions_by_callee.get(name, frozenset())
        missing = [
            item for item in conditions if item.condition not in plan_conditions or not computed_sizes.isdisjoint(item.sizes)
        ]
        constrained_artifacts[name] = constrained(artifact, region.params, missing)
    return constrained_artifacts


def _devices(partitioned: Partitioned, candidates: Sequence[Candidate], registry: PluginRegistry) -> dict[str, str]:
    """Map regions that run in device memory to their targets."""
    targets = {name: candidates[index].target for name, index in partitioned.regions.items()}
    return {name: str(target) for name, target in targets.items() if registry.capabilities(target).device_memory}


def at_borders(
    partitioned: Partitioned, candidates: Sequence[Candidate], registry: PluginRegistry, isolated_compiler: Isolated | None = None
) -> Bordered:
    """Insert the conversions at region borders that code generators ask for. Errors of plugins pass through; raises `CompileError`
    if no target accepts a conversion."""
    return with_borders(partitioned, candidates, partial(_ask, candidates, registry, isolated_compiler))


def package_alone(
    function: Function, candidate: Candidate, registry: PluginRegistry, settings: Settings = DEFAULT, keep: bool = True
) -> Package:
    """Compile a function as a single region of a target, regardless of the target's rules. If the target stores inputs and results
    in another form but rejects conversions, the fallback target converts. Raises as `build_regions` does."""
    region = outlined(function, candidate.target)
    params = [ir.var(f"x{number}", param.type) for number, param in enumerate(function.params)]
    main = ir.function(params, call_by_name(ALONE, region, params))
    partitioned = Partitioned(ir.Module({"main": main, ALONE: region}), (), {ALONE: 0})
    candidates = with_fallback((candidate,), registry)
    with isolation(registry, settings, keep) as isolated_compiler:
        return build_regions(
            partitioned, candidates, registry, settings=settings, keep=keep, isolated_compiler=isolated_compiler, bound=True
        )


def _ask(
    candidates: Sequence[Candidate],
    registry: PluginRegistry,
    isolated_compiler: Isolated | None,
    name: str,
    function: Function,
    index: int,
) -> Borders | None:
    """Return the borders that a region's code generator asks for. In isolation, a code generator that fails gets default borders;
    its failure is reported when the region is compiled."""
    region = Region(name, function, candidates[index].target)
    if isolated_compiler is None or region.target.kind == FALLBACK:
        return request_borders(region, registry)
    try:
        return isolated_compiler.borders(region)
    except InlaidError:
        return None


def _report_step(report: Progress, region: str, step: str, completed: int, total: int) -> None:
    report(f"{step} {region}", completed, total)
