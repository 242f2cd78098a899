"""Dtypes of sums of products, shared by convolutions and matrix products."""

from __future__ import annotations

from inlaid.ops.define import working_dtype
from inlaid.tensor import te
from inlaid_runtime.types import DType, dtype


def product_dtype(a: DType, b: DType, out_dtype: str) -> DType:
    """Return the dtype of a sum of products: `out_dtype` if given, else the operands' dtype, at least int32 for integers.

    Raises ValueError for incompatible operands. Float operands must have one dtype; integer operands may have different dtypes.
    """
    if not (a is b or (a.is_int and b.is_int)):
        raise ValueError(f"the operands must have one float dtype or integer dtypes, got {a} and {b}: cast one of them")
    if out_dtype:
        return dtype(out_dtype)
    if a.is_float:
        return a
    return a if a.bits >= 32 and a is b else dtype("int32")


def accumulator_dtype(result: DType) -> DType:
    """Return the dtype of the accumulator of a result: float32 for narrower floats, int32 for narrower integers."""
    return dtype("int32") if result.is_int and result.bits < 32 else working_dtype(result)


def rounded(total: te.Tensor, result: DType) -> te.Tensor:
    """Convert a tensor to another dtype in a separate stage. Returns the tensor itself if it has that dtype."""
    if total.dtype is result:
        return total
    stage: te.Tensor = te.compute(total.shape, lambda *i: te.cast(total[i], result), "round")
    return stage
