"""Gather operators.

A negative index counts from the end. An index out of range is an error: the reference raises `KernelFault`, generated code returns
an error code and never reads out of bounds.
"""

from __future__ import annotations

import numpy as np

from inlaid.graph.conditions import require_at_most, require_equal, require_shape, require_static
from inlaid.graph.operator import Attrs, Choice, FusionKind, Moves, Operator, Traits
from inlaid.ops.define import INDEX_RULE, INTEGER, SAME_TYPE, Array, AxisAttrs, check_axis, make_family, tensor_type
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type


def positive_index(value: ir.Expr, extent: Dim) -> ir.Expr:
    """Convert an index along an axis to int64. A negative index counts from the end. The result is not checked."""
    index = te.cast(value, "int64")
    if value.dtype.kind == "uint":
        return index
    return te.select(index < 0, index + extent, index)


def checked_index(value: ir.Expr, extent: Dim) -> arith.Expr:
    """Convert a data-dependent index along an axis to an expression that generated code checks. Supports negative indices."""
    return te.checked(positive_index(value, extent), 0, extent - 1)


def positive_indices(indices: Array, extent: int) -> Array:
    """Convert indices along an axis to int64 and make negative ones positive. Raises `KernelFault` for an index out of range."""
    positions = indices.astype(np.int64)
    positions = np.where(positions < 0, positions + extent, positions)
    outside = (positions < 0) | (positions >= extent)
    if outside.any():
        raise KernelFault(f"index must be >= {-extent} and < {extent}, got {indices[outside].flat[0]}")
    return positions


def grids(shape: tuple[int, ...]) -> list[Array]:
    """Return, per axis, the indices along the axis, shaped to broadcast to the shape."""
    return list(np.ogrid[tuple(slice(0, dim) for dim in shape)])


# --- take -------------------------------------------------------------------------------------------------------------


def _infer_take(attrs: AxisAttrs, x: Type, indices: Type) -> Type:
    x, indices = tensor_type(x), tensor_type(indices, INTEGER, "the indices")
    axis = check_axis(attrs.axis, x.rank)
    return TensorType(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype)


def _take(attrs: AxisAttrs, x: Array, indices: Array) -> Array:
    shape = x.shape[: attrs.axis] + indices.shape + x.shape[attrs.axis + 1 :]
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    return np.asarray(np.take(x, positive_indices(indices, x.shape[attrs.axis]), attrs.axis))


def _compute_take(attrs: AxisAttrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis, end = attrs.axis, attrs.axis + indices.rank

    def element(*index: arith.Var) -> ir.Expr:
        return x[(*index[:axis], checked_index(indices[index[axis:end]], x.shape[axis]), *index[end:])]

    result: te.Tensor = te.compute(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], element, "take")
    return result


take = Operator(
    "take",
    _infer_take,
    AxisAttrs,
    reference=_take,
    compute=_compute_take,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(by=Choice.INDEX), fails=True),
    arity=(2, 2),
    inputs=("x", "indices"),
    doc=f"""Gather slices along an axis, as numpy.take.
Operands: x, any dtype; indices, integer, any shape. Result: shape of x with the axis replaced by the shape of indices, dtype of x.
{INDEX_RULE}""",
)


# --- take_along_axis --------------------------------------------------------------------------------------------------


def check_along_axis(axis: int, x: TensorType, indices: TensorType) -> None:
    """Require indices along an axis to have the rank of x and not to exceed x on the other axes. Raises ValueError."""
    if indices.rank != x.rank:
        raise ValueError(f"the indices must have the rank {x.rank} of x, got rank {indices.rank}")
    check_axis(axis, x.rank)
    for position, (dim, limit) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if position != axis:
            require_at_most(dim, limit, f"dimension {position} of the indices")


def _infer_take_along_axis(attrs: AxisAttrs, x: Type, indices: Type) -> Type:
    x, indices = tensor_type(x), tensor_type(indices, INTEGER, "the indices")
    check_along_axis(attrs.axis, x, indices)
    return TensorType(indices.shape, x.dtype)


def _take_along_axis(attrs: AxisAttrs, x: Array, indices: Array) -> Array:
    index = grids(indices.shape)
    index[attrs.axis] = positive_indices(indices, x.shape[attrs.axis])
    return np.asarray(x[tuple(index)])


def _compute_take_along_axis(attrs: AxisAttrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis = attrs.axis

    def element(*index: arith.Var) -> ir.Expr:
        return x[(*index[:axis], checked_index(indices[index], x.shape[axis]), *index[axis + 1 :])]

    result: te.Tensor = te.compute(indices.shape, element, "take_along_axis")
    return result


take_along_axis = Operator(
    "take_along_axis",
    _infer_take_along_axis,
    AxisAttrs,
    reference=_take_along_axis,
    compute=_compute_take_along_axis,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(by=Choice.INDEX), fails=True),
    arity=(2, 2),
    inputs=("x", "indices"),
    doc=f"""Gather elements along an axis, one index per element, as numpy.take_along_axis.
Operands: x, any dtype; indices, integer, rank of x, extents <= those of x on the other axes. Result: shape of indices, dtype of x.
{INDEX_RULE}""",
)


# --- gather_nd --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatherNdAttrs(Attrs):
    """`batch_dims`: the number of leading batch axes that x and the indices share."""

    batch_dims: int = 0


def index_depth(indices: TensorType, rank: int) -> int:
    """Return the number of axes that are indexed: the last extent of `indices`, at most `rank`. Raises ValueError."""
    if not indices.rank:
        raise ValueError("the indices must have rank >= 1, got rank 0")
    depth = require_static(indices.shape[-1], "the last dimension of the indices")
    require_at_most(depth, rank, "the last dimension of the indices")
    return depth


