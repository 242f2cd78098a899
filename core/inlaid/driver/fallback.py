"""Fallback targets: the target for operators that no listed target accepts, and repartitioning of a region that fails to
compile."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from inlaid.driver.candidates import build_candidate
from inlaid.driver.prepare import FALLBACK, prepare
from inlaid.graph import ir
from inlaid.graph.transform import transform
from inlaid.partitioning import Partitioned, partition, verify_partition
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.compose import dissolve
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.types import FunctionType

_MAIN = "main"


def with_fallback(candidates: Sequence[Candidate], registry: PluginRegistry) -> tuple[Candidate, ...]:
    """Append the fallback target if it is installed and not listed."""
    if FALLBACK not in registry.kinds() or any(candidate.target.kind == FALLBACK for candidate in candidates):
        return tuple(candidates)
    return (*candidates, build_candidate(registry.target(FALLBACK), registry))


def without(
    partitioned: Partitioned, name: str, candidates: Sequence[Candidate], failed: Collection[int], registry: PluginRegistry
) -> tuple[Partitioned, tuple[str, ...]]:
    """Repartition region `name` for the candidates whose indices are not in `failed`. The region becomes a function that calls the
    new regions. Also returns the names of the new regions. Raises `CompileError` for an operator that no other target accepts."""
    candidate_indices = [number for number in range(len(candidates)) if number not in failed]
    remaining_candidates = [candidates[number] for number in candidate_indices]
    region = partitioned.module[name]
    main = dissolve(ir.function(region.params, region.body))
    module = prepare(ir.Module({_MAIN: main}), remaining_candidates, FALLBACK, registry)
    repartitioned = partition(module, remaining_candidates)
    verify_partition(module, repartitioned)
    names = {old: name if old == _MAIN else f"{name}_{old}" for old in repartitioned.module.functions}
    functions = {names[old]: _renamed(function, names) for old, function in repartitioned.module.functions.items()}
    regions = {names[old]: candidate_indices[number] for old, number in repartitioned.regions.items()}
    other_regions = {symbol: number for symbol, number in partitioned.regions.items() if symbol != name}
    combined_module = ir.Module({**partitioned.module.functions, **functions})
    return replace(partitioned, module=combined_module, regions={**other_regions, **regions}), tuple(regions)


def _renamed(function: ir.Function, names: dict[str, str]) -> ir.Function:
    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if not isinstance(new, ir.GlobalVar):
            return new
        assert isinstance(new.type, FunctionType)
        return ir.global_var(names[new.name], new.type)

    changed = transform(function, visit)
    assert isinstance(changed, ir.Function)
    return changed
