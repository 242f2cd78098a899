"""Element-wise operators of one operand, including activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.fixed_point import fixed_points, reduced, scaled
from inlaid_tflite.convert.fixed_activations import sigmoid, tanh
from inlaid_tflite.convert.integer_lstm import GATE_BITS
from inlaid_tflite.fixed import halved, inverse_root, saturate_int16, sigmoid_16, tanh_16
from inlaid_tflite.node import Converter, Node, typed
from inlaid_tflite.table import apply_by_table, byte_values, look_up, precise, real_table

Array = np.ndarray[Any, Any]
RSQRT_BITS = 20
"""Fraction bits of the reciprocal square root of int8."""
HARD_SWISH_BITS = 7
"""Fraction bits of the 8-bit hard swish."""


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _plain(operator: Any) -> Converter:
    return lambda node: operator(node.input(0))


def _centered(node: Node, x: Expr) -> Expr:
    _, zero_point = node.pair(node.tensor(0))
    return ops.sub(ops.cast(x, dtype="int32"), constant(np.int32(zero_point)))


def _rescaled(node: Node, wide: Expr) -> Expr:
    """Requantize int32 from the scale of input 0 to the result."""
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)
    return node.stored(wide, [float(scale / result_scale)]) if scale != result_scale else node.placed(wide)


def _abs(node: Node) -> Expr:
    if not node.is_stored():
        return ops.abs(node.input(0))
    return apply_by_table(node, lambda x: _rescaled(node, ops.abs(_centered(node, x))))


def _sqrt(node: Node) -> Expr:
    if node.is_float():
        return ops.sqrt(node.input(0))
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)

    def build(x: Expr) -> Expr:
        real = ops.sqrt(ops.mul(ops.cast(_centered(node, x), dtype="float32"), constant(scale)))
        return node.placed(ops.cast(ops.div(real, constant(result_scale)), dtype="int32"))

    return apply_by_table(node, build)


def _rsqrt(node: Node) -> Expr:
    if node.is_float():
        return ops.div(constant(np.ones((), node.result.dtype.numpy)), ops.sqrt(node.input(0)))
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)
    if node.tensor(0).dtype.bits == 8:
        return apply_by_table(node, lambda x: _rsqrt_8(node, x, 1 / float(np.sqrt(scale) * result_scale)))
    greatest = np.float32(node.result.dtype.limits[1])

    def real(x: Array) -> Array:
        return np.where(x <= 0, greatest * result_scale, np.float32(1) / np.sqrt(np.where(x <= 0, 1, x)))

    return real_table(node, real)


def _rsqrt_8(node: Node, x: Expr, factor: float) -> Expr:
    """Compute the reciprocal square root of int8 in integers; 0 gives the maximum."""
    wide = _centered(node, x)
    multiplier, shift = inverse_root(wide)
    (outer,), (places,) = fixed_points([factor])
    one, root_shift = constant(np.ones(256, np.int32)), constant(np.int32(RSQRT_BITS))
    root = ops.multiply_fixed(one, multiplier, ops.add(shift, root_shift), rounding="away")
    scaled_root = ops.multiply_fixed(root, constant(np.array(outer)), constant(np.array(places - RSQRT_BITS)), rounding="away")
    greatest = constant(np.array(node.result.dtype.limits[1], np.int8))
    return ops.where(ops.less(constant(np.int32(0)), wide), node.placed(scaled_root), greatest)


def _square(node: Node) -> Expr:
    return ops.mul(node.input(0), node.input(0))


def _exp(node: Node) -> Expr:
    return ops.exp(node.input(0)) if node.is_float() else real_table(node, precise(np.exp))


def _log(node: Node) -> Expr:
    if node.is_float():
        return ops.log(node.input(0))
    result_scale, zero_point = node.pair(node.result)
    least = np.float32(int(node.result.dtype.limits[0]) - zero_point) * result_scale
    return real_table(node, lambda x: np.where(x <= 0, least, precise(np.log)(np.where(x <= 0, np.float32(1), x))))


# --- activations ------------------------------------------------------------------------------------------------------


def _bounded(least: float, greatest: float) -> Converter:
    """Make a converter that clamps between two bounds."""

    def convert(node: Node) -> Expr:
        if node.is_float():
            return ops.clip(node.input(0), minimum=least, maximum=greatest)
        low, high = node.bounds(least, greatest)
        if node.pair(node.tensor(0)) == node.pair(node.result):
            return ops.clip(node.input(0), minimum=float(low), maximum=float(high))

        def build(x: Expr) -> Expr:
            (scale, _), (result_scale, zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
            shifted = ops.add(scaled(_centered(node, x), [scale / result_scale]), constant(np.int32(zero_point)))
            return ops.cast(ops.clip(shifted, minimum=float(low), maximum=float(high)), dtype=node.result.dtype.name)

        return apply_by_table(node, build)

    return convert


def _logistic(node: Node) -> Expr:
    if node.is_float():
        return ops.sigmoid(node.input(0))
    if node.tensor(0).dtype.bits == 16:
        return _in_fixed_point(sigmoid, node.wide(0)) if _scale_exponent(node) == GATE_BITS else sigmoid_16(node)
    one = np.float32(1)
    return real_table(node, lambda x: one / (one + precise(np.exp)(-x)))


def _tanh(node: Node) -> Expr:
    if node.is_float():
        return ops.tanh(node.input(0))
    if node.tensor(0).dtype.bits == 8:
        return real_table(node, precise(np.tanh))
    exponent = _scale_exponent(node)
    if exponent not in (GATE_BITS, GATE_BITS - 1):
        return tanh_16(node)
    wide = node.wide(0) if exponent == GATE_BITS else ops.add(node.wide(0), node.wide(0))
    return _in_fixed_point(tanh, wide)


def _scale_exponent(node: Node) -> int:
    """Return k if the scale of input 0 is 2^-k within a thousandth, else 0."""
    scale, _ = node.pair(node.tensor(0))
    exact = -math.log2(scale)
    return round(exact) if abs(exact - round(exact)) < 1e-3 else 0


def _in_fixed_point(activation: Callable[[Expr, int], Expr], wide: Expr) -> Expr:
    """Apply an activation to int32 values with the fraction bits of a gate. Values outside of 16 bits are clamped."""
    limits = np.iinfo(np.int16)
    clamped = ops.clip(wide, minimum=float(limits.min), maximum=float(limits.max))
    return ops.cast(activation(clamped, GATE_BITS), dtype="int16")


def _elu(node: Node) -> Expr:
    if not node.is_float():
        return real_table(node, lambda x: np.where(x < 0, precise(np.expm1)(np.minimum(x, 0)), x))
    x = node.input(0)
    zero, one = constant(np.float32(0)), constant(np.float32(1))
    return ops.where(ops.less(x, zero), ops.sub(ops.exp(ops.minimum(x, zero)), one), x)


def _gelu(node: Node) -> Expr:
    approximate = bool(node.options is not None and node.options.Approximate())
    if node.is_float():
        return ops.gelu(node.input(0), approximate=approximate)
    return real_table(node, _gelu_by_tanh if approximate else _gelu_by_erfc)


def _gelu_by_tanh(x: Array) -> Array:
    """Compute GELU in the order of LiteRT's operations, since each operation rounds."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + precise(np.tanh)(inner))


