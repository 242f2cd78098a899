"""Products in fixed point by the upper half of one product of 64 bits.

`multiply_fixed` rounds twice, both times after a division by a power of two: floor((floor((p + 2^30) / 2^31) + 2^(r - 1)) / 2^r).
Divisions that round down may be taken together, so that this is floor((p + 2^30 + 2^(30 + r)) / 2^(31 + r)): one sum in 64 bits, of
which the upper half is shifted r - 1 places further in 32. Where halves go away from 0, a negative x takes 2^31 off the sum: what
lies between -2^30 and 0, where the first rounding gives 0, is rounded to 0 by the second in either way.

A vector unit has a multiplication of 32 bits to 64, so that it takes a third of the instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inlay import ops
from inlay.graph.ir import Call, Constant, Expr, Function, constant
from inlay.graph.transform import transform_function
from inlay.ops.upper_half import multiply_high
from inlay.plugins.contract import Capabilities
from inlay.types import TensorType

Array = np.ndarray[Any, Any]


def fixed_products(function: Function, capabilities: Capabilities) -> Function:
    """The function with such products, by known factors. The same object where there are none, or the target has no vectors."""
    if not capabilities.vector_bits:
        return function
    return transform_function(function, lambda old, new: _by_upper_half(new) or new)


def _by_upper_half(expr: Expr) -> Expr | None:
    """The product that an expression is; None for anything else, and where it might not fit."""
    if not isinstance(expr, Call) or expr.callee is not ops.multiply_fixed or expr.attrs.rounding == "once":
        return None
    x, multiplier, shift = expr.args
    if not isinstance(multiplier, Constant) or not isinstance(shift, Constant) or np.any(multiplier.data < 0):
        return None
    places = shift.data.astype(np.int64)
    away = expr.attrs.rounding == "away" and bool(np.any(places < 0))
    if places.size == 0 or np.any(places < -ops.fixed_point.FRACTION) or (away and np.any(places >= 0)):
        return None
    # Without a shift to the right the data are doubled, so that the upper half is what is left.
    left, right = np.maximum(places + 1, 0), np.maximum(-places, 1)
    if left.any():
        if _bits(x) + int(left.max()) > ops.fixed_point.FRACTION:
            return None
        assert isinstance(x.type, TensorType)
        shape = [-1 if axis == expr.attrs.axis else 1 for axis in range(x.type.rank)] if left.ndim else []
        x = ops.shift_left(x, constant(left.astype(np.int32).reshape(shape)), span=expr.span)
    added = np.where(places < 0, (1 << 30) + (1 << (30 + right)), 1 << 31).astype(np.int64)
    return multiply_high(
        x,
        multiplier,
        constant(np.asarray(added)),
        constant(np.asarray(right - 1, np.int32)),
        axis=expr.attrs.axis,
        away=away,
        span=expr.span,
    )


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
