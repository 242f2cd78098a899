"""Standalone targets, which have no host fallback: a model that the listed targets cannot run completely is refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inlaid.driver.prepare import FALLBACK
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate, named
from inlaid.partitioning.assignment import reason
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.errors import EXPLAIN, Remedy, Unsupported, dims_setting
from inlaid_runtime.types import type_vars

SHOWN = 3
"""Number of operators that an error names."""


def standalone(candidates: Sequence[Candidate], registry: PluginRegistry) -> Candidate | None:
    """Return the first standalone target of `candidates`, None if no target is standalone."""
    return next((candidate for candidate in candidates if registry.capabilities(candidate.target).standalone), None)


def on_fallback(candidates: Sequence[Candidate], partitioned: Partitioned, regions: Collection[str]) -> bool:
    """Test whether the fallback runs one of `regions`."""
    return any(candidates[partitioned.regions[name]].target.kind == FALLBACK for name in regions)


def check_standalone(partitioned: Partitioned, candidates: Sequence[Candidate], listed: int, registry: PluginRegistry) -> None:
    """Raise `Unsupported` if one of the listed targets, the first `listed` candidates, is standalone, and part of the model runs on
    none of them. The error names the operators and the reasons, or the control flow, which needs a host target."""
    alone = standalone(candidates[:listed], registry)
    if alone is None:
        return
    sizes = sorted({repr(size) for param in partitioned.module.main.params for size in type_vars(param.type)})
    fixed = Remedy.join("fix its sizes: ", dims_setting(dict.fromkeys(sizes)), "; ") if sizes and not alone.dynamic_dims else ""
    remedy = Remedy.join(fixed, "see all of it with ", EXPLAIN, f", or list a host target after {alone.target.kind} for the rest")
    for placement in partitioned.placements:
        calls = [call for claim in placement.claims if claim.target >= listed for call in reversed(claim.members)]
        if calls:
            assert isinstance(calls[0].callee, Operator)
            reasons = dict.fromkeys(reason(placement.annotated.verdicts[id(call)][candidates.index(alone)]) for call in calls)
            more = f" and {len(calls) - SHOWN} more" if len(calls) > SHOWN else ""
            raise Unsupported(
                f"{alone.target.kind} must run the whole model, but does not support {', '.join(map(named, calls[:SHOWN]))}"
                f"{more}: {'; '.join(list(reasons)[:SHOWN])}",
                operator=calls[0].callee.name,
                node=str(calls[0].span or ""),
                plugin=alone.plugin,
                remedy=remedy,
            )
    if not all(registry.capabilities(candidate.target).standalone for candidate in candidates[:listed]):
        return
    for name, function in partitioned.module.functions.items():
        branch = next((expr for expr in ir.post_order(function) if isinstance(expr, (ir.If, ir.Loop))), None)
        if branch is not None and name not in partitioned.regions:
            raise Unsupported(
                f"{alone.target.kind} must run the whole model, but does not support its control flow",
                operator="If" if isinstance(branch, ir.If) else "Loop",
                node=str(branch.span or ""),
                plugin=alone.plugin,
                remedy=remedy,
            )
