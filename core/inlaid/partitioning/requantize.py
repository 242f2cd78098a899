"""Checks whether a target supports the integer arithmetic of a composite: the width of its sums, and its requantization."""

from __future__ import annotations

import numpy as np

from inlaid.graph.pattern import Match
from inlaid.ops.elementwise import shift_right
from inlaid.ops.fixed_point import FRACTION, SINGLE
from inlaid.ops.quantized import dequantize, quantize
from inlaid.ops.requantization import Factor, factor
from inlaid.partitioning.accumulate import overflow
from inlaid.plugins.contract import HALF_EVEN, Requantization


def unlike(pattern_match: Match, supported: Requantization) -> str | None:
    """Return the reason why a target with the integer arithmetic `supported` cannot run a composite; None if it can."""
    overflow_reason = overflow(pattern_match, supported.accumulator_bits)
    if overflow_reason is not None or not supported.roundings:
        return overflow_reason
    callees = [call.callee for call in pattern_match.calls]
    if dequantize in callees and quantize in callees and HALF_EVEN not in supported.roundings:
        return _rounding_reason(HALF_EVEN, supported)
    for call in pattern_match.calls:
        # A right shift is a requantization only if a pattern of `inlaid.ops.composites` marks it as such.
        requested = factor(call) if call.callee is not shift_right or pattern_match.get("scaled") is call else None
        reason = None if requested is None else _unsupported_reason(requested, supported)
        if reason is not None:
            return reason
    return None


def _rounding_reason(rounding: str, supported: Requantization) -> str:
    return f"it requantizes with rounding {rounding}, but the target supports {' and '.join(supported.roundings)}"


def _unsupported_reason(requested: Factor, supported: Requantization) -> str | None:
    if requested.rounding not in supported.roundings:
        return _rounding_reason(requested.rounding, supported)
    if requested.per_channel and not supported.per_channel:
        return "it requantizes per channel, but the target supports only one factor per tensor"
    nonzero = requested.multipliers != 0
    multipliers, shifts = [int(value) for value in requested.multipliers[nonzero]], requested.shifts[nonzero].astype(np.int64)
    spare_bits = np.zeros(len(multipliers), np.int64)
    if requested.rounding in (HALF_EVEN, *SINGLE):
        # With a single rounding, only multiplier * 2^shift matters: a multiplier with leading zeros may be scaled up and its shift
        # lowered, down to the target's least shift.
        spare_bits = np.array([FRACTION - value.bit_length() for value in multipliers], np.int64)
        spare_bits = spare_bits if supported.shifts is None else np.minimum(spare_bits, shifts - supported.shifts[0])
    zeros = np.array([(value & -value).bit_length() - 1 for value in multipliers], np.int64)
    bits, shifts = FRACTION - zeros - spare_bits, shifts - spare_bits
    if bits.max(initial=0) > supported.multiplier_bits:
        return f"it requantizes with {bits.max()}-bit multipliers, but the target supports {supported.multiplier_bits} bits"
    if supported.shifts is not None and shifts.size:
        low, high = supported.shifts
        if not low <= shifts.min() <= shifts.max() <= high:
            return f"it requantizes with shifts from {shifts.min()} to {shifts.max()}, but the target supports {low} to {high}"
    return None
