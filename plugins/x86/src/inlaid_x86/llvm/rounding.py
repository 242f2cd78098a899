"""Recognition of floats rounded to narrow integers, as at the end of quantized operators, to print fewer instructions."""

from __future__ import annotations

from inlaid.tensor import ir

_RANGE = float(1 << 30)
"""Maximum magnitude of a float that can be converted to int32 and added to a narrow integer without overflow."""


def rounded(expr: ir.Cast) -> tuple[ir.Expr, ir.Expr | None] | None:
    """Match a cast of int32(round(x)), or of int32(round(x)) + y, to an integer of at most 16 bits. Returns the float x and the
    int32 y (None if absent). Returns None for other expressions, and if x may exceed the range of int32.

    Conversion instructions return -2^31 for NaN. Truncation to 16 bits gives the required 0.
    """
    if not expr.dtype.is_int or expr.dtype.bits > 16:
        return None
    match expr.a:
        case ir.Cast(a=ir.Unary(op="round", a=real), dtype=dtype):
            other = None
        case ir.Binary(op="add", a=ir.Cast(a=ir.Unary(op="round", a=real), dtype=dtype), b=other):
            pass
        case _:
            return None
    return (real, other) if dtype.name == "int32" and real.dtype.is_float and _is_bounded(real) else None


def _is_bounded(real: ir.Expr) -> bool:
    match real:
        case ir.Binary(op="min", a=ir.Binary(op="max", b=low), b=high):
            bounds = value_bounds(low), value_bounds(high)
            return all(bound is not None and max(map(abs, bound)) <= _RANGE for bound in bounds)
    return False


def value_bounds(expr: ir.Expr) -> tuple[float, float] | None:
    """Return bounds of an integer, a constant, a float converted from an integer, or a difference of such floats. Returns None for
    other floats, which may be NaN."""
    match expr:
        case ir.Const(value=value) if value == value:
            return float(value), float(value)
        case ir.Cast(a=a) if a.dtype.is_int:
            inner = value_bounds(a)
            if expr.dtype.is_float or (inner is not None and inner[0] >= expr.dtype.limits[0] and inner[1] <= expr.dtype.limits[1]):
                return inner
        case ir.Binary(op="sub", a=a, b=b) if expr.dtype.is_float:
            left, right = value_bounds(a), value_bounds(b)
            return None if left is None or right is None else (left[0] - right[1], left[1] - right[0])
    return (float(expr.dtype.limits[0]), float(expr.dtype.limits[1])) if expr.dtype.is_int else None
