"""Chooses scales and zero points from observed values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid_quantization.choices import ENTROPY, MINMAX, MSE, PERCENTILE, POWER_OF_TWO, SYMMETRIC
from inlaid_quantization.histogram import Array, Histogram
from inlaid_quantization.settings import Quantization

LOWEST, HIGHEST = -128, 127
SQUARED_ENDS = 128
"""Number of candidate range ends on either side of zero, for the mean squared error."""
ENTROPY_ENDS = 64
"""Number of candidate ranges, for the divergence."""


@dataclass(frozen=True)
class Scale:
    """Quantization parameters: real = (stored - zero_point) * scale, stored in int8. The scale is a float32 number."""

    scale: float
    zero_point: int

    def stored(self, real: float) -> int:
        """Return the stored value nearest to a real value."""
        return int(np.clip(np.rint(np.float64(real) / self.scale) + self.zero_point, LOWEST, HIGHEST))

    def stored_array(self, real: Array) -> Array:
        """Return the stored values nearest to real values, as int8, saturated."""
        rounded = np.rint(real.astype(np.float64) / self.scale) + self.zero_point
        return np.asarray(np.clip(rounded, LOWEST, HIGHEST).astype(np.int8))

    def real_array(self, stored: Array) -> Array:
        """Convert stored values to real values, as float32."""
        return ((stored.astype(np.int32) - self.zero_point).astype(np.float32) * np.float32(self.scale)).astype(np.float32)


def choose_scale(histogram: Histogram, settings: Quantization, below: float = 0.0) -> Scale:
    """Choose the scale of a tensor from the range that `settings.calibration` selects, extended downwards by `below`. A tensor of
    zeros gets scale 1."""
    if histogram.total == 0 or (histogram.least == histogram.greatest == below == 0):
        return Scale(1.0, 0)
    low, high = (
        _RANGES[settings.calibration](histogram, settings)
        if histogram.least < histogram.greatest
        else (histogram.least, histogram.greatest)
    )
    scales, zero_points = compute_scales(np.array([low - below]), np.array([high]), settings)
    return Scale(float(scales[0]), int(zero_points[0]))


def compute_scales(lows: Array, highs: Array, settings: Quantization) -> tuple[Array, Array]:
    """Return scales (float64 with float32 values) and zero points for ranges. Each range is first extended to contain zero."""
    lows, highs = np.minimum(lows, 0.0), np.maximum(highs, 0.0)
    if settings.activations == SYMMETRIC:
        scales = rounded_scales(np.maximum(-lows, highs) / HIGHEST, settings)
        return scales, np.zeros(scales.shape)
    scales = rounded_scales((highs - lows) / (HIGHEST - LOWEST), settings)
    return scales, np.clip(np.rint(LOWEST - lows / scales), LOWEST, HIGHEST)


def rounded_scales(scales: Array, settings: Quantization) -> Array:
    """Round scales to float32; powers of two are rounded up, so that the range stays covered."""
    scales = np.maximum(scales, np.finfo(np.float32).tiny)
    if settings.scales == POWER_OF_TWO:
        fractions, exponents = np.frexp(scales)
        return np.asarray(np.ldexp(1.0, np.where(fractions == 0.5, exponents - 1, exponents)))
    return np.asarray(scales.astype(np.float32).astype(np.float64))


def _full_range(histogram: Histogram, settings: Quantization) -> tuple[float, float]:
    return histogram.least, histogram.greatest


def _percentile(histogram: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the range of which each end bounds `settings.percentile` percent of the values, to the resolution of a bin."""
    counts = histogram.counts.copy()
    counts[len(counts) // 2] += histogram.zeros
    cumulative = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    fraction = settings.percentile / 100
    low, high = np.interp([1 - fraction, fraction], cumulative, histogram.edges)
    return max(float(low), histogram.least), min(float(high), histogram.greatest)


# --- the least mean squared error -------------------------------------------------------------------------------------


def _least_squares(histogram: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the range with the least mean squared error, among all pairs of `SQUARED_ENDS` ends on either side."""
    parts = np.arange(1, SQUARED_ENDS + 1) / SQUARED_ENDS
    lows = parts * histogram.least if histogram.least < 0 else np.zeros(1)
    highs = parts * histogram.greatest if histogram.greatest > 0 else np.zeros(1)
    low, high = (grid.reshape(-1) for grid in np.meshgrid(lows, highs, indexing="ij"))
    errors = _squared_errors(histogram, *compute_scales(low, high, settings))
    best = int(np.argmin(errors))
    return float(low[best]), float(high[best])


def _squared_errors(histogram: Histogram, scales: Array, zero_points: Array) -> Array:
    """Return the sum of squared errors for each scale: scale^2 / 12 for a value within the range, the squared distance to the range
    for a value beyond it, 0 for a zero."""
    edges = histogram.edges
    middles = (edges[:-1] + edges[1:]) / 2
    sums = [np.concatenate([[0.0], np.cumsum(histogram.counts * middles**power)]) for power in range(3)]
    first, last = (LOWEST - 0.5 - zero_points) * scales, (HIGHEST + 0.5 - zero_points) * scales

    def up_to(ends: Array) -> list[Array]:
        return [np.interp(ends, edges, cumulative) for cumulative in sums]

    def beyond(parts: list[Array], end: Array) -> Array:
        count, total, squares = parts
        return np.asarray(squares - 2 * end * total + end * end * count)

    below, above = up_to(first), [running[-1] - part for running, part in zip(sums, up_to(last), strict=True)]
    inside = sums[0][-1] - below[0] - above[0]
    clipped = beyond(below, first + scales / 2) + beyond(above, last - scales / 2)
    return np.asarray(inside * scales * scales / 12 + clipped)


# --- the least divergence ---------------------------------------------------------------------------------------------


def _least_divergence(histogram: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the fraction of the whole range whose stored distribution diverges least from the observed distribution."""
    parts = np.arange(ENTROPY_ENDS, 0, -1) / ENTROPY_ENDS
    scales, zero_points = compute_scales(parts * histogram.least, parts * histogram.greatest, settings)
    divergences = [divergence(histogram, Scale(float(scale), int(point))) for scale, point in zip(scales, zero_points, strict=True)]
    best = parts[int(np.argmin(divergences))]
    return float(best) * histogram.least, float(best) * histogram.greatest


def divergence(histogram: Histogram, scale: Scale) -> float:
    """Return the Kullback-Leibler divergence of the stored distribution from the observed one.

    After S. Migacz, "8-bit inference with TensorRT", GTC 2017: in the observed distribution, values beyond the range count at its
    ends. The stored distribution omits these values, and distributes the probability of a stored value evenly over its
    nonempty bins.
    """
    middles = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    stored = np.rint(middles / scale.scale) + scale.zero_point
    inside = np.flatnonzero((stored >= LOWEST) & (stored <= HIGHEST))
    if not inside.size or not histogram.counts[inside].any():
        return float("inf")
    first, last = inside[0], inside[-1]
    counts = histogram.counts[first : last + 1].astype(np.float64)
    clipped = counts.copy()
    clipped[0] += histogram.counts[:first].sum()
    clipped[-1] += histogram.counts[last + 1 :].sum()
    levels = (stored[first : last + 1] - LOWEST).astype(np.int64)
    filled = counts > 0
    shares = np.bincount(levels, counts, 256) / np.maximum(np.bincount(levels, filled, 256), 1)
    spread = np.where(filled, shares[levels], 0.0)
    p, q = clipped / clipped.sum(), spread / spread.sum()
    positive = p > 0
    # A bin at an end may contain only clipped values: give it a tiny probability.
    return float(np.sum(p[positive] * np.log(p[positive] / np.maximum(q[positive], 1e-12))))


_RANGES = {MINMAX: _full_range, PERCENTILE: _percentile, ENTROPY: _least_divergence, MSE: _least_squares}