def _infer_gather_nd(attrs: GatherNdAttrs, x: Type, indices: Type) -> Type:
    x, indices = tensor_type(x), tensor_type(indices, INTEGER, "the indices")
    batch = attrs.batch_dims
    if not 0 <= batch < max(indices.rank, 1) or batch > x.rank:
        raise ValueError(f"batch_dims must be <= {x.rank} and < {indices.rank}, the ranks of x and the indices, got {batch}")
    for axis, (dim, other) in enumerate(zip(x.shape[:batch], indices.shape[:batch], strict=True)):
        require_equal(other, dim, f"batch dimension {axis} of the indices")
    depth = index_depth(indices, x.rank - batch)
    return TensorType(indices.shape[:-1] + x.shape[batch + depth :], x.dtype)


def _gather_nd(attrs: GatherNdAttrs, x: Array, indices: Array) -> Array:
    batch = attrs.batch_dims
    index_shape = indices.shape[:-1]
    shape = index_shape + x.shape[batch + indices.shape[-1] :]
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    index = [np.broadcast_to(grid, index_shape) for grid in grids(index_shape)[:batch]]
    index += [positive_indices(indices[..., k], x.shape[batch + k]) for k in range(indices.shape[-1])]
    return np.array(x[tuple(index)] if index else np.broadcast_to(x, index_shape + x.shape))


def _compute_gather_nd(attrs: GatherNdAttrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    batch, index_rank = attrs.batch_dims, indices.rank - 1
    depth = index_depth(TensorType(indices.shape, indices.dtype), x.rank - batch)

    def element(*index: arith.Var) -> ir.Expr:
        coordinates = [checked_index(indices[(*index[:index_rank], k)], x.shape[batch + k]) for k in range(depth)]
        return x[(*index[:batch], *coordinates, *index[index_rank:])]

    result: te.Tensor = te.compute(indices.shape[:-1] + x.shape[batch + depth :], element, "gather_nd")
    return result


gather_nd = Operator(
    "gather_nd",
    _infer_gather_nd,
    GatherNdAttrs,
    reference=_gather_nd,
    compute=_compute_gather_nd,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(by=Choice.INDEX), fails=True),
    arity=(2, 2),
    inputs=("x", "indices"),
    doc=f"""Gather slices at index vectors, as ONNX GatherND.
Operands: x, any dtype; indices (batch..., index shape..., depth), integer: its last dimension holds vectors that index the first
`depth` axes of x after the batch axes. Result: (batch..., index shape..., remaining axes of x), dtype of x.
{INDEX_RULE}""",
)


# --- reverse_sequence -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReverseSequenceAttrs(Attrs):
    """`batch_axis`: the axis along which `lengths` has one element per index. `time_axis`: the axis to reverse."""

    batch_axis: int
    time_axis: int


def _infer_reverse_sequence(attrs: ReverseSequenceAttrs, x: Type, lengths: Type) -> Type:
    x, lengths = tensor_type(x), tensor_type(lengths, INTEGER, "the lengths")
    batch, time = check_axis(attrs.batch_axis, x.rank), check_axis(attrs.time_axis, x.rank)
    if batch == time:
        raise ValueError(f"batch_axis and time_axis must differ, got {batch} for both")
    require_shape(lengths.shape, (x.shape[batch],), "the lengths")
    return x


def _reverse_sequence(attrs: ReverseSequenceAttrs, x: Array, lengths: Array) -> Array:
    extent = x.shape[attrs.time_axis]
    if not x.size:
        return x
    if ((lengths < 0) | (lengths > extent)).any():
        raise KernelFault(f"the lengths must be >= 0 and <= {extent}")
    step = np.arange(extent)
    source = np.where(step < lengths[:, None], lengths[:, None] - 1 - step, step)
    if attrs.batch_axis > attrs.time_axis:
        source = source.T
    rest = tuple(axis for axis in range(x.ndim) if axis not in (attrs.batch_axis, attrs.time_axis))
    return np.take_along_axis(x, np.expand_dims(source, rest), attrs.time_axis)


def _compute_reverse_sequence(attrs: ReverseSequenceAttrs, x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    time = attrs.time_axis

    def element(*index: arith.Var) -> ir.Expr:
        step = ir.as_expr(index[time])
        length = te.cast(lengths[index[attrs.batch_axis]], "int64")
        # A negative length would reverse nothing and so not be checked; select an index that is always out of range.
        source = te.select(length < 0, te.const(-1, "int64"), te.select(step < length, length - 1 - step, step))
        return x[(*index[:time], te.checked(source, 0, x.shape[time] - 1), *index[time + 1 :])]

    result: te.Tensor = te.compute(x.shape, element, "reverse_sequence")
    return result


reverse_sequence = Operator(
    "reverse_sequence",
    _infer_reverse_sequence,
    ReverseSequenceAttrs,
    reference=_reverse_sequence,
    compute=_compute_reverse_sequence,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(by=Choice.INDEX), fails=True),
    arity=(2, 2),
    inputs=("x", "lengths"),
    doc=f"""Reverse the first `lengths[i]` elements along the time axis, for each index i of the batch axis.
Operands: x, any dtype; lengths, integer, one element per index of the batch axis. {SAME_TYPE}
A length that is negative or exceeds the time axis raises `KernelFault` at run time, if the result has elements.""",
)


OPERATORS = make_family(take, take_along_axis, gather_nd, reverse_sequence)
