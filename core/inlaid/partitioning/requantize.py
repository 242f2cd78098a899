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


def unlike(pattern_match: Match, having: Requantization) -> str | None:
    """Return the reason why a target with some integer arithmetic cannot run a composite; None if it can."""
    wide = overflow(pattern_match, having.accumulator_bits)
    if wide is not None or not having.roundings:
        return wide
    callees = [call.callee for call in pattern_match.calls]
    if dequantize in callees and quantize in callees and HALF_EVEN not in having.roundings:
        return _rounds(HALF_EVEN, having)
    for call in pattern_match.calls:
        # A right shift is a requantization only if a pattern of `inlaid.ops.composites` marks it as such.
        requested = factor(call) if call.callee is not shift_right or pattern_match.get("scaled") is call else None
        reason = None if requested is None else _unfit(requested, having)
        if reason is not None:
            return reason
    return None


def _rounds(rounding: str, having: Requantization) -> str:
    return f"it requantizes with rounding {rounding}, but the target supports {' and '.join(having.roundings)}"


def _unfit(requested: Factor, having: Requantization) -> str | None:
    if requested.rounding not in having.roundings:
        return _rounds(requested.rounding, having)
    if requested.per_channel and not having.per_channel:
        return "it requantizes per channel, but the target supports only one factor per tensor"
    nonzero = requested.multipliers != 0
    multipliers, shifts = [int(value) for value in requested.multipliers[nonzero]], requested.shifts[nonzero].astype(np.int64)
    room = np.zeros(len(multipliers), np.int64)
    if requested.rounding in (HALF_EVEN, *SINGLE):
        # With a single rounding, only multiplier * 2^shift matters: a multiplier with leading zeros may be scaled up and its shift
        # lowered, down to the target's least shift.
        room = np.array([FRACTION - value.bit_length() for value in multipliers], np.int64)
        room = room if having.shifts is None else np.minimum(room, shifts - having.shifts[0])
    zeros = np.array([(value & -value).bit_length() - 1 for value in multipliers], np.int64)
    bits, shifts = FRACTION - zeros - room, shifts - room
    if bits.max(initial=0) > having.multiplier_bits:
        return f"it requantizes with {bits.max()}-bit multipliers, but the target supports {having.multiplier_bits} bits"
    if having.shifts is not None and shifts.size:
        low, high = having.shifts
        if not low <= shifts.min() <= shifts.max() <= high:
            return f"it requantizes with shifts from {shifts.min()} to {shifts.max()}, but the target supports {low} to {high}"
    return None
