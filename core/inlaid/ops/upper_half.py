"""The upper half of a 64-bit product: the form of `multiply_fixed` for vector targets.

One product and one sum are 64-bit, the rest is 32-bit. Only the pass `inlaid.passes.fixed_products` builds this operator.
"""

from __future__ import annotations

import numpy as np

from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import Array, broadcast_read, quiet, tensor_type
from inlaid.ops.fixed_point import check_channels
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Type

HALF_BITS = 32
_SIGN_SHIFT = 63
_AWAY_OFFSET = -(1 << 31)


@dataclass(frozen=True)
class HighAttrs(Attrs):
    """`axis`: the axis of 1-d operands. `low`: a constant added to the product. `away`: whether `low` - 2^31, instead of `low`, is
    added to a negative product."""

    low: int
    axis: int = 0
    away: bool = False


def _infer(attrs: HighAttrs, x: Type, multiplier: Type, added: Type, shift: Type) -> Type:
    tensor = tensor_type(x)
    parts = [tensor_type(part) for part in (multiplier, added, shift)]
    if any(item.dtype.name != "int32" for item in (tensor, *parts)):
        raise ValueError(f"the operands must be int32, got {', '.join(str(part.dtype) for part in parts)}")
    for parameter, what in zip(parts, ("the multiplier", "the added number", "the shift"), strict=True):
        check_channels(attrs.axis, tensor, parameter, what)
    return tensor


@quiet
def _reference(attrs: HighAttrs, x: Array, multiplier: Array, added: Array, shift: Array) -> Array:
    shape = [-1 if axis == attrs.axis else 1 for axis in range(x.ndim)]
    factor, addend, shift_count = (
        parameter.reshape(shape) if parameter.ndim else parameter for parameter in (multiplier, added, shift)
    )
    product = x.astype(np.int64) * factor
    product = product + np.where(attrs.away & (product < 0), attrs.low + _AWAY_OFFSET, attrs.low)
    return np.asarray(((product >> HALF_BITS).astype(np.int32) + addend) >> shift_count).reshape(x.shape)


def _compute(attrs: HighAttrs, x: te.Tensor, multiplier: te.Tensor, added: te.Tensor, shift: te.Tensor) -> te.Tensor:
    def element(*indices: arith.Var) -> ir.Expr:
        def read(parameter: te.Tensor) -> ir.Expr:
            return (
                parameter[()] if parameter.rank == 0 else broadcast_read(parameter, (x.shape[attrs.axis],), (indices[attrs.axis],))
            )

        product = te.cast(x[indices], "int64") * te.cast(read(multiplier), "int64")
        low: ir.Operand = attrs.low
        if attrs.away:
            away_offset = (product >> _SIGN_SHIFT) & _AWAY_OFFSET
            # An OR is one instruction; `away_offset` and `low` have no bits in common.
            low = away_offset + low if attrs.low & _AWAY_OFFSET else away_offset | low
        return (te.cast((product + low) >> HALF_BITS, "int32") + read(added)) >> read(shift)

    result: te.Tensor = te.compute(x.shape, element, "multiply_high")
    return result


multiply_high = Operator(
    "multiply_high",
    _infer,
    HighAttrs,
    reference=_reference,
    compute=_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    arity=(4, 4),
    inputs=("x", "multiplier", "added", "shift"),
)
"""Compute ((x * multiplier + low) / 2^32 + added) >> shift as int32; the division and the shift round down. The 64-bit product and
the 32-bit sum must not overflow."""
