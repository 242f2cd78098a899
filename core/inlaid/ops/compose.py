"""Helpers that build common operator graphs, for decompositions and frontends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid.graph.ir import Expr, constant
from inlaid.ops.conversion import cast
from inlaid.ops.define import tensor_type, working_dtype
from inlaid.ops.elementwise import abs, add, div, exp, expm1, less, log1p, maximum, mul, neg, where
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import concat, reshape, sizes, strided_slice
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DType, TensorType, dtype


def tensor_of(x: Expr) -> TensorType:
    """Return the type of a tensor expression. Raises ValueError for other types."""
    return tensor_type(x.type)


def scalar(value: float, of: str | DType) -> Expr:
    """Make a 0-d constant."""
    return constant(np.asarray(value).astype(dtype(of).numpy))


def cast_to(x: Expr, of: str | DType) -> Expr:
    """Cast to a dtype. Returns the expression itself if it has that dtype."""
    return x if tensor_of(x).dtype is dtype(of) else cast(x, dtype=str(of))


def widened(x: Expr) -> Expr:
    """Cast to the working dtype: float32 for narrower floats."""
    return cast_to(x, working_dtype(tensor_of(x).dtype))


def count(dims: Sequence[Dim], of: str | DType) -> Expr:
    """Return the product of dimensions as a 0-d tensor."""
    number = arith.product(tuple(dims))
    if isinstance(number, int):
        return scalar(number, of)
    return cast_to(reshape(sizes(dims=(number,)), shape=()), of)


def mean(x: Expr, axes: Sequence[int], keepdims: bool = False) -> Expr:
    """Compute the mean over axes in the working dtype, rounded once to the dtype of x."""
    type_ = tensor_of(x)
    wide = widened(x)
    total = reduce_sum(wide, axes=tuple(axes), keepdims=keepdims)
    return cast_to(div(total, count([type_.shape[axis] for axis in axes], tensor_of(wide).dtype)), type_.dtype)


def softplus(x: Expr) -> Expr:
    """Compute log(1 + exp(x)), without overflow for large x, and accurately if exp(x) is small."""
    return add(maximum(x, scalar(0, tensor_of(x).dtype)), log1p(exp(neg(abs(x)))))


def elu(x: Expr, alpha: float) -> Expr:
    """Compute x for x >= 0, else alpha * (exp(x) - 1)."""
    of = tensor_of(x).dtype
    return where(less(x, scalar(0, of)), mul(scalar(alpha, of), expm1(x)), x)


def slice_axis(x: Expr, axis: int, begin: Dim, end: Dim) -> Expr:
    """Slice x[..., begin:end, ...] along an axis. Returns x itself if the slice is the whole axis."""
    shape = tensor_of(x).shape
    if begin == 0 and end == shape[axis]:
        return x
    begins = (*(0,) * axis, begin, *(0,) * (len(shape) - axis - 1))
    ends = (*shape[:axis], end, *shape[axis + 1 :])
    return strided_slice(x, begin=begins, end=ends, strides=(1,) * len(shape))


def reversed_axis(x: Expr, axis: int) -> Expr:
    """Reverse the tensor along an axis."""
    shape = tensor_of(x).shape
    rank = len(shape)
    begins = tuple(shape[axis] - 1 if dim == axis else 0 for dim in range(rank))
    ends = tuple(-1 if dim == axis else shape[dim] for dim in range(rank))
    return strided_slice(x, begin=begins, end=ends, strides=tuple(-1 if dim == axis else 1 for dim in range(rank)))


def expand_dims(x: Expr, *axes: int) -> Expr:
    """Insert dimensions of extent 1 at the positions `axes` of the result."""
    rest = iter(tensor_of(x).shape)
    rank = tensor_of(x).rank + len(axes)
    return reshape(x, shape=tuple(1 if axis in axes else next(rest) for axis in range(rank)))


def squeeze(x: Expr, *axes: int) -> Expr:
    """Remove the dimensions `axes`, which have extent 1."""
    return reshape(x, shape=tuple(dim for axis, dim in enumerate(tensor_of(x).shape) if axis not in axes))


def join(parts: Sequence[Expr], axis: int) -> Expr:
    """Concatenate tensors along an axis. Returns a single part unchanged."""
    return parts[0] if len(parts) == 1 else concat(*parts, axis=axis)
