"""The upper half of a product of 64 bits: what `multiply_fixed` becomes on targets that work on vectors.

All but one product and one sum is done in 32 bits. No frontend gives it: see `inlay.passes.fixed_products`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlay import arith
from inlay.graph.operator import Attrs, FusionKind, Operator
from inlay.ops.define import Array, broadcast_read, quiet, tensor_type
from inlay.ops.fixed_point import check_channels
from inlay.tensor import ir, te
from inlay.types import TensorType, Type

HALF_BITS = 32
_ONE = 1 << 31
"""1 in the product, with the bits behind the point of a multiplier."""


@dataclass(frozen=True)
class HighAttrs(Attrs):
    """`axis` is that of 1-d operands. `away`: where x is negative, 2^31 less is added."""

    axis: int = 0
    away: bool = False


def _infer(attrs: HighAttrs, x: Type, multiplier: Type, added: Type, shift: Type) -> Type:
    tensor = tensor_type(x)
    types = [tensor, *(tensor_type(part) for part in (multiplier, added, shift))]
    if [item.dtype.name for item in types] != ["int32", "int32", "int64", "int32"]:
        raise ValueError("x, the multiplier and the shift must be int32, the added number int64")
    for of, what in zip(types[1:], ("the multiplier", "the added number", "the shift"), strict=True):
        check_channels(attrs.axis, tensor, of, what)
    return TensorType(tensor.shape, "int32")


@quiet
def _reference(attrs: HighAttrs, x: Array, multiplier: Array, added: Array, shift: Array) -> Array:
    shape = [-1 if axis == attrs.axis else 1 for axis in range(x.ndim)]
    factor, more, places = (of.reshape(shape) if of.ndim else of for of in (multiplier, added, shift))
    if attrs.away:
        more = np.where(x < 0, more - _ONE, more)
    product = x.astype(np.int64) * factor + more
    return np.asarray((product >> HALF_BITS).astype(np.int32) >> places).reshape(x.shape)


def _compute(attrs: HighAttrs, x: te.Tensor, multiplier: te.Tensor, added: te.Tensor, shift: te.Tensor) -> te.Tensor:
    def element(*indices: arith.Var) -> ir.Expr:
        def read(of: te.Tensor) -> ir.Expr:
            return of[()] if of.rank == 0 else broadcast_read(of, (x.shape[attrs.axis],), (indices[attrs.axis],))

        value, more = x[indices], read(added)
        if attrs.away:
            more = te.select(value < 0, more - _ONE, more)
        product = te.cast(value, "int64") * te.cast(read(multiplier), "int64") + more
        return te.cast(product >> HALF_BITS, "int32") >> read(shift)

    made: te.Tensor = te.compute(x.shape, element, "multiply_high")
    return made


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
"""(x * multiplier + added) / 2^32 as int32, then shifted to the right: both rounded down. The product wraps at 64 bits."""
