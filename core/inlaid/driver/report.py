"""The report on a model that is cut into regions: with costs, and what its code generators want at borders."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from inlaid import ops
from inlaid.driver.build import at_borders
from inlaid.driver.context import DriverContext
from inlaid.driver.generic import described, generic_kernels
from inlaid.driver.placement import cost_model
from inlaid.driver.region import schedules_of_region
from inlaid.errors import InlaidError, InlaidWarning
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.explain import explain
from inlaid.partitioning.report import Report
from inlaid.plugins import Region
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import DEFAULT, Settings


def report_of(
    partitioned: Partitioned,
    takers: Sequence[Candidate],
    registry: PluginRegistry,
    settings: Settings = DEFAULT,
    measured: Mapping[str, float] = MappingProxyType({}),
    schedules: bool = True,
) -> Report:
    """Where every operator went and why, what it is predicted to cost, and what is converted at borders; with `schedules`, which
    kernels run by the generic schedule, for which regions are lowered as far as the choice of schedules. An `InlaidWarning` says
    so where a code generator cannot say what it wants: whoever compiles the model will see it fail."""
    stored = partitioned
    try:
        stored = at_borders(partitioned, takers, registry).partitioned
    except InlaidError as error:
        warnings.warn(f"what is converted at the borders of regions is not known: {error}", InlaidWarning, stacklevel=2)
    report = explain(partitioned, takers, cost_model(settings, takers, registry), measured, stored)
    if not schedules:
        return report
    generic = {name: _generic(partitioned, name, takers, registry, settings) for name in partitioned.regions}
    return replace(report, regions=tuple(replace(item, generic=generic[item.name]) for item in report.regions))


def _generic(
    partitioned: Partitioned, name: str, takers: Sequence[Candidate], registry: PluginRegistry, settings: Settings
) -> tuple[str, ...]:
    """The kernels of a region that run by the generic schedule, in words. None where it cannot be lowered: whoever compiles it will
    see it fail."""
    target = takers[partitioned.regions[name]].target
    region = Region(name, partitioned.module[name], target)
    try:
        schedules = schedules_of_region(region, DriverContext(target, registry, ops.TABLE, fusion=settings.fusion))
    except InlaidError:
        return ()
    return tuple(described(item, share) for item, share in generic_kernels(schedules))
