"""Choice of the placement algorithm by the settings, or by a lock."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from inlaid.partitioning.annotate import Annotated, Candidate, Claim
from inlaid.partitioning.cost import CostModel
from inlaid.partitioning.lock import Lock, replay
from inlaid.partitioning.optimize import by_cost
from inlaid.partitioning.outline import Placer, first_come
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import MEASURED, PLACEMENTS, PRIORITY, Settings
from inlaid_runtime.errors import InputError, LockWarning, PlacementWarning

WORTH_TELLING = 1e-3
"""Relative gap to the optimal placement above which the user is warned."""


def placement(settings: Settings, candidates: Sequence[Candidate], registry: PluginRegistry, fallback: str) -> Placer:
    """Return the placement algorithm. With a lock, `LockWarning` lists the operators that would be placed elsewhere without it.
    Raises `InputError` for an unknown placement or an invalid lock."""
    placer = _chosen_placer(settings, candidates, registry, fallback)
    return replay(Lock.from_text(settings.lock), candidates, placer, _tell) if settings.lock else placer


def _chosen_placer(settings: Settings, candidates: Sequence[Candidate], registry: PluginRegistry, fallback: str) -> Placer:
    if settings.placement not in PLACEMENTS:
        raise InputError(f"unknown placement {settings.placement!r}", remedy=f"choose from {', '.join(PLACEMENTS)}")
    if settings.placement == PRIORITY:
        return first_come
    costs = cost_model(settings, candidates, registry)
    fallback_index = next((number for number, candidate in enumerate(candidates) if candidate.target.kind == fallback), None)

    def assign_by_cost(name: str, annotated: Annotated) -> tuple[Claim, ...]:
        solution = by_cost(annotated, costs, fallback_index)
        if solution.gap > WORTH_TELLING:
            text = f"the solver reached its time limit: the optimal placement of {name} may be up to {solution.gap:.1%} faster"
            warnings.warn(text, PlacementWarning, stacklevel=2)
        return solution.claims

    return assign_by_cost


def cost_model(settings: Settings, candidates: Sequence[Candidate], registry: PluginRegistry) -> CostModel:
    """Return the cost model: measured if the placement is "measured", otherwise predicted."""
    capabilities = tuple(registry.capabilities(candidate.target) for candidate in candidates)
    if settings.placement == MEASURED:
        from inlaid.driver.measure import MeasuredCosts  # on use, as it imports the runtime

        return MeasuredCosts(capabilities, candidates=tuple(candidates), registry=registry, settings=settings)
    return CostModel(capabilities)


def _tell(differences: Sequence[str]) -> None:
    lines = "\n".join(differences)
    warnings.warn(f"without the lock, these operators would be placed elsewhere:\n{lines}", LockWarning, stacklevel=2)
