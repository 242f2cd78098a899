"""The report on a model that is cut into regions: with costs, and what its code generators want at borders."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inlay.driver.build import at_borders
from inlay.driver.placement import cost_model
from inlay.errors import InlayError, InlayWarning
from inlay.partitioning import Partitioned
from inlay.partitioning.annotate import Candidate
from inlay.partitioning.explain import explain
from inlay.partitioning.report import Report
from inlay.plugins.registry import PluginRegistry
from inlay.settings import DEFAULT, Settings


def report_of(
    partitioned: Partitioned,
    takers: Sequence[Candidate],
    registry: PluginRegistry,
    settings: Settings = DEFAULT,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Report:
    """Where every operator went and why, what it is predicted to cost, and what is converted at borders. An `InlayWarning`
    says so where a code generator cannot say what it wants: whoever compiles the model will see it fail."""
    stored = partitioned
    try:
        stored = at_borders(partitioned, takers, registry, settings).partitioned
    except InlayError as error:
        warnings.warn(f"what is converted at the borders of regions is not known: {error}", InlayWarning, stacklevel=2)
    return explain(partitioned, takers, cost_model(settings, takers, registry), measured, stored)
