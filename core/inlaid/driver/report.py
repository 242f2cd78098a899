"""Report on a partitioned model, with costs and border conversions."""

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
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.explain import explain
from inlaid.partitioning.report import Report
from inlaid.plugins import Region
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import DEFAULT, Settings
from inlaid_runtime.errors import InlaidError, InlaidWarning


def build_report(
    partitioned: Partitioned,
    candidates: Sequence[Candidate],
    registry: PluginRegistry,
    settings: Settings = DEFAULT,
    measured: Mapping[str, float] = MappingProxyType({}),
    schedules: bool = True,
) -> Report:
    """Report the placement of every operator with its reason, predicted costs, and conversions at region borders. With `schedules`,
    regions are lowered up to the choice of schedules, to list kernels with the generic schedule. Issues an `InlaidWarning` if a
    code generator fails to choose borders; compiling the model would raise the error."""
    bordered = None
    try:
        bordered = at_borders(partitioned, candidates, registry)
    except InlaidError as error:
        warnings.warn(f"the conversions at region borders are unknown: {error}", InlaidWarning, stacklevel=2)
    report = explain(partitioned, candidates, cost_model(settings, candidates, registry), measured, bordered)
    if not schedules:
        return report
    generic = {name: _generic(partitioned, name, candidates, registry, settings) for name in partitioned.regions}
    return replace(report, regions=tuple(replace(item, generic=generic[item.name]) for item in report.regions))


def _generic(
    partitioned: Partitioned, name: str, candidates: Sequence[Candidate], registry: PluginRegistry, settings: Settings
) -> tuple[str, ...]:
    """Describe the kernels of a region with the generic schedule. Returns () if the region cannot be lowered; compiling it raises
    the error."""
    target = candidates[partitioned.regions[name]].target
    region = Region(name, partitioned.module[name], target)
    try:
        schedules = schedules_of_region(region, DriverContext(target, registry, ops.TABLE, fusion=settings.fusion))
    except InlaidError:
        return ()
    return tuple(described(item, share) for item, share in generic_kernels(schedules))
