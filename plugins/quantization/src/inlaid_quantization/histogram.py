"""Histograms of a tensor's values, computed in one pass, from which ranges are chosen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BINS = 8192
"""Number of bins over [-reach, reach). The values span more than half of the bins, or a quarter if all values have one sign: at
least 2048 bins, eight per int8 value."""
NOTHING = 88.0
"""Difference from the maximum at which an exponential is negligible in float32."""
LEAST_EXPONENT = -100
"""Least exponent of the reach. With a smaller one, bin widths would be denormal in float32."""


class Histogram:
    """Counts of a tensor's values in bins of equal width.

    The reach is the least power of two above all observed magnitudes. When it doubles, pairs of bins are merged, so that the result
    depends neither on the order of the values nor on their distribution over arrays. Zeros are counted separately, since they are
    stored exactly with any range.
    """

    def __init__(self) -> None:
        self.least = math.inf
        self.greatest = -math.inf
        self.zeros = 0
        self.masked = False
        self.counts: Array = np.zeros(BINS, np.int64)
        self._exponent = LEAST_EXPONENT

    @property
    def reach(self) -> float:
        """Upper end of the last bin."""
        return math.ldexp(1.0, self._exponent)

    @property
    def total(self) -> int:
        """Number of values."""
        return self.zeros + int(self.counts.sum())

    @property
    def edges(self) -> Array:
        """Bin edges in float64, one more than bins."""
        return np.linspace(-self.reach, self.reach, BINS + 1)

    def add(self, values: Array) -> None:
        """Count the values of a float array. Raises ValueError for a non-finite value."""
        flat = np.asarray(values, np.float32).reshape(-1)
        if not flat.size:
            return
        least, greatest = float(flat.min()), float(flat.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):
            raise ValueError("NaN or infinity")
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)
        magnitude = max(abs(least), abs(greatest))
        if magnitude:
            self._widen(math.frexp(magnitude)[1])
        # Bin widths are powers of two, so nothing is rounded, except that a denormal may become zero.
        bins = np.floor(flat * np.float32(BINS / 2 / self.reach)).astype(np.int32)
        np.minimum(bins, -1, out=bins, where=flat < 0)
        counts = np.bincount(bins + BINS // 2, minlength=BINS)
        zeros = flat.size - int(np.count_nonzero(flat))
        counts[BINS // 2] -= zeros
        self.counts += counts
        self.zeros += zeros

    def add_unmasked(self, values: Array) -> None:
        """Count the values whose exponential is not negligible relative to the maximum's. Record whether any values were left out.
        Raises ValueError for NaN and plus infinity."""
        unmasked_values = values[unmasked(values)]
        self.masked |= unmasked_values.size < values.size
        self.add(unmasked_values)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.masked |= other.masked
        self._widen(other._exponent)
        counts = other.counts
        for _ in range(self._exponent - other._exponent):
            counts = _doubled(counts)
        self.counts = self.counts + counts
        self.zeros += other.zeros

    def _widen(self, exponent: int) -> None:
        while self._exponent < exponent and self.counts.any():
            self.counts = _doubled(self.counts)
            self._exponent += 1
        self._exponent = max(self._exponent, exponent)


def unmasked(values: Array) -> Array:
    """Return a mask of the values that are NaN, or less than `NOTHING` below the maximum."""
    return np.asarray(~(values < values.max(initial=-np.inf) - np.float32(NOTHING)))


def _doubled(counts: Array) -> Array:
    """Return the counts in bins of twice the width."""
    wide = np.zeros_like(counts)
    wide[BINS // 4 : 3 * BINS // 4] = counts.reshape(-1, 2).sum(axis=1)
    return wide