def _gelu_by_erfc(x: Array) -> Array:
    """Compute GELU in the order of LiteRT's operations, since each operation rounds."""
    rounded_erfc = precise(np.vectorize(math.erfc, otypes=[np.float64]))
    return np.float32(0.5) * x * rounded_erfc(x * np.float32(-math.sqrt(0.5)))


def _leaky_relu(node: Node) -> Expr:
    alpha = np.float32(node.options.Alpha())
    if node.is_float():
        x = node.input(0)
        return ops.where(ops.less(constant(np.float32(0)), x), x, ops.mul(x, constant(alpha)))
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)

    def build(x: Expr) -> Expr:
        wide = _centered(node, x)
        unscaled, shrunk = scaled(wide, [scale / result_scale]), scaled(wide, [scale * alpha / result_scale])
        return node.placed(ops.where(ops.less(wide, constant(np.int32(0))), shrunk, unscaled))

    return apply_by_table(node, build)


def _hard_swish(node: Node) -> Expr:
    if node.is_float():
        x = node.input(0)
        shifted = ops.clip(ops.add(x, constant(np.float32(3))), minimum=0.0, maximum=6.0)
        return ops.div(ops.mul(x, shifted), constant(np.float32(6)))
    return _hard_swish_8(node)


def _hard_swish_8(node: Node) -> Expr:
    """Compute hard swish in 16-bit integers: the value times a multiplier that increases from 0 at -3 to 32767 at 3."""
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    fine_scale = scale * np.float32(1 / (1 << HARD_SWISH_BITS))
    multipliers, shifts = fixed_points([float(fine_scale / result_scale), float(fine_scale / np.float32(3 / (1 << 15)))])
    (to_result, to_rise), _ = reduced(multipliers, shifts)
    if shifts[0] > 0:
        raise node.error(f"the scale of the result is too small for data with scale {scale}, got {result_scale}")
    value = (byte_values(node.tensor(0).dtype.name).astype(np.int64) - zero_point) << HARD_SWISH_BITS
    rise = value
    if shifts[1] > 0:
        rise = saturate_int16(_high(saturate_int16(rise << (shifts[1] - 1)), to_rise) << 1)
    else:
        rise = halved(_high(rise, to_rise), -shifts[1])
    product = ((rise + (1 << 15)) >> 1) * _high(value, to_result)
    outputs = halved(np.where(product < 0, -(-product >> 15), product >> 15), -shifts[0]) + result_zero_point
    limits = np.iinfo(node.result.dtype.name)
    return look_up(np.clip(outputs, limits.min, limits.max).astype(node.result.dtype.numpy), node.input(0))


