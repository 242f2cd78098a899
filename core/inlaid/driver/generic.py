"""Kernels that run by the generic schedule although reductions take most of their time, or on one thread of many, many times slower
than others; and products of bytes that float32 is faster than."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from inlaid.errors import ScheduleWarning, dims_setting
from inlaid.lowering.wide_products import multiplies_bytes
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Region
from inlaid.schedules.dot import bytes_are_slow
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.rule import KernelContext
from inlaid.schedules.threads.serial import SerialRule
from inlaid.tensor.region import KernelSchedule

MOST = 0.5
"""Share of the predicted time of a region from which on a warning is worth it."""
LEAST = 2e-5
"""Predicted seconds below which it is not: whatever the schedule, such kernels are fast enough."""
NAMED = 3
"""How many kernels a warning names."""


def generic_kernels(schedules: Sequence[KernelSchedule]) -> tuple[tuple[KernelSchedule, float], ...]:
    """Kernels by the generic schedule whose predicted time is that of reductions, and those of which one thread runs loops.

    Each with its share of the predicted time of all, the greatest first. What only moves data is left out: the generic schedule
    suits it.
    """
    total = sum(item.seconds for item in schedules)
    found = [(item, item.seconds / total) for item in schedules if _is_slow(item)]
    return tuple(sorted(found, key=lambda pair: -pair[1]))


def _is_slow(item: KernelSchedule) -> bool:
    return item.rule == SerialRule.name or (item.reduces and item.rule in ("", GenericRule.name))


def described(item: KernelSchedule, share: float) -> str:
    """A kernel in words: its operators, their source nodes, its share of the predicted time, and whether one thread runs it."""
    alone = ", on one thread" if item.rule == SerialRule.name else ""
    return f"{', '.join(dict.fromkeys(item.operators))} at {', '.join(item.nodes) or '?'} ({share:.0%}{alone})"


def warn_of_generic(region: str, schedules: Sequence[KernelSchedule]) -> None:
    """Issue a `ScheduleWarning` where such kernels take most of the predicted time of a region."""
    found = generic_kernels(schedules)
    share = sum(part for _, part in found)
    if share <= MOST or sum(item.seconds for item, _ in found) < LEAST:
        return
    names = "; ".join(described(item, part) for item, part in found[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    dims = sorted({name for item, _ in found for name in item.dims if not name.startswith("?")})
    fixed = dims_setting(dict.fromkeys(dims))
    remedy = f"fix sizes that do not vary ({fixed.python}, {fixed.command}), or " if dims else ""
    text = f"region {region} is expected to be slow: kernels without a schedule of their own take {share:.0%} of its predicted time"
    warnings.warn(f"{text}: {names}{more}; {remedy}list a target first that has a schedule for them", ScheduleWarning, stacklevel=2)


def warn_of_bytes(region: Region, context: KernelContext) -> None:
    """Issue a `ScheduleWarning` where a region multiplies bytes and its target is predicted to multiply float32 faster."""
    if bytes_are_slow(context) and any(map(multiplies_bytes, region_operators(region.function))):
        text = f"region {region.symbol} is expected to be slow: {region.target} multiplies float32 faster than bytes"
        warnings.warn(f"{text}; compile the float32 model for it", ScheduleWarning, stacklevel=2)
