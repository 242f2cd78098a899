"""Floats that are rounded to narrow integers, as quantised operators end: one instruction instead of several."""

from __future__ import annotations

from inlaid.tensor import ir

_RANGE = float(1 << 30)
"""Between this and its negative a float can be converted to an int32, and a narrow integer added."""


def rounded(expr: ir.Cast) -> tuple[ir.Expr, ir.Expr | None] | None:
    """The float that an integer of at most 16 bits comes from by rounding to nearest, and the int32 that is added to it then; None
    for other expressions, and where it is not certain that an int32 can hold the float.

    NaN, for which instructions give -2^31, counts as 0 as it should: in 16 bits they are the same.
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
            bounds = known_bounds(low), known_bounds(high)
            return all(bound is not None and max(map(abs, bound)) <= _RANGE for bound in bounds)
    return False


def known_bounds(expr: ir.Expr) -> tuple[float, float] | None:
    """The least and the greatest value of an integer, of a constant, and of a float converted from such, or less another; None for
    other floats, which may be NaN."""
    match expr:
        case ir.Const(value=value) if value == value:
            return float(value), float(value)
        case ir.Cast(a=a) if a.dtype.is_int:
            inner = known_bounds(a)
            if expr.dtype.is_float or (inner is not None and inner[0] >= expr.dtype.limits[0] and inner[1] <= expr.dtype.limits[1]):
                return inner
        case ir.Binary(op="sub", a=a, b=b) if expr.dtype.is_float:
            left, right = known_bounds(a), known_bounds(b)
            return None if left is None or right is None else (left[0] - right[1], left[1] - right[0])
    return (float(expr.dtype.limits[0]), float(expr.dtype.limits[1])) if expr.dtype.is_int else None
