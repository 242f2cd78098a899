"""Element types of sums of products: what convolution and matrix products share."""

from __future__ import annotations

from inlaid.ops.define import working_dtype
from inlaid.tensor import te
from inlaid.types import DType, dtype


def product_dtype(a: DType, b: DType, wanted: str) -> DType:
    """The element type of a sum of products: `wanted` where it is given; else that of the operands, at least int32 for integers.

    Raises ValueError where the operands do not go together: floats must be of one type, integers may differ.
    """
    if not (a is b or (a.is_int and b.is_int)):
        raise ValueError(f"operands of {a} and {b} cannot be multiplied: cast one of them")
    if wanted:
        return dtype(wanted)
    if a.is_float:
        return a
    return a if a.bits >= 32 and a is b else dtype("int32")


def accumulator_dtype(result: DType) -> DType:
    """The type in which such a sum is formed: float32 for narrower floats, int32 for narrower integers."""
    return dtype("int32") if result.is_int and result.bits < 32 else working_dtype(result)


def rounded(total: te.Tensor, result: DType) -> te.Tensor:
    """The tensor converted to another element type in a stage of its own; itself where it has it already."""
    if total.dtype is result:
        return total
    made: te.Tensor = te.compute(total.shape, lambda *i: te.cast(total[i], result), "round")
    return made
