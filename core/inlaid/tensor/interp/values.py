"""Value semantics of the loop IR on numpy arrays and scalars, used by the interpreter.

A value is held in the *carrier* of its dtype. This is the numpy dtype itself if numpy supports its arithmetic, int8 or uint8 for
narrower integers, and float32 for narrower floats, rounded after each operation. Rounding twice is harmless, since 24 bits exceed
twice the precision of these floats plus two. Functions accept arrays and numpy scalars. Callers must silence floating-point
warnings (`numpy.errstate(all="ignore")`).
"""

from __future__ import annotations

import math as scalar_math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from inlaid.tensor.powers import power
from inlaid_runtime.types import DType

Value = Any
"""A numpy array or scalar of a carrier dtype."""


def carrier(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype in which values of a dtype are computed."""
    if dtype.is_float and dtype.bits < 32:
        return np.dtype(np.float32)
    if dtype.is_int and dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return dtype.numpy


def load(value: Value, dtype: DType) -> Value:
    """Convert stored elements to the carrier."""
    return value.astype(carrier(dtype)) if value.dtype != carrier(dtype) else value


def constant(value: float, dtype: DType) -> Value:
    """Convert a constant to the carrier. Floats are rounded; integers must be in range."""
    if dtype.is_float:
        return rounded(carrier(dtype).type(value), dtype)
    return carrier(dtype).type(value)


def poison(shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return an array of poison values, to detect reads of uninitialized memory: NaN, or else bytes 0xA5 (bool: true)."""
    if dtype.kind == "bool":
        return np.ones(shape, np.bool_)
    if dtype.is_float and dtype.name != "float4e2m1":
        return np.full(shape, np.nan, np.float32).astype(dtype.numpy)
    elements = np.full((*shape, dtype.bytes), 0xA5 if dtype.bits >= 8 else 0xA5 & ((1 << dtype.bits) - 1), np.uint8)
    return elements.view(dtype.numpy).reshape(shape)


def rounded(value: Value, dtype: DType) -> Value:
    """Round the result of a float operation in the carrier to the dtype."""
    return value if dtype.bits >= 32 else value.astype(dtype.numpy).astype(np.float32)


def wrapped(value: Value, dtype: DType) -> Value:
    """Wrap the result of an integer operation in the carrier to the dtype."""
    if dtype.bits >= 8:
        return value
    if dtype.kind == "uint":
        return value & np.uint8((1 << dtype.bits) - 1)
    shift = np.int8(8 - dtype.bits)
    return (value << shift) >> shift


def from_index(value: Value, dtype: DType) -> Value:
    """Convert an integer (a Python int or an int64 array) to a value of an integer dtype or bool."""
    if dtype.kind == "bool":
        return np.not_equal(value, 0)
    if isinstance(value, int):
        value = np.int64((value + (1 << 63)) % (1 << 64) - (1 << 63))
    return wrapped(value.astype(carrier(dtype)), dtype)


def _where(condition: Value, then: Value, otherwise: Value) -> Value:
    """Select like numpy.where, but return a scalar for scalars."""
    result: Value = np.where(condition, then, otherwise)
    return result[()]


# --- unary ------------------------------------------------------------------------------------------------------------


def unary(op: str, dtype: DType, a: Value) -> Value:
    """Apply operator `op` of ir.UNARY."""
    return _UNARY[op](a, dtype)


def _invert(a: Value, dtype: DType) -> Value:
    return np.logical_not(a) if dtype.kind == "bool" else wrapped(~a, dtype)


def _unsigned(a: Value, dtype: DType) -> Value:
    """Return the bits of an integer as uint64."""
    return a.astype(np.uint64) & np.uint64((1 << dtype.bits) - 1)


def _popcount(a: Value, dtype: DType) -> Value:
    bits = _unsigned(a, dtype)
    count = bits & np.uint64(0)
    for position in range(dtype.bits):
        count = count + ((bits >> np.uint64(position)) & np.uint64(1))
    return wrapped(count.astype(carrier(dtype)), dtype)


def _clz(a: Value, dtype: DType) -> Value:
    bits = _unsigned(a, dtype)
    zeros = bits & np.uint64(0)
    for position in range(dtype.bits):
        zeros = zeros + (bits >> np.uint64(position) == 0)
    return wrapped(zeros.astype(carrier(dtype)), dtype)


_UNARY: dict[str, Callable[[Value, DType], Value]] = {
    "neg": lambda a, dtype: -a if dtype.is_float else wrapped(np.negative(a), dtype),
    "abs": lambda a, dtype: np.abs(a) if dtype.is_float else wrapped(np.abs(a), dtype),
    "not": _invert,
    "sqrt": lambda a, dtype: rounded(np.sqrt(a), dtype),
    "floor": lambda a, dtype: rounded(np.floor(a), dtype),
    "ceil": lambda a, dtype: rounded(np.ceil(a), dtype),
    "round": lambda a, dtype: rounded(np.rint(a), dtype),
    "trunc": lambda a, dtype: rounded(np.trunc(a), dtype),
    "isnan": lambda a, dtype: np.isnan(a),
    "isinf": lambda a, dtype: np.isinf(a),
    "popcount": _popcount,
    "clz": _clz,
}


# --- binary -----------------------------------------------------------------------------------------------------------


def binary(op: str, dtype: DType, a: Value, b: Value) -> Value:
    """Apply operator `op` of ir.BINARY to two values of dtype `dtype`."""
    result = _BINARY[op](a, b, dtype)
    if op in _EXACT:
        return result
    return rounded(result, dtype) if dtype.is_float else wrapped(result, dtype) if dtype.is_int else result


def _quotient(a: Value, b: Value, dtype: DType) -> Value:
    """Compute truncating integer division; 0 where b is 0."""
    if dtype.is_float:
        return a / b
    safe_divisor = _where(b == 0, b.dtype.type(1), b)
    if dtype.kind == "uint":
        return _where(b == 0, b.dtype.type(0), a // safe_divisor)
    floored = np.floor_divide(a, safe_divisor)
    # Floor division differs from truncation where the signs differ and the division is inexact.
    inexact = (floored * safe_divisor != a) & ((a < 0) != (safe_divisor < 0))
    return _where(b == 0, b.dtype.type(0), floored + inexact.astype(b.dtype))


def _remainder(a: Value, b: Value, dtype: DType) -> Value:
    if dtype.is_float:
        return np.fmod(a, b)
    return _where(b == 0, b.dtype.type(0), a - _quotient(a, b, dtype) * b)


def _shift(a: Value, b: Value, dtype: DType, left: bool) -> Value:
    in_range = (b >= 0) & (b < dtype.bits)
    safe_count = _where(in_range, b, b.dtype.type(0))
    if left:
        return _where(in_range, a << safe_count, a.dtype.type(0))
    return _where(in_range, a >> safe_count, -(a < 0).astype(a.dtype) if dtype.kind == "int" else a.dtype.type(0))


_BINARY: dict[str, Callable[[Value, Value, DType], Value]] = {
    "add": lambda a, b, dtype: a + b,
    "sub": lambda a, b, dtype: a - b,
    "mul": lambda a, b, dtype: a * b,
    "div": _quotient,
    "mod": _remainder,
    "min": lambda a, b, dtype: np.minimum(a, b),
    "max": lambda a, b, dtype: np.maximum(a, b),
    "and": lambda a, b, dtype: a & b,
    "or": lambda a, b, dtype: a | b,
    "xor": lambda a, b, dtype: a ^ b,
    "shl": lambda a, b, dtype: _shift(a, b, dtype, left=True),
    "shr": lambda a, b, dtype: _shift(a, b, dtype, left=False),
    "lt": lambda a, b, dtype: a < b,
    "le": lambda a, b, dtype: a <= b,
    "eq": lambda a, b, dtype: a == b,
    "ne": lambda a, b, dtype: a != b,
}
_EXACT = frozenset(("min", "max", "and", "or", "xor", "lt", "le", "eq", "ne"))


# --- fma --------------------------------------------------------------------------------------------------------------


def fma(dtype: DType, a: Value, b: Value, c: Value) -> Value:
    """Compute a * b + c with one rounding."""
    if not dtype.is_float:
        return binary("add", dtype, binary("mul", dtype, a, b), c)
    if dtype.bits < 64:
        # The product of two float32 is exact in float64. The sum, rounded to odd there, then rounds to the dtype as the exact sum
        # would (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
        wide = _sum_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
        return rounded(wide.astype(np.float32), dtype) if dtype.bits == 32 else _narrow_wide(wide, dtype)
    return _fma_wide(a, b, c)


def _fma_wide(a: Value, b: Value, c: Value) -> Value:
    """Compute a fused multiply-add of float64. Product and sum are exact, as several numbers; the last two are added rounding to
    odd (Boldo and Melquiond). If that might overflow or underflow, compute in fractions."""
    high = a * b
    a_high, b_high = a * 134217729.0, b * 134217729.0
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    low = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
    first, first_low = _two_sum(c, low)
    second, second_low = _two_sum(high, first)
    result = np.asarray(second + _sum_to_odd(second_low, first_low))
    wide = np.abs(high)
    in_range = (wide > 2.0**-900) & (wide < 2.0**900) & (np.maximum(np.abs(a), np.abs(b)) < 2.0**900) & (np.abs(c) < 2.0**900)
    if not np.all(in_range):
        operands = np.broadcast_arrays(result, in_range, a, b, c)
        result = np.array(
            [
                element if is_in_range else _fma_exact(x, y, z)
                for element, is_in_range, x, y, z in zip(*(item.flat for item in operands), strict=True)
            ],
            np.float64,
        ).reshape(operands[0].shape)
    return result[()]


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _narrow_wide(wide: Value, dtype: DType) -> Value:
    """Round a float64, which was rounded to odd, to a dtype narrower than float32, via float32 rounded to odd."""
    nearest = wide.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.int32)
    step = _where(np.abs(back) < np.abs(wide), np.int32(1), np.int32(-1))
    odd = _where((back != wide) & (bits & 1 == 0) & np.isfinite(nearest), bits + step, bits).astype(np.int32).view(np.float32)
    return rounded(odd, dtype)


def _sum_to_odd(p: Value, c: Value) -> Value:
    """Compute p + c in float64, rounded to odd: if inexact, the neighbor whose last bit is set."""
    s, error = _two_sum(p, c)
    bits = np.asarray(s).view(np.int64)
    is_exact_larger = (error > 0) == (s > 0)
    odd = _where((error != 0) & np.isfinite(error) & (bits & 1 == 0), bits + _where(is_exact_larger, 1, -1), bits)
    return odd.view(np.float64)[()]


def _fma_exact(a: float, b: float, c: float) -> float:
    a, b, c = float(a), float(b), float(c)
    if a == 0 or b == 0 or not (scalar_math.isfinite(a) and scalar_math.isfinite(b) and scalar_math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        return float(exact)
    except OverflowError:
        return scalar_math.inf if exact > 0 else -scalar_math.inf


# --- conversions ------------------------------------------------------------------------------------------------------


def cast(a: Value, source: DType, target: DType) -> Value:
    """Convert a value from one dtype to another."""
    if target.kind == "bool":
        return a != 0
    if target.is_float:
        if target.bits >= 32:
            return a.astype(target.numpy)
        return _narrow_wide(a.astype(np.float64), target) if source.bits > 32 else rounded(a.astype(np.float32), target)
    if source.is_float:
        return _saturated(a, target)
    return wrapped(a.astype(carrier(target)), target)


def _saturated(a: Value, target: DType) -> Value:
    low, high = target.limits
    wide = np.trunc(a.astype(np.float64))
    in_range = (wide >= low) & (wide < float(high + 1))
    scalar_type = carrier(target).type
    integer = _where(in_range, wide, 0.0).astype(np.uint64 if target.kind == "uint" else np.int64).astype(scalar_type)
    return _where(in_range, integer, _where(wide < low, scalar_type(low), _where(wide > 0, scalar_type(high), scalar_type(0))))


def stored(value: Value, dtype: DType) -> Value:
    """Convert a value from the carrier to the numpy dtype in which it is stored."""
    return value if value.dtype == dtype.numpy else value.astype(dtype.numpy)


def bitcast(a: Value, source: DType, target: DType) -> Value:
    """Reinterpret the bits of a value as another dtype."""
    bits = np.ascontiguousarray(stored(np.asarray(a), source)).view(target.numpy).reshape(np.shape(a))
    return load(bits, target)[()]


# --- mathematical functions -------------------------------------------------------------------------------------------


def math(name: str, dtype: DType, *args: Value) -> Value:
    """Apply a function of ir.MATH, computed in float64 and rounded to the dtype."""
    wide = _MATH[name](*(arg.astype(np.float64) for arg in args))
    return wide if dtype.bits == 64 else _narrow_wide(wide, dtype) if dtype.bits < 32 else wide.astype(np.float32)


def _sigmoid(x: Value) -> Value:
    small = np.exp(-np.abs(x))
    return _where(x < 0, small / (1 + small), 1 / (1 + small))


def _erf(x: Value) -> Value:
    flat = [scalar_math.erf(item) for item in np.ravel(x).tolist()]
    return np.array(flat, np.float64).reshape(np.shape(x))[()]


_MATH: dict[str, Callable[..., Value]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "pow": power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "scalb": lambda x, n: np.ldexp(x, np.nan_to_num(n).astype(np.int32)),
    "flush": lambda x: x,
}
