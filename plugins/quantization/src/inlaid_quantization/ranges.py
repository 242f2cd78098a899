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
    """Requantization parameters: real = (stored - zero_point) * scale, stored in int8. The scale is a float32 number."""

    scale: float
    zero_point: int

    def stored(self, real: float) -> int:
        """Return the stored value nearest to a real value."""
        return int(np.clip(np.rint(np.float64(real) / self.scale) + self.zero_point, LOWEST, HIGHEST))

    def stored_array(self, real: Array) -> Array:
        """Return the stored values nearest to real values, as int8, saturated."""
        whole = np.rint(real.astype(np.float64) / self.scale) + self.zero_point
        return np.asarray(np.clip(whole, LOWEST, HIGHEST).astype(np.int8))

    def real_array(self, stored: Array) -> Array:
        """Convert stored values to real values, as float32."""
        return ((stored.astype(np.int32) - self.zero_point).astype(np.float32) * np.float32(self.scale)).astype(np.float32)


def choose_scale(seen: Histogram, settings: Quantization, below: float = 0.0) -> Scale:
    """Choose the scale of a tensor from the range that `settings.calibration` selects, extended downwards by `below`. A tensor of
    zeros gets scale 1."""
    if seen.total == 0 or (seen.least == seen.greatest == below == 0):
        return Scale(1.0, 0)
    low, high = _RANGES[settings.calibration](seen, settings) if seen.least < seen.greatest else (seen.least, seen.greatest)
    scales, points = scales_of(np.array([low - below]), np.array([high]), settings)
    return Scale(float(scales[0]), int(points[0]))


def scales_of(lows: Array, highs: Array, settings: Quantization) -> tuple[Array, Array]:
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


def _whole(seen: Histogram, settings: Quantization) -> tuple[float, float]:
    return seen.least, seen.greatest


def _percentile(seen: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the bounds that the given percentage of values does not exceed, to the resolution of a bin."""
    counts = seen.counts.copy()
    counts[len(counts) // 2] += seen.zeros
    below = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    part = settings.percentile / 100
    low, high = np.interp([1 - part, part], below, seen.edges)
    return max(float(low), seen.least), min(float(high), seen.greatest)


# --- the least mean squared error -------------------------------------------------------------------------------------


def _least_squares(seen: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the range with the least mean squared error, among all pairs of `SQUARED_ENDS` ends on either side."""
    parts = np.arange(1, SQUARED_ENDS + 1) / SQUARED_ENDS
    lows = parts * seen.least if seen.least < 0 else np.zeros(1)
    highs = parts * seen.greatest if seen.greatest > 0 else np.zeros(1)
    low, high = (grid.reshape(-1) for grid in np.meshgrid(lows, highs, indexing="ij"))
    errors = _squared_errors(seen, *scales_of(low, high, settings))
    best = int(np.argmin(errors))
    return float(low[best]), float(high[best])


def _squared_errors(seen: Histogram, scales: Array, points: Array) -> Array:
    """Return the sum of squared errors for each scale: scale^2 / 12 for a value within the range, the squared distance to the range
    for a value beyond it, 0 for a zero."""
    edges = seen.edges
    middles = (edges[:-1] + edges[1:]) / 2
    sums = [np.concatenate([[0.0], np.cumsum(seen.counts * middles**power)]) for power in range(3)]
    first, last = (LOWEST - 0.5 - points) * scales, (HIGHEST + 0.5 - points) * scales

    def up_to(ends: Array) -> list[Array]:
        return [np.interp(ends, edges, of) for of in sums]

    def beyond(parts: list[Array], end: Array) -> Array:
        count, total, squares = parts
        return np.asarray(squares - 2 * end * total + end * end * count)

    below, above = up_to(first), [of[-1] - part for of, part in zip(sums, up_to(last), strict=True)]
    inside = sums[0][-1] - below[0] - above[0]
    clipped = beyond(below, first + scales / 2) + beyond(above, last - scales / 2)
    return np.asarray(inside * scales * scales / 12 + clipped)


# --- the least divergence ---------------------------------------------------------------------------------------------


def _least_divergence(seen: Histogram, settings: Quantization) -> tuple[float, float]:
    """Return the fraction of the whole range whose stored distribution diverges least from the observed distribution."""
    parts = np.arange(ENTROPY_ENDS, 0, -1) / ENTROPY_ENDS
    scales, points = scales_of(parts * seen.least, parts * seen.greatest, settings)
    found = [divergence(seen, Scale(float(scale), int(point))) for scale, point in zip(scales, points, strict=True)]
    best = parts[int(np.argmin(found))]
    return float(best) * seen.least, float(best) * seen.greatest


def divergence(seen: Histogram, scale: Scale) -> float:
    """Return the Kullback-Leibler divergence of the stored distribution from the observed one.

    After S. Migacz, "8-bit inference with TensorRT", GTC 2017: in the observed distribution, values beyond the range count at its
    ends. The stored distribution omits these values, and distributes the probability of a stored value evenly over its
    nonempty bins.
    """
    middles = (seen.edges[:-1] + seen.edges[1:]) / 2
    stored = np.rint(middles / scale.scale) + scale.zero_point
    inside = np.flatnonzero((stored >= LOWEST) & (stored <= HIGHEST))
    if not inside.size or not seen.counts[inside].any():
        return float("inf")
    first, last = inside[0], inside[-1]
    kept = seen.counts[first : last + 1].astype(np.float64)
    clipped = kept.copy()
    clipped[0] += seen.counts[:first].sum()
    clipped[-1] += seen.counts[last + 1 :].sum()
    levels = (stored[first : last + 1] - LOWEST).astype(np.int64)
    filled = kept > 0
    shares = np.bincount(levels, kept, 256) / np.maximum(np.bincount(levels, filled, 256), 1)
    spread = np.where(filled, shares[levels], 0.0)
    p, q = clipped / clipped.sum(), spread / spread.sum()
    some = p > 0
    # A bin at an end may contain only clipped values: give it a tiny probability.
    return float(np.sum(p[some] * np.log(p[some] / np.maximum(q[some], 1e-12))))


_RANGES = {MINMAX: _whole, PERCENTILE: _percentile, ENTROPY: _least_divergence, MSE: _least_squares}
