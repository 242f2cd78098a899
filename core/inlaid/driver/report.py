"""The report on a model that is cut into regions: with costs, and what its code generators want at borders."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inlaid.driver.build import at_borders
from inlaid.driver.placement import cost_model
from inlaid.errors import InlaidError, InlaidWarning
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.explain import explain
from inlaid.partitioning.report import Report
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import DEFAULT, Settings


def report_of(
    partitioned: Partitioned,
    takers: Sequence[Candidate],
    registry: PluginRegistry,
    settings: Settings = DEFAULT,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Report:
    """Where every operator went and why, what it is predicted to cost, and what is converted at borders. An `InlaidWarning`
    says so where a code generator cannot say what it wants: whoever compiles the model will see it fail."""
    stored = partitioned
    try:
        stored = at_borders(partitioned, takers, registry, settings).partitioned
    except InlaidError as error:
        warnings.warn(f"what is converted at the borders of regions is not known: {error}", InlaidWarning, stacklevel=2)
    return explain(partitioned, takers, cost_model(settings, takers, registry), measured, stored)
