"""Roofline model of timed runs: achieved rate over arithmetic intensity (Williams et al., CACM 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log2

from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.simulators.timing import Timeline, Timing

GIGA = 1e9


@dataclass(frozen=True)
class Limits:
    """Peak GEMM rate in operations per second (two per multiply-add) and read port bandwidth in bytes per second."""

    peak: float
    bandwidth: float

    @staticmethod
    def derive(config: Config, timing: Timing) -> Limits:
        """Return the limits of a configuration at a clock rate."""
        operations = 2 * config.batch * config.block * config.block
        return Limits(operations * timing.hertz / timing.gemm, config.bus_bytes * timing.hertz)

    def allowed(self, intensity: float) -> float:
        """Return the attainable rate in operations per second at an intensity in operations per byte."""
        return min(self.peak, self.bandwidth * intensity)


@dataclass(frozen=True)
class Achieved:
    """A run in the roofline. intensity: GEMM operations per byte of operands and results. rate: operations per second."""

    series: str
    name: str
    timeline: Timeline
    intensity: float
    rate: float

    @staticmethod
    def measure(series: str, name: str, timeline: Timeline, config: Config, timing: Timing) -> Achieved:
        """Compute intensity and rate of a run. They are 0 if the run transfers no bytes or takes no cycles."""
        operations = 2 * config.batch * config.block * config.block * timeline.gemm_uops
        transferred_bytes = sum(timeline.loaded.values()) + timeline.stored
        cycles = timeline.cycles or 0
        rate = operations * timing.hertz / cycles if cycles else 0.0
        return Achieved(series, name, timeline, operations / transferred_bytes if transferred_bytes else 0.0, rate)


@dataclass(frozen=True)
class Axes:
    """Logarithmic axes in pixels, in powers of two: intensities from 2^left to 2^right, rates from 2^bottom to 2^top GOP/s."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    top: int

    @staticmethod
    def around(points: list[Achieved], limits: Limits, width: int, height: int) -> Axes:
        """Choose axes that show all points and the ridge. They start at most at a quarter of the intensity and rate of the
        ridge."""
        drawn = [point for point in points if point.intensity and point.rate]
        ridge = limits.peak / limits.bandwidth
        intensities = [ridge / 4, ridge * 4, *(point.intensity for point in drawn)]
        rates = [limits.peak / 4, *(point.rate for point in drawn)]
        spread = floor(log2(min(intensities))), ceil(log2(max(intensities)))
        return Axes(width, height, *spread, floor(log2(min(rates) / GIGA)), ceil(log2(limits.peak * 1.2 / GIGA)))

    def x(self, intensity: float) -> float:
        """Return the distance of an intensity from the left edge in pixels."""
        return round(self.width * (log2(intensity) - self.left) / (self.right - self.left), 1)

    def y(self, rate: float) -> float:
        """Return the distance of a rate from the top edge in pixels."""
        return round(self.height * (self.top - log2(rate / GIGA)) / (self.top - self.bottom), 1)


def picture(
    runs: Mapping[str, Mapping[str, Timeline]], config: Config, timing: Timing, width: int, height: int
) -> dict[str, object]:
    """Return the template variables of a roofline plot. runs: timelines by series and name. Lines join runs of the same name."""
    limits = Limits.derive(config, timing)
    points = [
        Achieved.measure(series, name, timeline, config, timing)
        for series, named in runs.items()
        for name, timeline in named.items()
    ]
    axes = Axes.around(points, limits, width, height)
    drawn = [point for point in points if point.intensity and point.rate]
    ridge = limits.peak / limits.bandwidth
    corners = [2.0**axes.left, ridge, 2.0**axes.right]
    positions = {(point.series, point.name): (axes.x(point.intensity), axes.y(point.rate)) for point in drawn}
    lines = [
        [positions[series, name] for series in runs if (series, name) in positions] for name in {point.name: 0 for point in drawn}
    ]
    numbers = {series: number for number, series in enumerate(runs)}
    return {
        "width": width,
        "height": height,
        "peak": limits.peak / GIGA,
        "bandwidth": limits.bandwidth / GIGA,
        "series": list(runs),
        "roof": " ".join(f"{axes.x(corner)},{axes.y(limits.allowed(corner))}" for corner in corners),
        "lines": [" ".join(f"{x},{y}" for x, y in line) for line in lines if len(line) > 1],
        "points": [
            {
                "series": numbers[point.series],
                "name": point.name,
                "last": numbers[point.series] == len(runs) - 1,
                "x": positions[point.series, point.name][0],
                "y": positions[point.series, point.name][1],
                "label": f"{point.name}, {point.series}: {point.rate / GIGA:.1f} GOP/s at {point.intensity:.0f} OP/byte",
            }
            for point in drawn
        ],
        "intensities": [(axes.x(2.0**power), f"{2.0**power:g}") for power in range(axes.left, axes.right + 1)],
        "rates": [(axes.y(2.0**power * GIGA), f"{2.0**power:g}") for power in range(axes.bottom, axes.top + 1)],
        "rows": [
            {
                "series": point.series,
                "name": point.name,
                "cycles": f"{point.timeline.cycles:,}",
                "utilization": f"{100 * point.timeline.utilization:.1f} %",
                "intensity": f"{point.intensity:.0f}",
                "rate": f"{point.rate / GIGA:.1f}",
                "roof": f"{100 * point.rate / limits.allowed(point.intensity):.0f} %" if point.intensity else "",
            }
            for point in points
        ],
    }
