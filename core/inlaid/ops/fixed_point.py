"""Fixed-point multiplication of integers by real factors, for integer-only quantized networks.

A factor multiplier * 2^(shift - 31) is represented by a 32-bit `multiplier` in [2^30, 2^31) or 0, and a `shift`. The algorithm is
that of gemmlowp (Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR
2018), which TensorFlow Lite uses, with the rounding modes of TensorFlow Lite's kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsFloat

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr, constant
from inlaid.graph.operator import Attrs, FusionKind, Operator, Traits
from inlaid.ops.define import Array, broadcast_read, check_axis, make_family, quiet, tensor_type
from inlaid.plugins.contract import AWAY, ONCE, ONCE_AWAY, UP
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type

FRACTION = 31
"""Fraction bits of a multiplier."""
LIMITS = np.iinfo(np.int32)
SINGLE = (ONCE, ONCE_AWAY)
"""Rounding modes that round the whole product once."""
ROUNDINGS = (UP, AWAY, *SINGLE)


@dataclass(frozen=True)
class FixedAttrs(Attrs):
    """`axis`: the axis of 1-d multipliers and shifts. `rounding`: "up" and "away" round twice: first the upper half of the product,
    half up, then its right shift, half up or half away from 0. "once" and "once_away" round the whole product once, half up and
    half away from 0."""

    axis: int = 0
    rounding: str = "up"


def fixed_point(factor: float, bits: int = FRACTION) -> tuple[int, int]:
    """Return the multiplier, with at most `bits` significant bits, and the shift of a non-negative real factor. Factors below 2^-31
    are flushed to 0."""
    if factor == 0:
        return 0, 0
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << bits) + 0.5) << (FRACTION - bits)
    if multiplier == 1 << FRACTION:
        multiplier, shift = multiplier // 2, shift + 1
    return (0, 0) if shift < -FRACTION else (multiplier, shift)


def fixed_points(factors: Sequence[float], bits: int = FRACTION) -> tuple[Array, Array]:
    """Return the int32 multipliers and shifts of several factors."""
    multipliers, shifts = zip(*(fixed_point(factor, bits) for factor in factors), strict=True)
    return np.array(multipliers, np.int32), np.array(shifts, np.int32)


def reduced(multipliers: Array, shifts: Array) -> tuple[Array, Array]:
    """Round multipliers to 15 bits and adapt the shifts. Products with int64 values below 2^47 then do not overflow."""
    rounded = (multipliers.astype(np.int64) + (1 << 15)) >> 16
    return np.minimum(rounded, (1 << 15) - 1).astype(np.int32), (shifts + 16).astype(np.int32)


def _infer(attrs: FixedAttrs, x: Type, multiplier: Type, shift: Type) -> Type:
    tensor = tensor_type(x)
    if attrs.rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, got {attrs.rounding!r}")
    if tensor.dtype.name != "int32" and not (tensor.dtype.name == "int64" and attrs.rounding in SINGLE):
        single = " or ".join(SINGLE)
        raise ValueError(f"x must be int32, or int64 with rounding {single}, got {tensor.dtype} with rounding {attrs.rounding}")
    for part, what in ((multiplier, "the multiplier"), (shift, "the shift")):
        parameter = tensor_type(part, what=what)
        if parameter.dtype.name != "int32":
            raise ValueError(f"{what} must be int32, got {parameter.dtype}")
        check_channels(attrs.axis, tensor, parameter, what)
    return TensorType(tensor.shape, "int32")


def check_channels(axis: int, tensor: TensorType, parameter: TensorType, what: str) -> None:
    """Require the tensor `parameter` to be 0-d, or to have one element per index of an axis of `tensor`. Raises ValueError."""
    if parameter.rank:
        require_shape(parameter.shape, (tensor.shape[check_axis(axis, tensor.rank)],), what)


@quiet
def _reference(attrs: FixedAttrs, x: Array, multiplier: Array, shift: Array) -> Array:
    shape = [-1 if axis == attrs.axis else 1 for axis in range(x.ndim)]
    factor, shifts = (parameter.reshape(shape) if parameter.ndim else parameter for parameter in (multiplier, shift))
    if attrs.rounding in SINGLE:
        right_shift = FRACTION - shifts.astype(np.int64)
        product = x.astype(np.int64) * factor
        rounding_term = (np.int64(1) << (right_shift - 1)) - (product < 0) * (attrs.rounding == ONCE_AWAY)
        return np.asarray(((product + rounding_term) >> right_shift).astype(np.int32)).reshape(x.shape)
    left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
    product = np.left_shift(x, left).astype(np.int64) * factor.astype(np.int64)
    high = np.clip((product + (1 << (FRACTION - 1))) >> FRACTION, LIMITS.min, LIMITS.max)
    rounding_half = (np.int64(1) << right) >> 1
    if attrs.rounding == "away":
        rounding_half = np.where(high < 0, np.maximum(rounding_half - 1, 0), rounding_half)
    return np.asarray(((high + rounding_half) >> right).astype(np.int32)).reshape(x.shape)


def fixed_value(x: ir.Expr, multiplier: ir.Expr, shift: ir.Expr, rounding: str) -> ir.Expr:
    """Build x * multiplier * 2^(shift - 31), rounded twice: first half up, then half up or half away from 0, by `rounding`."""
    left, right = te.maximum(shift, 0), te.maximum(0 - shift, 0)
    product = te.cast(x << left, "int64") * te.cast(multiplier, "int64")
    high = (product + (1 << (FRACTION - 1))) >> FRACTION
    high = te.minimum(te.maximum(high, int(LIMITS.min)), int(LIMITS.max))
    rounding_term = (te.const(1, "int64") << te.cast(right, "int64")) >> 1
    if rounding == "away":
        rounding_term = te.select(high < 0, te.maximum(rounding_term - 1, 0), rounding_term)
    return te.cast((high + rounding_term) >> te.cast(right, "int64"), "int32")


def _compute(attrs: FixedAttrs, x: te.Tensor, multiplier: te.Tensor, shift: te.Tensor) -> te.Tensor:
    def element(*indices: arith.Var) -> ir.Expr:
        def read(parameter: te.Tensor) -> ir.Expr:
            return (
                parameter[()] if parameter.rank == 0 else broadcast_read(parameter, (x.shape[attrs.axis],), (indices[attrs.axis],))
            )

        shift_count = read(shift)
        if attrs.rounding in SINGLE:
            right_shift = FRACTION - te.cast(shift_count, "int64")
            product = te.cast(x[indices], "int64") * te.cast(read(multiplier), "int64")
            rounding_term = te.const(1, "int64") << (right_shift - 1)
            if attrs.rounding == ONCE_AWAY:
                rounding_term = te.select(product < 0, rounding_term - 1, rounding_term)
            return te.cast((product + rounding_term) >> right_shift, "int32")
        return fixed_value(x[indices], read(multiplier), shift_count, attrs.rounding)

    result: te.Tensor = te.compute(x.shape, element, "multiply_fixed")
    return result


multiply_fixed = Operator(
    "multiply_fixed",
    _infer,
    FixedAttrs,
    reference=_reference,
    compute=_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    traits=Traits(monotone=True),
    arity=(3, 3),
    inputs=("x", "multiplier", "shift"),
    doc="""Fixed-point multiplication: x * multiplier * 2^(shift - 31), rounded.
