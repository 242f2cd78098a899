"""Products in fixed point by the upper half of one product of 64 bits.

`multiply_fixed` rounds twice, both times after a division by a power of two: floor((floor((p + 2^30) / 2^31) + 2^(r - 1)) / 2^r).
Divisions that round down may be taken together or apart, so that this is floor((floor((p + 2^30) / 2^32) + 2^(r - 2)) / 2^(r - 1))
from r = 2 on: all but one sum is done in 32 bits. Where halves go away from 0, a negative product has 2^31 less added: what lies
between -2^30 and 0, where the first rounding gives 0, is rounded to 0 by the second in either way.

A vector unit has a multiplication of 32 bits to 64, so that it takes a third of the instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, children, constant
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import scalar
from inlaid.ops.upper_half import multiply_high
from inlaid.passes.supported import Supports, is_supported, supports_all
from inlaid.types import TensorType

Array = np.ndarray[Any, Any]


def fixed_products(function: Function, supports: Supports = supports_all) -> Function:
    """The function with such products, by known factors. The same object without any, or where the target does not claim
    them."""

    def visit(old: Expr, new: Expr) -> Expr:
        made = _by_upper_half(new)
        return new if made is None or not is_supported(made, supports, *_operands(new)) else made

    return transform_function(function, visit)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    """What a product, or a shift that becomes part of it, is computed from."""
    return tuple(inner for child in children(expr) for inner in (child, *children(child)))


def _by_upper_half(expr: Expr) -> Expr | None:
    """The product that an expression is; None for anything else, and where it might not fit."""
    if not isinstance(expr, Call) or expr.callee is not ops.multiply_fixed or expr.attrs.rounding == "once":
        return None
    x, multiplier, shift = expr.args
    if not isinstance(multiplier, Constant) or not isinstance(shift, Constant) or np.any(multiplier.data < 0):
        return None
    places = shift.data.astype(np.int64)
    if multiplier.data.size == places.size == 1 and (moved := _by_shift(x, int(multiplier.data.item()), int(places.item()))):
        return moved
    axis, away = expr.attrs.axis, expr.attrs.rounding == "away"
    if places.size and np.all((places <= -2) & (places >= -ops.fixed_point.FRACTION)):
        added, right = np.asarray(1 << (-places - 2), np.int32), np.asarray(-places - 1, np.int32)
        return multiply_high(x, multiplier, constant(added), constant(right), low=1 << 30, axis=axis, away=away, span=expr.span)
    nothing = scalar(0, "int32")
    if places.size and np.all(places == -1):
        return multiply_high(x, multiplier, nothing, nothing, low=3 << 30, axis=axis, away=away, span=expr.span)
    # Without a shift to the right there is one rounding, and twice the data have the rest in the upper half.
    if places.size != 1 or places.item() < 0 or _bits(x) + places.item() + 1 > ops.fixed_point.FRACTION:
        return None
    twice = ops.shift_left(x, scalar(places.item() + 1, "int32"), span=expr.span)
    return multiply_high(twice, multiplier, nothing, nothing, low=1 << 31, axis=axis, span=expr.span)


def _by_shift(x: Expr, multiplier: int, places: int) -> Expr | None:
    """Data that are shifted to the left, times a power of two, which loses none of their bits: a shorter shift."""
    if multiplier != 1 << 30 or not isinstance(x, Call) or x.callee is not ops.shift_left or not isinstance(x.args[1], Constant):
        return None
    if x.args[1].data.size != 1 or _bits(x) + max(places, 0) > ops.fixed_point.FRACTION:
        return None
    left = int(x.args[1].data.item()) + places - 1
    return ops.shift_left(x.args[0], scalar(left, "int32"), span=x.span) if left >= 0 else None


def _bits(expr: Expr) -> int:
    """How many bits the magnitude of an integer takes at most, as far as the operators say that raise bytes."""
    assert isinstance(expr.type, TensorType)
    if isinstance(expr, Call) and len(expr.args) == 2 and isinstance(expr.args[1], Constant) and expr.args[1].data.size == 1:
        number = int(expr.args[1].data.item())
        if expr.callee is ops.shift_left and 0 <= number < expr.type.dtype.bits:
            return _bits(expr.args[0]) + number
        if expr.callee in (ops.add, ops.sub):
            return max(_bits(expr.args[0]), abs(number).bit_length()) + 1
    if isinstance(expr, Call) and expr.callee is ops.cast and isinstance(expr.args[0].type, TensorType):
        of = expr.args[0].type.dtype
        if of.is_int and of.bits < expr.type.dtype.bits:
            return of.bits
    return expr.type.dtype.bits
