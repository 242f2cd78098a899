"""Counts of the values of a tensor, gathered in one pass: what ranges are chosen by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BINS = 8192
"""Bins over [-reach, reach). What is seen fills more than a half of them, of values of one sign more than a quarter: 2048 at least,
eight for each value that int8 has."""
NOTHING = 88.0
"""How far below another number one has an exponential that is nothing beside the other's in float32."""
LEAST_EXPONENT = -100
"""Of the reach: below it, widths of bins would not be normal numbers of float32."""


class Histogram:
    """How often values of a tensor fall into bins of one width.

    The reach is the least power of two above all magnitudes seen. It doubles as values come, two bins becoming one, so that neither
    the order of the values nor how they are parted into arrays changes the result. Zeros are counted apart: they are stored
    exactly, whatever the range.
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
        """Where the last bin ends."""
        return math.ldexp(1.0, self._exponent)

    @property
    def total(self) -> int:
        """The number of values."""
        return self.zeros + int(self.counts.sum())

    @property
    def edges(self) -> Array:
        """Where bins begin and end, in float64: one more than there are bins."""
        return np.linspace(-self.reach, self.reach, BINS + 1)

    def add(self, values: Array) -> None:
        """Count the values of a float array. Raises ValueError for one that is not finite."""
        flat = np.asarray(values, np.float32).reshape(-1)
        if not flat.size:
            return
        least, greatest = float(flat.min()), float(flat.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):
            raise ValueError("NaN or infinity")
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)
        self._widen(math.frexp(max(abs(least), abs(greatest)))[1])
        # The width of a bin is a power of two: nothing is rounded.
        places = np.floor(flat * np.float32(BINS / 2 / self.reach)).astype(np.int32)
        counts = np.bincount(places + BINS // 2, minlength=BINS)
        zeros = flat.size - int(np.count_nonzero(flat))
        counts[BINS // 2] -= zeros
        self.counts += counts
        self.zeros += zeros

    def add_unmasked(self, values: Array) -> None:
        """Count the values from which an exponential is more than nothing beside the greatest; and note whether there are others.
        Raises ValueError as `add` does, minus infinity apart."""
        kept = values[unmasked(values)]
        self.masked |= kept.size < values.size
        self.add(kept)

    def merge(self, other: Histogram) -> None:
        """Count what another one has counted."""
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
    """Where values are less than `NOTHING` below the greatest, or NaN: a bool for each."""
    return np.asarray(~(values < values.max(initial=-np.inf) - np.float32(NOTHING)))


def _doubled(counts: Array) -> Array:
    """The counts in bins of twice the width."""
    wide = np.zeros_like(counts)
    wide[BINS // 4 : 3 * BINS // 4] = counts.reshape(-1, 2).sum(axis=1)
    return wide
