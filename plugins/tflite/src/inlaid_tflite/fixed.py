"""Integer-only functions of LiteRT's kernels: reciprocal square root, and sigmoid and tanh of int16."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsFloat

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import slice_axis
from inlaid.ops.fixed_point import scaled
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_tflite.node import Node, tensor_type

Array = np.ndarray[Any, Any]

LEAST, GREATEST = -(1 << 15), (1 << 15) - 1
ONE = 1 << 28
"""1 with 28 fraction bits."""
FIRST, SLOPE = 1515870810, -1010580540
"""48 / 17 and -32 / 17 with 29 fraction bits: the initial guess of a reciprocal."""
HALF_ROOT = 1518500250
"""sqrt(2) / 2 with 31 fraction bits."""
NEWTON_STEPS = 5
RAISED = 0x800000000000000000000000000000800011009020440005C0467BAEFA7BD110
"""Bit k is set if the k-th sigmoid in LiteRT's table is one unit above the rounded value. Measured by evaluating each entry."""


def number(value: int) -> Expr:
    """Make a 0-d int32."""
    return constant(np.int32(value))


def half_up(a: Expr, b: Expr) -> Expr:
    """Compute a * b / 2^31 of int32 (twice the upper half of the product), rounded half up."""
    product = ops.mul(ops.cast(a, dtype="int64"), ops.cast(b, dtype="int64"))
    raised = ops.add(product, constant(np.int64(1 << 30)))
    return ops.cast(ops.shift_right(raised, constant(np.int64(31))), dtype="int32")


def saturate_int16(value: Array) -> Array:
    """Saturate integers to int16."""
    return np.clip(value, LEAST, GREATEST)


def halved(value: Array, places: int) -> Array:
    """Divide integers by a power of two, rounding half away from 0."""
    return np.asarray(np.sign(value) * ((np.abs(value) + ((1 << places) >> 1)) >> places))


def round_down_to_vectors(size: Dim, width: int) -> Dim:
    """Round the extent of an axis down to a multiple of the vector width."""
    return simple(arith.mul(arith.floordiv(size, width), width))


def in_vectors(total: Expr, factors: Sequence[SupportsFloat], axis: int, width: int) -> Expr:
    """Multiply int32 by real factors as LiteRT's vector code does: along an axis, whole vectors of `width` elements round half up,
    the remainder loop rounds half away from 0. There is one factor, or one per index of the axis."""
    size = tensor_type(total).shape[axis]
    vectorized = round_down_to_vectors(size, width)
    if vectorized in (0, size):
        return scaled(total, factors, axis, "up" if vectorized else "away")
    before, after = factors, factors
    if len(factors) > 1:
        assert isinstance(vectorized, int)
        before, after = factors[:vectorized], factors[vectorized:]
    first = scaled(slice_axis(total, axis, 0, vectorized), before, axis, "up")
    last = scaled(slice_axis(total, axis, vectorized, size), after, axis, "away")
    return ops.concat(first, last, axis=axis)


def rounded_away(value: Expr) -> Expr:
    """Round floats half away from 0."""
    dtype = tensor_type(value).dtype
    absolute = ops.abs(value)
    below = ops.floor(absolute)
    half = ops.cast(ops.less_equal(constant(np.array(0.5, dtype.numpy)), ops.sub(absolute, below)), dtype=dtype.name)
    magnitude = ops.add(below, half)
    return ops.where(ops.less(value, constant(np.zeros((), dtype.numpy))), ops.neg(magnitude), magnitude)


def reciprocal(value: int) -> tuple[int, int]:
    """Return 1 / x of a positive int32, with 31 fraction bits, and the right shift of the result. Computed as in gemmlowp's
    fixed-point arithmetic, by three Newton iterations for 1 / (1 + f)."""
    leading_zeros = 32 - value.bit_length()
    fraction = (value << leading_zeros) - (1 << 31)
    half = (fraction + (1 << 31)) >> 1
    quotient = FIRST + _high(half, SLOPE)
    for _ in range(3):
        quotient += _high(quotient, (1 << 29) - _high(half, quotient)) << 2
    return min(quotient << 1, (1 << 31) - 1), 31 - leading_zeros


def _high(a: int, b: int) -> int:
    return (a * b + (1 << 30)) >> 31


