"""Lookup tables of functions of a quantized integer, computed at import.

An 8-bit table has all values. A 16-bit table has every 128th value, as in LiteRT; values between are interpolated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, constant, function, var
from inlaid_runtime.types import TensorType
from inlaid_tflite.node import Node, half_away

Array = np.ndarray[Any, Any]
Real = Callable[[Array], Array]
"""A function of real numbers, on float32 or float64 arrays."""
STEPS = 512
"""Intervals of a 16-bit table, of 128 values each."""


def precise(function: Real) -> Real:
    """Wrap a numpy function to compute in float64 and round once, as accurate libraries do."""
    return lambda x: np.asarray(function(x.astype(np.float64)), x.dtype)


def look_up(values: Array, index: Expr) -> Expr:
    """Look up 8-bit integers in a table with one entry per integer, in ascending order."""
    assert isinstance(index.type, TensorType)
    if index.type.dtype.name == "int8":
        values, index = np.roll(values, 128), ops.bitcast(index, dtype="uint8")
    return ops.take(constant(values), index, axis=0)


def byte_values(dtype: str) -> Array:
    """Return all integers of an 8-bit dtype, in ascending order."""
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1, dtype=dtype)


def apply_by_table(node: Node, build: Callable[[Expr], Expr]) -> Expr:
    """Apply `build` to input 0; for 8-bit inputs, through a table of its 256 results."""
    dtype = node.tensor(0).dtype
    if dtype.bits != 8:
        return build(node.input(0))
    x = var("x", TensorType((256,), dtype))
    values = evaluate(function([x], build(x)), [byte_values(dtype.name)])
    assert isinstance(values, np.ndarray)
    return look_up(values, node.input(0))


def real_table(node: Node, real: Real) -> Expr:
    """Apply a real function to dequantized input 0, by a table as in LiteRT."""
    if node.tensor(0).dtype.bits == 8:
        return look_up(_table_8(node, real), node.input(0))
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    table = table_16(real, scale, zero_point, result_scale, result_zero_point)
    return interpolate(table, node.input(0))


def _table_8(node: Node, real: Real) -> Array:
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    stored = byte_values(node.tensor(0).dtype.name).astype(np.int32) - zero_point
    with np.errstate(all="ignore"):
        values = half_away(real(scale * stored.astype(np.float32)) * (np.float32(1) / result_scale)).astype(np.float32)
    limits = np.iinfo(node.result.dtype.name)
    entries: Array = np.clip(values + np.float32(result_zero_point), limits.min, limits.max).astype(node.result.dtype.numpy)
    return entries


def table_16(real: Real, scale: Any, zero_point: int, result_scale: Any, result_zero_point: int) -> Array:
    """Compute the 513 entries of a table for int16, in the precision of the scales. Each entry is adjusted by half of the
    interpolation error at the middle of its interval."""
    limits = np.iinfo(np.int16)
    float_type = np.asarray(scale).dtype.type
    first, last = (float_type(scale * float_type(limit - zero_point)) for limit in (limits.min, limits.max))
    lowest, highest = (float_type(result_scale * float_type(limit - result_zero_point)) for limit in (limits.min, limits.max))
    step = float_type((last - first) / float_type(STEPS))
    factor = float_type(float_type(1 << 16) / (highest - lowest))
    with np.errstate(all="ignore"):
        starts = first + np.arange(STEPS, dtype=float_type) * step
        starts_scaled = half_away(real(starts) * factor).astype(float_type)
        ends_scaled = real(first + np.arange(1, STEPS + 1, dtype=float_type) * step) * factor
        interpolated = half_away((ends_scaled + starts_scaled) / float_type(2)).astype(float_type)
        middle = half_away(real(starts + step / float_type(2)) * factor).astype(float_type)
        values = starts_scaled - half_away((interpolated - middle) / float_type(2)).astype(float_type)
        end = half_away(real(np.array([last], float_type)) * factor).astype(float_type)
    clipped = np.clip(np.concatenate([values, end]), limits.min, limits.max)
    # The midpoint of infinite neighbors is NaN: LiteRT has 0 there.
    entries: Array = np.where(np.isnan(clipped), 0, clipped).astype(np.int16)
    return entries


def interpolate(table: Array, index: Expr) -> Expr:
    """Interpolate a table of 513 entries at int16 values. Returns int16."""
    wide = ops.cast(index, dtype="int32")
    position = ops.add(ops.shift_right(wide, constant(np.int32(7))), constant(np.int32(256)))
    base, following = (
        ops.cast(ops.take(constant(table[start : start + STEPS]), position, axis=0), dtype="int32") for start in (0, 1)
    )
    part = ops.bitwise_and(wide, constant(np.int32(127)))
    # The slope is int16 and wraps.
    slope = ops.cast(ops.cast(ops.sub(following, base), dtype="int16"), dtype="int32")
    increment = ops.add(ops.mul(slope, part), constant(np.int32(64)))
    return ops.cast(ops.add(base, ops.shift_right(increment, constant(np.int32(7)))), dtype="int16")
