"""Where operators go: as the settings say, or as a lock does."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from inlaid.driver.measure import MeasuredCosts
from inlaid.errors import InputError, LockWarning, PlacementWarning
from inlaid.partitioning.annotate import Annotated, Candidate, Claim
from inlaid.partitioning.cost import CostModel
from inlaid.partitioning.lock import Lock, replay
from inlaid.partitioning.optimise import by_cost
from inlaid.partitioning.outline import Place, first_come
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import MEASURED, PLACEMENTS, PRIORITY, Settings

WORTH_TELLING = 1e-3
"""Share of the predicted time by which the best placement may be faster, from which on the user is told."""


def placement(settings: Settings, takers: Sequence[Candidate], registry: PluginRegistry, fallback: str) -> Place:
    """What decides where operators go. Where there is a lock, `LockWarning` tells what would go elsewhere without it. Raises
    `InputError` for a placement that there is not, or a lock that is none."""
    fresh = _fresh(settings, takers, registry, fallback)
    return replay(Lock.from_text(settings.lock), takers, fresh, _tell) if settings.lock else fresh


def _fresh(settings: Settings, takers: Sequence[Candidate], registry: PluginRegistry, fallback: str) -> Place:
    if settings.placement not in PLACEMENTS:
        raise InputError(f"there is no placement {settings.placement!r}", remedy=f"the placements are {', '.join(PLACEMENTS)}")
    if settings.placement == PRIORITY:
        return first_come
    costs = cost_model(settings, takers, registry)
    last = next((number for number, taker in enumerate(takers) if taker.target.kind == fallback), None)

    def place(name: str, annotated: Annotated) -> tuple[Claim, ...]:
        found = by_cost(annotated, costs, last)
        if found.gap > WORTH_TELLING:
            text = f"the solver ran out of time: a placement of {name} may be up to {found.gap:.1%} faster than this one"
            warnings.warn(text, PlacementWarning, stacklevel=2)
        return found.claims

    return place


def cost_model(settings: Settings, takers: Sequence[Candidate], registry: PluginRegistry) -> CostModel:
    """What says how long targets take: predicted, or measured where the settings say so."""
    capabilities = tuple(registry.capabilities(taker.target) for taker in takers)
    if settings.placement == MEASURED:
        return MeasuredCosts(capabilities, takers=tuple(takers), registry=registry, settings=settings)
    return CostModel(capabilities)


def _tell(differences: Sequence[str]) -> None:
    lines = "\n".join(differences)
    warnings.warn(f"without the lock, operators would go elsewhere:\n{lines}", LockWarning, stacklevel=2)