def _high(a: Array, b: Array) -> Array:
    """Return the rounded upper half of a 16-bit product."""
    return (a * b + (1 << 14)) >> 15


CONVERTERS: Mapping[str, Converter] = {
    "ABS": typed(_abs, "float32 int8 int16 int32"),
    "CEIL": typed(_plain(ops.ceil), "float32"),
    "COS": typed(_plain(ops.cos), "float32 float16"),
    "ELU": typed(_elu, "float32 int8"),
    "EXP": typed(_exp, "float32 int8 int16"),
    "FLOOR": typed(_plain(ops.floor), "float32 float16 bfloat16"),
    "GELU": typed(_gelu, "float32 float16 int8 uint8 int16"),
    "HARD_SWISH": typed(_hard_swish, "float32 int8 uint8"),
    "LEAKY_RELU": typed(_leaky_relu, "float32 int8 uint8 int16"),
    "LOG": typed(_log, "float32 int8 int16"),
    "LOGICAL_NOT": typed(_plain(ops.logical_not), "bool"),
    "LOGISTIC": typed(_logistic, "float32 float16 bfloat16 int8 uint8 int16"),
    "NEG": typed(_plain(ops.neg), "float32 float16 bfloat16 int8 int16 int32 int64"),
    "RELU": typed(_bounded(0.0, np.inf), "float32 int8 uint8 int16"),
    "RELU6": typed(_bounded(0.0, 6.0), "float32 int8 uint8 int16"),
    "RELU_0_TO_1": typed(_bounded(0.0, 1.0), "float32 int8 uint8"),
    "RELU_N1_TO_1": typed(_bounded(-1.0, 1.0), "float32 int8 uint8"),
    "ROUND": typed(_plain(ops.round), "float32 float16 bfloat16"),
    "RSQRT": typed(_rsqrt, "float32 int8 int16"),
    "SIGN": typed(_plain(ops.sign), "float32 float64 int32"),
    "SIN": typed(_plain(ops.sin), "float32 float16"),
    "SQRT": typed(_sqrt, "float32 int8 int16"),
    "SQUARE": typed(_square, "float32"),
    "TANH": typed(_tanh, "float32 float16 bfloat16 int8 uint8 int16"),
}
