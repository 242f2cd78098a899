"""Roofline chart of a profile: achieved rates of kernels against the limits of their targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from inlaid.plugins import Capabilities
from inlaid_runtime.execution.profile import Profile, Row

WIDTH, HEIGHT = 860, 480
"""Size of the drawing area, in pixels."""
COLORS = ("#2f7ed8", "#e0801f", "#2e9e6b", "#b04fc4", "#c9463d", "#8a7a1f")
LEAST_INTENSITY, LEAST_RATE = 2.0**-6, 1e6
"""Least intensity in FLOP/byte and least rate in FLOP/s at which the axes start."""


@dataclass(frozen=True)
class Point:
    """A kernel in the chart, in pixels. `limit` is the achieved share of the rate that its target's roof allows, 0 to 1."""

    row: Row
    x: float
    y: float
    radius: float
    color: str
    limit: float


@dataclass(frozen=True)
class Roof:
    """The roof of a target. `line` is its polyline in pixels; `peak` is in FLOP/s, `bandwidth` in bytes/s."""

    target: str
    color: str
    line: str
    peak: float
    bandwidth: float


@dataclass(frozen=True)
class _Axes:
    """Logarithmic axes: arithmetic intensity in FLOP/byte, rate in FLOP/s."""

    left: float
    right: float
    bottom: float
    top: float

    def x(self, intensity: float) -> float:
        return WIDTH * (math.log2(intensity) - self.left) / (self.right - self.left)

    def y(self, rate: float) -> float:
        return HEIGHT * (self.top - math.log10(rate)) / (self.top - self.bottom)


def roofline_page(profile: Profile, limits: Mapping[str, Capabilities], title: str) -> str:
    """Render an HTML page that plots kernels by arithmetic intensity and achieved rate, under the roofs of their targets (Williams
    et al., CACM 2009). `limits` has the capabilities of targets by name. Kernels without arithmetic appear in the table only."""
    from jinja2 import Environment

    rows = [row for row in profile.rows() if row.bytes and row.target in limits]
    targets = list(dict.fromkeys(row.target for row in rows))
    colors = {target: COLORS[number % len(COLORS)] for number, target in enumerate(targets)}
    drawn = [row for row in rows if row.operations and row.seconds]
    axes = _axes(drawn, [limits[target] for target in targets])
    points = [_point(row, axes, colors[row.target], limits[row.target]) for row in reversed(drawn)]
    template = Environment(autoescape=True).from_string(
        files("inlaid_cli").joinpath("templates/roofline.html.jinja").read_text(encoding="utf-8")
    )
    return template.render(
        title=title,
        width=WIDTH,
        height=HEIGHT,
        roofs=[_roof(target, colors[target], limits[target], axes) for target in targets],
        points=points,
        rows=[(row, _roof_share(row, limits[row.target])) for row in rows],
        intensities=[(axes.x(2.0**power), _power(power)) for power in range(math.ceil(axes.left), math.floor(axes.right) + 1, 2)],
        rates=[(axes.y(10.0**power), _engineering(power)) for power in range(math.ceil(axes.bottom), math.floor(axes.top) + 1)],
    )


def _axes(rows: list[Row], limits: list[Capabilities]) -> _Axes:
    intensities = [row.operations / row.bytes for row in rows]
    ridges = [capabilities.peak / capabilities.bandwidth for capabilities in limits]
    rates = [row.flops for row in rows]
    peaks = [capabilities.peak for capabilities in limits]
    left = math.log2(max(LEAST_INTENSITY, min([*intensities, *ridges, 1.0]) / 2))
    right = math.log2(max([*intensities, *ridges, 1.0]) * 4)
    bottom = math.log10(max(LEAST_RATE, min([*rates, *peaks, 1e9]) / 2))
    return _Axes(left, right, bottom, math.log10(max([*rates, *peaks, 1e9]) * 2))


def _point(row: Row, axes: _Axes, color: str, capabilities: Capabilities) -> Point:
    intensity = max(row.operations / row.bytes, 2.0**axes.left)
    radius = 3 + 14 * math.sqrt(min(row.share, 1.0))
    return Point(row, axes.x(intensity), axes.y(max(row.flops, 10.0**axes.bottom)), radius, color, _roof_share(row, capabilities))


def _roof_share(row: Row, capabilities: Capabilities) -> float:
    """Compute the kernel's achieved share of its roof, the lower of the peak rate and the rate that bandwidth allows."""
    seconds = max(row.operations / capabilities.peak, row.bytes / capabilities.bandwidth)
    return seconds / row.seconds if row.seconds else 0.0


def _roof(target: str, color: str, capabilities: Capabilities, axes: _Axes) -> Roof:
    ridge = capabilities.peak / capabilities.bandwidth
    start = 2.0**axes.left
    corners = [(start, start * capabilities.bandwidth), (ridge, capabilities.peak), (2.0**axes.right, capabilities.peak)]
    line = " ".join(f"{axes.x(intensity):.1f},{axes.y(rate):.1f}" for intensity, rate in corners)
    return Roof(target, color, line, capabilities.peak, capabilities.bandwidth)


def _power(power: int) -> str:
    return str(2**power) if power >= 0 else f"1/{2**-power}"


def _engineering(power: int) -> str:
    """Format 10**power FLOP/s with a unit prefix."""
    unit = {6: "MFLOP/s", 9: "GFLOP/s", 12: "TFLOP/s"}
    step = max(step for step in unit if step <= max(power, 6))
    return f"{10 ** (power - step):g} {unit[step]}"
