"""Fixed-point factors for which requantizations with other rounding modes, or with narrower multipliers, have other results."""

from __future__ import annotations

import numpy as np

from inlaid.ops.fixed_point import FRACTION
from inlaid_conformance.values import Array

NARROW = 16
"""Number of low bits that a target with 16-bit multipliers drops from a multiplier of 31 bits."""
SUMS = 8
"""Greatest number of sums for which a factor is made."""


def tie_multipliers(sums: Array, shift: int) -> list[int]:
    """Return multipliers that scale one of the greatest positive sums to a value halfway between two integers, or slightly more. A
    target that drops low bits of the multiplier rounds it down. Empty for a shift to the left."""
    if shift > 0:
        return []
    multipliers = []
    for value in np.unique(sums[sums > 0])[-SUMS:].tolist():
        floor = (3 * value << 29) >> (FRACTION - shift)  # three quarters of the range of a multiplier
        multiplier = -(-((2 * floor + 1) << (FRACTION - 1 - shift)) // value)
        if 1 << 30 <= multiplier < 1 << 31:
            multipliers.append(multiplier)
    return multipliers


def distinguished(sums: Array, multipliers: Array, shifts: Array, single: bool) -> tuple[int, int, int]:
    """Return what the products of sums and fixed-point factors, rounded once (`single`) or twice, distinguish: the number of pairs
    of rounding modes that differ (halves up or to even; halves below 0 up or away from 0), the number of products for which they
    differ, and the number of products with other results for a multiplier of 15 bits."""
    wide, shifts = sums.astype(np.int64) << np.maximum(shifts, 0), shifts.astype(np.int64)
    product, right = wide * multipliers, np.maximum(-shifts, 0)
    value, places = (product, right + FRACTION) if single else ((product + (1 << 30)) >> FRACTION, right)
    half = (np.int64(1) << places) >> 1
    tied = (half > 0) & (value & (2 * half - 1) == half)
    even_ties, negative_ties = int(np.count_nonzero(tied & ((value >> places) & 1 == 0))), int(np.count_nonzero(tied & (value < 0)))
    narrow = np.count_nonzero(_rounded(product, right) != _rounded(wide * (multipliers >> NARROW << NARROW), right))
    return (even_ties > 0) + (negative_ties > 0), even_ties + negative_ties, int(narrow)


def _rounded(product: Array, right: Array) -> Array:
    high = (product + (1 << (FRACTION - 1))) >> FRACTION
    quotient: Array = (high + ((np.int64(1) << right) >> 1)) >> right
    return quotient
