"""Fixed-point factors that tell requantizations apart: of other rounding modes, and with narrower multipliers."""

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
        below = (3 * value << 29) >> (FRACTION - shift)  # three quarters of the range of a multiplier
        multiplier = -(-((2 * below + 1) << (FRACTION - 1 - shift)) // value)
        if 1 << 30 <= multiplier < 1 << 31:
            multipliers.append(multiplier)
    return multipliers


def distinguished(sums: Array, multipliers: Array, shifts: Array, single: bool) -> tuple[int, int, int]:
    """Return what products of sums with fixed-point factors, of a `single` or a double rounding, distinguish: the number of pairs
    of rounding modes (halves up or to even; below 0, up or away from 0), the number of products that do so, and the number of
    products with other results for a multiplier of 15 bits."""
    wide, shifts = sums.astype(np.int64) << np.maximum(shifts, 0), shifts.astype(np.int64)
    product, right = wide * multipliers, np.maximum(-shifts, 0)
    value, places = (product, right + FRACTION) if single else ((product + (1 << 30)) >> FRACTION, right)
    half = (np.int64(1) << places) >> 1
    tied = (half > 0) & (value & (2 * half - 1) == half)
    even, below = int(np.count_nonzero(tied & ((value >> places) & 1 == 0))), int(np.count_nonzero(tied & (value < 0)))
    narrow = np.count_nonzero(_rounded(product, right) != _rounded(wide * (multipliers >> NARROW << NARROW), right))
    return (even > 0) + (below > 0), even + below, int(narrow)


def _rounded(product: Array, right: Array) -> Array:
    high = (product + (1 << (FRACTION - 1))) >> FRACTION
    quotient: Array = (high + ((np.int64(1) << right) >> 1)) >> right
    return quotient
