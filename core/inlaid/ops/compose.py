"""Helpers that build common operator graphs, for decompositions and frontends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, call, constant
from inlaid.ops.conversion import cast
from inlaid.ops.define import tensor_type, working_dtype
from inlaid.ops.elementwise import abs, add, div, exp, expm1, less, log1p, maximum, mul, neg, where
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import after, concat, iota, reshape, sizes, strided_slice
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import replace
from inlaid_runtime.types import DType, TensorType, dtype


def expr_type(x: Expr) -> TensorType:
    """Return the type of a tensor expression. Raises ValueError for other types."""
    return tensor_type(x.type)


def scalar(value: float, element_dtype: str | DType) -> Expr:
    """Make a 0-d constant."""
    return constant(np.asarray(value).astype(dtype(element_dtype).numpy))


def cast_to(x: Expr, element_dtype: str | DType) -> Expr:
    """Cast to a dtype. Returns the expression itself if it has that dtype."""
    return x if expr_type(x).dtype is dtype(element_dtype) else cast(x, dtype=str(element_dtype))


def widened(x: Expr) -> Expr:
    """Cast to the working dtype: float32 for narrower floats."""
    return cast_to(x, working_dtype(expr_type(x).dtype))


def count(dims: Sequence[Dim], element_dtype: str | DType) -> Expr:
    """Return the product of dimensions as a 0-d tensor."""
    number = arith.product(tuple(dims))
    if isinstance(number, int):
        return scalar(number, element_dtype)
    return cast_to(reshape(sizes(dims=(number,)), shape=()), element_dtype)


def mean(x: Expr, axes: Sequence[int], keepdims: bool = False) -> Expr:
    """Compute the mean over axes in the working dtype, rounded once to the dtype of x."""
    type_ = expr_type(x)
    wide = widened(x)
    total = reduce_sum(wide, axes=tuple(axes), keepdims=keepdims)
    return cast_to(div(total, count([type_.shape[axis] for axis in axes], expr_type(wide).dtype)), type_.dtype)


def softplus(x: Expr) -> Expr:
    """Compute log(1 + exp(x)), without overflow for large x, and accurately if exp(x) is small."""
    return add(maximum(x, scalar(0, expr_type(x).dtype)), log1p(exp(neg(abs(x)))))


def elu(x: Expr, alpha: float) -> Expr:
    """Compute x for x >= 0, else alpha * (exp(x) - 1)."""
    element_dtype = expr_type(x).dtype
    return where(less(x, scalar(0, element_dtype)), mul(scalar(alpha, element_dtype), expm1(x)), x)


def slice_axis(x: Expr, axis: int, begin: Dim, end: Dim) -> Expr:
    """Slice x[..., begin:end, ...] along an axis. Returns x itself if the slice is the whole axis."""
    shape = expr_type(x).shape
    if begin == 0 and end == shape[axis]:
        return x
    begins = (*(0,) * axis, begin, *(0,) * (len(shape) - axis - 1))
    ends = (*shape[:axis], end, *shape[axis + 1 :])
    return strided_slice(x, begin=begins, end=ends, strides=(1,) * len(shape))


def reversed_axis(x: Expr, axis: int) -> Expr:
    """Reverse the tensor along an axis."""
    shape = expr_type(x).shape
    rank = len(shape)
    begins = tuple(shape[axis] - 1 if dim == axis else 0 for dim in range(rank))
    ends = tuple(-1 if dim == axis else shape[dim] for dim in range(rank))
    return strided_slice(x, begin=begins, end=ends, strides=tuple(-1 if dim == axis else 1 for dim in range(rank)))


def expand_dims(x: Expr, *axes: int) -> Expr:
    """Insert dimensions of extent 1 at the positions `axes` of the result."""
    rest = iter(expr_type(x).shape)
    rank = expr_type(x).rank + len(axes)
    return reshape(x, shape=tuple(1 if axis in axes else next(rest) for axis in range(rank)))


def squeeze(x: Expr, *axes: int) -> Expr:
    """Remove the dimensions `axes`, which have extent 1."""
    return reshape(x, shape=tuple(dim for axis, dim in enumerate(expr_type(x).shape) if axis not in axes))


def join(parts: Sequence[Expr], axis: int) -> Expr:
    """Concatenate tensors along an axis. Returns a single part unchanged."""
    return parts[0] if len(parts) == 1 else concat(*parts, axis=axis)


def with_witnesses(reader: Call, witnesses: Sequence[Expr]) -> Call:
    """Add witnesses (see `ops.shape`) to a call of an operator: as operands if it takes any, else to an operand, rather one that is
    not constant. Returns the call itself if there are no witnesses, or if it has no tensors as operands."""
    if not witnesses:
        return reader
    if reader.callee in (after, iota, sizes):
        return call(reader.callee, (*reader.args, *witnesses), reader.attrs, reader.span)
    positions = [position for position, arg in enumerate(reader.args) if isinstance(arg.type, TensorType)]
    positions.sort(key=lambda position: isinstance(reader.args[position], Constant))
    if not positions:
        return reader
    args = list(reader.args)
    operand = args[positions[0]]
    operands = operand.args if isinstance(operand, Call) and operand.callee is after else (operand,)
    args[positions[0]] = after(*operands, *witnesses, span=reader.span)
    return replace(reader, args=tuple(args))