A positive shift first shifts x left, which wraps. The upper half of the 64-bit product is rounded half up. A negative shift then
shifts the upper half right, rounded by `rounding`. With rounding "once" or "once_away", the shift must be at most 30, and the
64-bit product, which wraps, is shifted right and rounded once, half up or half away from 0.
Operands: x, int32, or int64 with these two roundings; multiplier and shift, int32, 0-d or one element per index of `axis`.
Result: int32, shape of x.""",
)


def scaled(total: Expr, factors: Sequence[SupportsFloat], axis: int = 0, rounding: str = "away", bits: int = FRACTION) -> Expr:
    """Multiply integers by real factors with `bits` significant bits: one factor, or one per index of `axis`. An int64 product is
    always rounded once, half up unless `rounding` says otherwise."""
    multipliers, shifts = fixed_points([float(factor) for factor in factors], bits)
    if tensor_type(total.type).dtype.name == "int64":
        (multipliers, shifts), rounding = reduced(multipliers, shifts), rounding if rounding in SINGLE else ONCE
    if len(factors) == 1:
        multipliers, shifts = multipliers.reshape(()), shifts.reshape(())
    return multiply_fixed(total, constant(multipliers), constant(shifts), axis=axis, rounding=rounding)


OPERATORS = make_family(multiply_fixed)
