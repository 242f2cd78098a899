"""Bounds the sums of integers that a composite accumulates."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr
from inlaid.graph.pattern import Match
from inlaid.ops.conversion import cast
from inlaid.ops.convolution import conv
from inlaid.ops.elementwise import add, shift_right, sub
from inlaid.ops.linear import matmul
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import pad, reshape, transpose
from inlaid.ops.transposed import conv_transpose
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType

WIDEST = 32
"""Width in bits of the accumulators of the graph: narrower ones are checked."""
PRODUCTS = (conv, conv_transpose, matmul)
Array = np.ndarray[Any, Any]


def overflow(pattern_match: Match, bits: int) -> str | None:
    """Return the reason why sums of a composite may exceed a signed accumulator of `bits` bits; None if all fit.

    The bound of a sum is the sum of the greatest magnitudes of its terms and of its bias. It holds in any order of summation,
    whether the accumulator wraps or saturates. The values of operands are bounded by their element types."""
    if bits >= WIDEST:
        return None
    member_ids = {id(call) for call in pattern_match.calls}
    for call in pattern_match.calls:
        result = call.type
        if call.callee not in (*PRODUCTS, reduce_sum) or not isinstance(result, TensorType) or not result.dtype.is_int:
            continue
        terms = magnitudes(call, member_ids)
        if terms is None:
            return f"the number of terms of its sums has no upper bound, but the target accumulates in {bits} bits"
        # Float64 is exact where the sum fits.
        greatest_sum = int(np.max(terms + _bias(call, pattern_match, member_ids), initial=0))
        bits_of_sum = greatest_sum.bit_length() + 1
        if bits_of_sum > bits:
            return f"its sums need {bits_of_sum} bits, but the target accumulates in {bits}"
    return None


def magnitudes(call: Call, member_ids: Collection[int] = ()) -> Array | None:
    """Return upper bounds of the sums of magnitudes of a convolution, matrix product or sum of integers: float64, broadcastable to
    the result. None if the number of terms has no upper bound. A call whose id is in `member_ids` is bounded by its operands, any
    other value by its element type."""
    first, *operands = call.args
    shape = _shape(first)
    if call.callee is reduce_sum:
        return _times([shape[axis] for axis in call.attrs.axes], greatest(first, member_ids))
    (second,) = operands
    if isinstance(second, Constant):
        return np.asarray(weight_sums(call, second.data) * greatest(first, member_ids))
    if isinstance(first, Constant) and call.callee is matmul:
        return np.asarray(np.abs(first.data.astype(np.float64)).sum(axis=-1, keepdims=True) * greatest(second, member_ids))
    counts = shape[-1:] if call.callee is matmul else _shape(second)[1:]
    if call.callee is conv_transpose:
        counts = (arith.floordiv(shape[1], call.attrs.groups), *counts[1:])
    return _times(counts, greatest(first, member_ids) * greatest(second, member_ids))


def weight_sums(call: Call, weights: Array) -> Array:
    """Return the sums of magnitudes of the constant weights of a convolution or matrix product, by output channel."""
    abs_weights = np.abs(weights.astype(np.float64))
    if call.callee is matmul:
        return np.asarray(abs_weights.sum(axis=max(abs_weights.ndim - 2, 0), keepdims=abs_weights.ndim > 1))
    channels = 1
    if call.callee is conv_transpose:
        groups = call.attrs.groups
        abs_weights, channels = (
            abs_weights.reshape(groups, len(abs_weights) // groups, *abs_weights.shape[1:]).swapaxes(1, 2),
            2,
        )
    sums = abs_weights.sum(axis=tuple(range(channels, abs_weights.ndim)))
    return np.asarray(sums.reshape(-1, *(1,) * (weights.ndim - 2)))


def _times(counts: Collection[Dim], term: float) -> Array | None:
    max_count = arith.bounds(arith.product(tuple(counts)))[1]
    return None if max_count is None else np.asarray(max_count * term)


def _bias(total: Call, match: Match, member_ids: Collection[int], before: Array | float = 0.0, last: Array | float = 0.0) -> Array:
    """Return an upper bound of the magnitude that a composite adds to a sum before it is scaled, over all readers of the sum.

    `last` is what was added last, `before` the magnitude of what was added earlier. If a rounding right shift reads `total`, the
    half in `last` that it needs does not count. The bound has an element per channel until the shape changes, then one for all."""
    worst = np.asarray(before + np.abs(last - _half(total, match)))
    for reader in match.calls:
        if not any(arg is total for arg in reader.args):
            continue
        magnitude = before + np.abs(last)
        if reader.callee in (add, sub):
            other = reader.args[1] if reader.args[0] is total else reader.args[0]
            bias = other.data.astype(np.float64) if isinstance(other, Constant) else greatest(other, member_ids)
            worst = np.maximum(worst, _bias(reader, match, member_ids, magnitude, bias))
        elif reader.callee in (reshape, transpose, cast):
            worst = np.maximum(worst, np.max(_bias(reader, match, member_ids, np.max(magnitude, initial=0)), initial=0))
    return worst


def _half(total: Call, match: Match) -> Array | float:
    """Return the half that a sum needs for the rounding right shift of a composite; 0 if another call scales it."""
    scaling = match.get("scaled")
    if not isinstance(scaling, Call) or scaling.callee is not shift_right or scaling.args[0] is not total:
        return 0.0
    shift_counts = scaling.args[1]
    return np.floor(2 ** shift_counts.data.astype(np.float64) / 2) if isinstance(shift_counts, Constant) else 0.0


def greatest(expr: Expr, member_ids: Collection[int] = ()) -> float:
    """Return an upper bound of the magnitude of integers: that of their element type or, for a call whose id is in `member_ids`, a
    bound from its operands if that is lower."""
    if isinstance(expr, Constant):
        return float(np.abs(expr.data.astype(np.float64)).max(initial=0))
    assert isinstance(expr.type, TensorType)
    low, high = expr.type.dtype.limits
    limit = float(max(-low, high))
    if not isinstance(expr, Call) or id(expr) not in member_ids:
        return limit
    if expr.callee is cast:
        source = expr.args[0].type
        assert isinstance(source, TensorType)
        is_lossless = not source.dtype.is_float and low <= source.dtype.limits[0] and source.dtype.limits[1] <= high
        return min(limit, greatest(expr.args[0], member_ids)) if is_lossless else limit
    if expr.callee in (add, sub):
        return min(limit, sum(greatest(arg, member_ids) for arg in expr.args))
    return min(limit, max(greatest(arg, member_ids) for arg in expr.args)) if expr.callee is pad else limit


def _shape(expr: Expr) -> tuple[Dim, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape
