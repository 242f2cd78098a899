"""Detects code that is predicted to be slow. Reductions with the generic schedule, and kernels on one thread of many, are many
times slower than kernels with a specific schedule. int8 products may be slower than float32 products."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from inlaid.lowering.rewrites.wide_products import multiplies_bytes
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Region
from inlaid.tensor.region import KernelSchedule, Utilization
from inlaid.tensor.scheduling.dot_products import bytes_are_slow
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.errors import ScheduleWarning, dims_setting

WARNED_SHARE = 0.5
"""Share of a region's predicted time above which a warning is issued."""
LEAST = 2e-5
"""Predicted seconds of the reported kernels below which no warning is issued, since such kernels are fast with any schedule."""
NAMED = 3
"""Number of kernels that a warning names."""


def generic_kernels(schedules: Sequence[KernelSchedule]) -> tuple[tuple[KernelSchedule, float], ...]:
    """List reductions with the generic schedule, and kernels whose loops run on one thread.

    Each kernel has its share of the total predicted time; shares are in descending order. Kernels that only move data are omitted,
    since the generic schedule suits them.
    """
    total = sum(item.seconds for item in schedules)
    slow_kernels = [(item, item.seconds / total) for item in schedules if _is_slow(item)]
    return tuple(sorted(slow_kernels, key=lambda pair: -pair[1]))


def _is_slow(item: KernelSchedule) -> bool:
    return item.utilization is Utilization.SERIAL or (item.reduces and item.utilization is Utilization.SCALAR)


def described(item: KernelSchedule, share: float) -> str:
    """Describe a kernel: operators, source nodes, share of the predicted time, and whether it runs on one thread."""
    thread_note = ", on one thread" if item.utilization is Utilization.SERIAL else ""
    return f"{', '.join(dict.fromkeys(item.operators))} at {', '.join(item.nodes) or '?'} ({share:.0%}{thread_note})"


def warn_of_generic(region: str, schedules: Sequence[KernelSchedule]) -> None:
    """Issue a `ScheduleWarning` if `generic_kernels` take most of a region's predicted time."""
    slow_kernels = generic_kernels(schedules)
    share = sum(part for _, part in slow_kernels)
    if share <= WARNED_SHARE or sum(item.seconds for item, _ in slow_kernels) < LEAST:
        return
    names = "; ".join(described(item, part) for item, part in slow_kernels[:NAMED])
    more = f" and {len(slow_kernels) - NAMED} more" if len(slow_kernels) > NAMED else ""
    dims = sorted({name for item, _ in slow_kernels for name in item.dims if not name.startswith("?")})
    setting = dims_setting(dict.fromkeys(dims))
    remedy = f"fix sizes that do not vary ({setting.python}, {setting.command}), or " if dims else ""
    text = f"region {region} is expected to be slow: kernels with a generic schedule take {share:.0%} of its predicted time: "
    warnings.warn(f"{text}{names}{more}; {remedy}list first a target with a schedule for them", ScheduleWarning, stacklevel=2)


def warn_of_bytes(region: Region, context: KernelContext) -> None:
    """Issue a `ScheduleWarning` for a region with int8 products if its target is predicted to multiply float32 faster."""
    if bytes_are_slow(context) and any(map(multiplies_bytes, region_operators(region.function))):
        text = f"region {region.symbol} is expected to be slow: {region.target} is predicted to multiply float32 faster than int8"
        warnings.warn(f"{text}; compile the float32 model for it", ScheduleWarning, stacklevel=2)
