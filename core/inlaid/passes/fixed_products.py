"""Rewrite fixed-point multiplication to the upper half of one 64-bit product.

`multiply_fixed` divides by a power of two and rounds twice: floor((floor((p + 2^30) / 2^31) + 2^(r - 1)) / 2^r) for a product p.
Floor divisions compose, so for r >= 2 this equals floor((floor((p + 2^30) / 2^32) + 2^(r - 2)) / 2^(r - 1)), in which only the
first sum needs 64 bits. If halves round away from 0, a negative product adds 2^31 less: a product between -2^30 and 0, which the
first step rounds to 0, is rounded to 0 by the second step either way.

Vector units multiply 32 bits to 64, so this takes a third of the instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, children, constant
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import scalar
from inlaid.ops.fixed_point import FRACTION, SINGLE
from inlaid.ops.upper_half import multiply_high
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]


def fixed_products(function: Function, supports: Supports = supports_everything) -> Function:
    """Rewrite fixed-point products by constant multipliers. Returns the same object if there are no such products or the target
    does not support `multiply_high`."""

    def visit(old: Expr, new: Expr) -> Expr:
        replacement = _by_upper_half(new)
        return new if replacement is None or not is_supported(replacement, supports, *_operands(new)) else replacement

    return transform_function(function, visit)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of a product, and of a shift that may be merged into the product."""
    return tuple(inner for child in children(expr) for inner in (child, *children(child)))


def _by_upper_half(expr: Expr) -> Expr | None:
    """Rewrite a `multiply_fixed` call; None for any other expression, or if the result may overflow."""
    if not isinstance(expr, Call) or expr.callee is not ops.multiply_fixed or expr.attrs.rounding in SINGLE:
        return None
    x, multiplier, shift = expr.args
    if not isinstance(multiplier, Constant) or not isinstance(shift, Constant) or np.any(multiplier.data < 0):
        return None
    shifts = shift.data.astype(np.int64)
    if multiplier.data.size == shifts.size == 1:
        shorter_shift = _by_shift(x, int(multiplier.data.item()), int(shifts.item()))
        if shorter_shift is not None:
            return shorter_shift
    axis, rounds_away = expr.attrs.axis, expr.attrs.rounding == "away"
    if shifts.size and np.all((shifts <= -2) & (shifts >= -FRACTION)):
        offsets, right_shifts = np.asarray(1 << (-shifts - 2), np.int32), np.asarray(-shifts - 1, np.int32)
        return multiply_high(
            x, multiplier, constant(offsets), constant(right_shifts), low=1 << 30, axis=axis, away=rounds_away, span=expr.span
        )
    zero = scalar(0, "int32")
    if shifts.size and np.all(shifts == -1):
        return multiply_high(x, multiplier, zero, zero, low=3 << 30, axis=axis, away=rounds_away, span=expr.span)
    # Without a right shift there is one rounding: shift the data left so that the upper half is the result.
    if shifts.size != 1 or shifts.item() < 0 or _bits(x) + shifts.item() + 1 > FRACTION:
        return None
    shifted_left = ops.shift_left(x, scalar(shifts.item() + 1, "int32"), span=expr.span)
    return multiply_high(shifted_left, multiplier, zero, zero, low=1 << 31, axis=axis, span=expr.span)


def _by_shift(x: Expr, multiplier: int, shift: int) -> Expr | None:
    """Merge a left shift with a multiplication by a power of two into a shorter shift; None if bits may be lost."""
    if multiplier != 1 << 30 or not isinstance(x, Call) or x.callee is not ops.shift_left or not isinstance(x.args[1], Constant):
        return None
    if x.args[1].data.size != 1 or _bits(x) + max(shift, 0) > FRACTION:
        return None
    left_shift = int(x.args[1].data.item()) + shift - 1
    return ops.shift_left(x.args[0], scalar(left_shift, "int32"), span=x.span) if left_shift >= 0 else None


def _bits(expr: Expr) -> int:
    """Return an upper bound on the bits of an integer's magnitude, derived from casts, shifts and additions of constants."""
    assert isinstance(expr.type, TensorType)
    if isinstance(expr, Call) and len(expr.args) == 2 and isinstance(expr.args[1], Constant) and expr.args[1].data.size == 1:
        number = int(expr.args[1].data.item())
        if expr.callee is ops.shift_left and 0 <= number < expr.type.dtype.bits:
            return _bits(expr.args[0]) + number
        if expr.callee in (ops.add, ops.sub):
            return max(_bits(expr.args[0]), abs(number).bit_length()) + 1
    if isinstance(expr, Call) and expr.callee is ops.cast and isinstance(expr.args[0].type, TensorType):
        dtype = expr.args[0].type.dtype
        if dtype.is_int and dtype.bits < expr.type.dtype.bits:
            return dtype.bits
    return expr.type.dtype.bits
