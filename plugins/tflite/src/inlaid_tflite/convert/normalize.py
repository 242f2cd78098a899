"""Softmax and normalizations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.fixed_point import scaled
from inlaid_tflite.convert.window import channels_last, channels_second
from inlaid_tflite.fixed import half_up, inverse_root, number
from inlaid_tflite.node import Converter, Node, typed
from inlaid_tflite.table import interpolate, precise, table_16

LEAST = 1e-6
"""Minimum divisor in the normalization of floats. It replaces a smaller norm."""
L2_BITS = 7
"""Fraction bits of a normalized 8-bit row."""
REACH = 10.0
"""Range of the table of exponentials of int16: differences from the maximum, down to -REACH."""


def _axis(node: Node) -> int:
    rank = len(node.tensor(0).shape)
    if rank == 0:
        raise node.error("expected a tensor of rank >= 1 to normalize, got a scalar")
    return rank - 1


def _distance_from_max(node: Node) -> Expr:
    """Compute the row maximum minus the value, for quantized integers, as int32."""
    wide = ops.cast(node.input(0), dtype="int32")
    return ops.sub(ops.reduce_max(wide, axes=(_axis(node),), keepdims=True), wide)


def _exponentials(node: Node, beta: np.float32) -> Expr:
    """Look up exp(beta * (x - max)) of 8-bit values in a table for the 256 possible differences, computed at import."""
    scale, _ = node.pair(node.tensor(0))
    table = precise(np.exp)((np.float32(-scale) * beta) * np.arange(256, dtype=np.float32))
    return ops.take(constant(table), _distance_from_max(node), axis=0)


def _softmax(node: Node) -> Expr:
    axis = _axis(node)
    beta = np.float32(node.options.Beta())
    if node.is_float():
        data = node.input(0) if beta == 1 else ops.mul(node.input(0), constant(beta.astype(node.result.dtype.numpy)))
        return ops.softmax(data, axis=axis)
    if node.tensor(0).dtype.bits == 16:
        return _softmax_16(node, beta)
    result_scale, zero_point = node.pair(node.result)
    powers = _exponentials(node, beta)
    total = ops.reduce_sum(powers, axes=(axis,), keepdims=True)
    factor = ops.div(constant(np.float32(1)), ops.mul(total, constant(result_scale)))
    rounded = ops.floor(ops.add(ops.mul(powers, factor), constant(np.float32(0.5))))
    shifted = ops.add(rounded, constant(np.float32(zero_point)))
    least, greatest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(shifted, minimum=least, maximum=greatest), dtype=node.result.dtype.name)


def _softmax_16(node: Node, beta: np.float32) -> Expr:
    """Compute the softmax of int16 by tables of exp(x) for x in [-10, 0] and of 1 / (1 + x) for x in [0, 1], with 15 fraction
    bits."""
    limits = np.iinfo(np.int16)
    span = limits.max - limits.min
    scale, _ = node.pair(node.tensor(0))
    exp_table = table_16(np.exp, REACH / span, limits.max, 2.0 / span, 0)
    inverse_table = table_16(lambda x: 1 / (1 + x), 1.0 / span, limits.min, 2.0 / span, 0)
    scaled_distance = scaled(ops.neg(_distance_from_max(node)), [float(scale * beta) / (REACH / 65535.0)])
    exponent_index = ops.clip(ops.add(scaled_distance, number(limits.max)), minimum=float(limits.min), maximum=float(limits.max))
    exponentials = ops.cast(interpolate(exp_table, ops.cast(exponent_index, dtype="int16")), dtype="int32")
    total = ops.reduce_sum(exponentials, axes=(_axis(node),), keepdims=True)
    zeros = number(0)
    for bit in range(32):  # count the leading zeros of the sum, which is positive
        zeros = ops.add(zeros, ops.cast(ops.less(ops.cast(total, dtype="int64"), constant(np.int64(1 << bit))), dtype="int32"))
    normalized_total = ops.shift_left(ops.cast(total, dtype="int64"), ops.cast(ops.sub(zeros, number(1)), dtype="int64"))
    sums = ops.shift_right(ops.add(normalized_total, constant(np.int64(1 << 13))), constant(np.int64(14)))
    centered = ops.sub(ops.cast(sums, dtype="int32"), number((1 << 15) + (1 << 16)))
    inverse_index = ops.cast(ops.clip(centered, minimum=float(limits.min), maximum=float(limits.max)), dtype="int16")
    inverse = ops.cast(interpolate(inverse_table, inverse_index), dtype="int32")
    places = ops.cast(ops.sub(number(31), zeros), dtype="int64")
    half = ops.shift_left(constant(np.int64(1)), ops.sub(places, constant(np.int64(1))))
    product = ops.mul(ops.cast(exponentials, dtype="int64"), ops.cast(inverse, dtype="int64"))
    quotient = ops.shift_right(ops.add(product, half), places)
    return ops.cast(ops.clip(quotient, minimum=0.0, maximum=float(limits.max)), dtype="int16")


def _log_softmax(node: Node) -> Expr:
    axis = _axis(node)
    if node.is_float():
        return ops.log_softmax(node.input(0), axis=axis)
    (scale, _), (result_scale, zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    wide = ops.cast(node.input(0), dtype="float32")
    greatest = ops.reduce_max(wide, axes=(axis,), keepdims=True)
    total = ops.log(ops.reduce_sum(_exponentials(node, np.float32(1)), axes=(axis,), keepdims=True))
    log_total = ops.div(ops.add(ops.mul(greatest, constant(scale)), total), constant(result_scale))
    real = ops.sub(ops.mul(wide, constant(scale / result_scale)), log_total)
    rounded = ops.add(ops.cast(ops.round(real), dtype="int32"), number(zero_point))
    lowest, highest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(rounded, minimum=lowest, maximum=highest), dtype=node.result.dtype.name)


def _l2_normalization(node: Node) -> Expr:
    axis = _axis(node)
    if node.is_float():
        data = node.input(0)
        length = ops.sqrt(ops.reduce_sum(ops.mul(data, data), axes=(axis,), keepdims=True))
        return node.bounded(ops.div(data, ops.maximum(length, constant(np.float32(LEAST)))))
    wide = node.wide(0)
    multiplier, shift = inverse_root(ops.reduce_sum(ops.mul(wide, wide), axes=(axis,), keepdims=True))
    # The upper half of a product is rounded twice; for int8, it is first shifted left by the bits that the shift lacks.
    if node.result.dtype.kind == "uint":
        left_shift, right_shift = number(L2_BITS), ops.neg(shift)
    else:
        places = ops.add(shift, number(L2_BITS))
        left_shift, right_shift = ops.maximum(places, number(0)), ops.maximum(ops.neg(places), number(0))
    high = half_up(ops.shift_left(wide, left_shift), multiplier)
    half = ops.shift_right(ops.shift_left(number(1), right_shift), number(1))
    negative = ops.minimum(ops.cast(ops.less(high, number(0)), dtype="int32"), half)
    rounded = ops.shift_right(ops.sub(ops.add(high, half), negative), right_shift)
    least, greatest = map(float, node.result.dtype.limits)
    middle = 128 if node.result.dtype.kind == "uint" else 0
    shifted = ops.add(rounded, number(middle))
    return ops.cast(ops.clip(shifted, minimum=least, maximum=greatest), dtype=node.result.dtype.name)


def _local_response_normalization(node: Node) -> Expr:
    options, size = node.options, 2 * node.options.Radius() + 1
    if size < 1:
        raise node.error(f"radius must be >= 0, got {options.Radius()}")
    data = channels_second(node.input(0))
    normalized = ops.lrn(data, size=size, alpha=options.Alpha() * size, beta=options.Beta(), bias=options.Bias())
    return channels_last(normalized)


CONVERTERS: Mapping[str, Converter] = {
    "L2_NORMALIZATION": typed(_l2_normalization, "float32 int8 uint8"),
    "LOCAL_RESPONSE_NORMALIZATION": typed(_local_response_normalization, "float32"),
    "LOG_SOFTMAX": typed(_log_softmax, "float32 int8 uint8"),
    "SOFTMAX": typed(_softmax, "float32 float16 int8 uint8 int16"),
}