def inverse_root(value: Expr) -> tuple[Expr, Expr]:
    """Compute 1 / sqrt(max(x, 1)) of int32 as multipliers and shifts of `multiply_fixed`.

    Newton's method on 4^k * x in [2^27, 2^29), with the initial guess 1.
    """
    clamped = ops.maximum(value, number(2))
    # The leading zeros include the sign bit, and the shift leaves one more pair of them.
    zeros = number(0)
    for bit in range(1, 31):
        zeros = ops.add(zeros, ops.cast(ops.less(clamped, number(1 << bit)), dtype="int32"))
    large = ops.cast(ops.less_equal(number(1 << 29), clamped), dtype="int32")
    quartered = ops.shift_right(clamped, ops.add(large, large))
    pairs = ops.maximum(ops.sub(ops.shift_right(zeros, number(1)), number(1)), number(0))
    normalized = ops.shift_left(quartered, ops.add(pairs, pairs))
    half = ops.shift_right(ops.add(ops.shift_right(normalized, number(1)), number(1)), number(1))
    root = number(ONE)
    for _ in range(NEWTON_STEPS):
        cubed = ops.shift_left(half_up(half_up(root, root), root), number(6))
        scaled_root = half_up(root, number(ONE + ONE // 2))
        root = ops.shift_left(ops.sub(scaled_root, half_up(half, cubed)), number(3))
    root = half_up(root, number(HALF_ROOT))
    shift = ops.sub(ops.sub(pairs, large), number(11))
    left = ops.maximum(shift, number(0))
    is_at_most_1 = ops.less_equal(value, number(1))
    multiplier = ops.where(is_at_most_1, number(np.iinfo(np.int32).max), ops.shift_left(root, left))
    return multiplier, ops.where(is_at_most_1, number(0), ops.minimum(shift, number(0)))


# --- sigmoid and tanh of int16 ----------------------------------------------------------------------------------------


def _sigmoids() -> Array:
    """Tabulate sigmoid(k / 24) for k in [0, 256), with 16 fraction bits."""
    exact = [65536 / (1 + math.exp(-k / 24)) for k in range(256)]
    return np.array([math.floor(value + 0.5) + (RAISED >> k & 1) for k, value in enumerate(exact)], np.int32)


def between_sigmoids(position: Expr, bits: int, greatest: int) -> Expr:
    """Interpolate the table of sigmoids, times 2^bits, at non-negative positions with `bits` fraction bits. Positions beyond the
    table give `greatest`."""
    table = _sigmoids()
    index = ops.shift_right(position, number(bits))
    clamped_index = ops.minimum(index, number(len(table) - 2))
    previous, following = (ops.take(constant(table[start : start + len(table) - 1]), clamped_index, axis=0) for start in (0, 1))
    fraction = ops.bitwise_and(position, number((1 << bits) - 1))
    interpolated = ops.add(ops.shift_left(previous, number(bits)), ops.mul(fraction, ops.sub(following, previous)))
    return ops.where(ops.less(index, number(len(table) - 1)), interpolated, number(greatest))


def position(node: Node) -> Expr:
    """Rescale input 0 to 1 / (3 * 4096), the scale of the table of sigmoids."""
    scale, _ = node.pair(node.tensor(0))
    multiplier, places = float(scale) * 4096.0 * 3.0, 0
    while multiplier <= 32767 / 2 and places <= 30:
        multiplier, places = multiplier * 2, places + 1
    product = ops.mul(node.wide(0), number(int(multiplier)))
    return ops.shift_right(ops.add(product, number((1 << places) >> 1)), number(places))


def sigmoid_16(node: Node) -> Expr:
    """Compute the sigmoid of int16, with 15 fraction bits."""
    return ops.cast(table_sigmoid(position(node)), dtype="int16")


def tanh_16(node: Node) -> Expr:
    """Compute tanh of int16, with 15 fraction bits."""
    return ops.cast(table_tanh(position(node)), dtype="int16")


def table_sigmoid(value: Expr) -> Expr:
    """Compute the sigmoid at positions in the table. Returns int32 with 15 fraction bits."""
    positive = between_sigmoids(ops.abs(value), 9, 65534 << 9)
    half = number(1 << 9)
    mirrored = ops.sub(number((1 << 25) + (1 << 9) - 1), positive)
    chosen = ops.where(ops.less(value, number(0)), mirrored, ops.add(positive, half))
    return ops.shift_right(chosen, number(10))


def table_tanh(value: Expr) -> Expr:
    """Compute tanh as 2 sigmoid(2x) - 1 at positions in the table of sigmoids. Returns int32 with 15 fraction bits."""
    positive = ops.sub(between_sigmoids(ops.abs(value), 8, 65535 << 8), number(1 << 23))
    half = number(1 << 7)
    mirrored = ops.sub(number((1 << 7) - 1), positive)
    chosen = ops.where(ops.less(value, number(0)), mirrored, ops.add(positive, half))
    return ops.shift_right(chosen, number(8))
