"""Gather, scatter and selection operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr, constant, tuple_item
from inlaid.ops.compose import cast_to, expand_dims, scalar, slice_axis
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DType, dtype
from inlaid_tflite.node import Converter, Node, tensor_type, typed

MAX_BOUNDARIES = 4096
"""Maximum number of boundaries: each is compared with every value."""

# --- reading ----------------------------------------------------------------------------------------------------------


def _gather(node: Node) -> Expr:
    value, indices = node.input(0), node.input(1)
    shape, rank = node.shape(0), len(node.shape(1))
    axis = node.axis(node.option("Axis"), len(shape))
    batch = node.option("BatchDims")
    batch = batch + rank if batch < 0 else batch
    if batch == 0:
        return ops.take(value, indices, axis=axis)
    if not 0 < batch <= min(axis, rank):
        raise node.error(f"batch_dims must be <= axis {axis} and <= the rank {rank} of the indices, got {batch}")
    # gather_nd indexes the axes after the batch: move the axis there, and the axes before it back afterwards.
    axes_between = tuple(range(batch, axis))
    axis_after_batch = ops.transpose(value, perm=(*range(batch), axis, *axes_between, *range(axis + 1, len(shape))))
    gathered = ops.gather_nd(axis_after_batch, expand_dims(indices, rank), batch_dims=batch)
    index_axes = tuple(range(batch, rank))
    between_axes = tuple(range(rank, rank + len(axes_between)))
    return ops.transpose(
        gathered, perm=(*range(batch), *between_axes, *index_axes, *range(rank + len(axes_between), tensor_type(gathered).rank))
    )


def _gather_nd(node: Node) -> Expr:
    return ops.gather_nd(node.input(0), node.input(1))


def _embedding_lookup(node: Node) -> Expr:
    """Convert EMBEDDING_LOOKUP: gather rows of a table. A quantized table with a float result is dequantized."""
    rows = ops.take(node.input(1), node.input(0), axis=0)
    if not node.is_float() or node.tensor(1).dtype.is_float:
        return rows
    scales = node.scales(node.tensor(1))
    if np.any(scales.zero_point) or len(scales.scale) not in (1, node.tensor(1).shape[0]):
        raise node.error("a quantized table must have zero points of 0, and one scale or one per row")
    if len(scales.scale) == 1:
        factor: Expr = constant(scales.scale.reshape(()))
    else:
        factor = ops.take(constant(scales.scale), node.input(0), axis=0)
        factor = expand_dims(factor, *range(tensor_type(factor).rank, tensor_type(rows).rank))
    return ops.mul(cast_to(rows, "float32"), factor)


def _reverse_sequence(node: Node) -> Expr:
    rank = len(node.shape(0))
    time, batch = (node.axis(node.option(name), rank) for name in ("SeqDim", "BatchDim"))
    return ops.reverse_sequence(node.input(0), node.input(1), batch_axis=batch, time_axis=time)


# --- writing ----------------------------------------------------------------------------------------------------------


def _full(value: float, dtype: DType, shape: tuple[Dim, ...]) -> Expr:
    return ops.full(scalar(value, dtype), shape=shape)


def _scatter_nd(node: Node) -> Expr:
    """Convert SCATTER_ND. Updates of the same element are added."""
    updates, shape = node.input(1), node.dims(2)
    update_dtype = node.tensor(1).dtype
    if update_dtype.kind == "bool":
        summed = ops.scatter_nd(_full(0, dtype("uint8"), shape), node.input(0), cast_to(updates, "uint8"), reduction="max")
        return cast_to(summed, "bool")
    return ops.scatter_nd(_full(0, update_dtype, shape), node.input(0), updates, reduction="add")


def _sparse_to_dense(node: Node) -> Expr:
    """Convert SPARSE_TO_DENSE. Input 0 has indices: rows of a matrix, elements of a vector, or a scalar."""
    shape = node.dims(1)
    indices, values = node.input(0), node.input(2)
    rank = len(node.shape(0))
    if rank < 2:
        indices = ops.reshape(indices, shape=(arith.product(node.shape(0)), 1)) if rank else ops.reshape(indices, shape=(1, 1))
    count = tensor_type(indices).shape[0]
    values = ops.broadcast_to(values, shape=(count,)) if not node.shape(2) else values
    default = ops.full(ops.reshape(node.input(3), shape=()), shape=shape)
    return ops.scatter_nd(default, indices, values)


def _segment_sum(node: Node) -> Expr:
    """Convert SEGMENT_SUM. Segment ids are ascending without gaps, so there are at most as many segments as rows."""
    ids, shape = node.input(1), node.shape(0)
    static_ids = node.scope.static(ids)
    count = shape[0] if static_ids is None else int(static_ids.max(initial=-1)) + 1
    sums = _segments("add", 0, node, count)
    if static_ids is not None:
        return sums
    segment_count = ops.add(cast_to(slice_axis(ids, 0, simple(arith.add(shape[0], -1)), shape[0]), "int64"), scalar(1, "int64"))
    return ops.dynamic_slice(sums, constant(np.zeros(1, np.int64)), segment_count, axes=(0,), strides=(1,))


def _segments(reduction: str, start: float, node: Node, count: Dim) -> Expr:
    """Reduce the rows of each segment, starting from an initial value. Rows with a negative id go to a row that is dropped."""
    rank = len(node.shape(1))
    rest = node.shape(0)[rank:]
    ids = cast_to(node.input(1), "int64")
    spare = cast_to(ops.reshape(ops.sizes(dims=(count,)), shape=()), "int64")
    segment_ids = expand_dims(ops.where(ops.less(ids, scalar(0, "int64")), spare, ids), rank)
    reduced = ops.scatter_nd(
        _full(start, node.tensor(0).dtype, (simple(arith.add(count, 1)), *rest)), segment_ids, node.input(0), reduction=reduction
    )
    return slice_axis(reduced, 0, 0, count)


def _unsorted(reduction: str, start: str, node: Node) -> Expr:
    dtype = node.tensor(0).dtype
    if start in ("least", "greatest"):
        limits = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
        value: Any = getattr(limits, "min" if start == "least" else "max")
    else:
        value = int(start)
    (count,) = node.dims(2)
    return _segments(reduction, value, node, count)


# --- choosing ---------------------------------------------------------------------------------------------------------


def _one_hot(node: Node) -> Expr:
    rank = len(node.shape(0)) + 1
    axis = node.axis(node.option("Axis"), rank)
    (depth,) = node.dims(1)
    shape = tuple(depth if position == axis else 1 for position in range(rank))
    class_indices = ops.iota(shape=shape, axis=axis, dtype=node.tensor(0).dtype.name)
    on, off = (ops.reshape(node.input(index), shape=()) for index in (2, 3))
    return ops.where(ops.equal(expand_dims(node.input(0), axis), class_indices), on, off)


def _where(node: Node) -> Expr:
    """Convert WHERE: the indices of non-zero elements, one per row."""
    return ops.transpose(ops.nonzero(node.input(0)), perm=(1, 0))


def _select(node: Node) -> Expr:
    """Convert SELECT. A 0-d condition selects the whole tensor, a 1-d condition selects rows."""
    condition, shape = node.input(0), node.shape(1)
    rank = len(node.shape(0))
    with node.relations():
        require_shape(node.shape(2), shape, "input 2")
        if rank:
            require_shape(node.shape(0), shape[:1] if rank == 1 else shape, "the condition")
    if rank == 1:
        condition = expand_dims(condition, *range(1, len(shape)))
    return ops.where(condition, node.input(1), node.input(2))


def _select_v2(node: Node) -> Expr:
    return ops.where(node.input(0), node.input(1), node.input(2))


def _topk(node: Node) -> tuple[Expr, Expr]:
    (count,) = node.dims(1)
    values_and_indices = ops.topk(node.input(0), k=count, axis=len(node.shape(0)) - 1)
    return tuple_item(values_and_indices, 0), cast_to(tuple_item(values_and_indices, 1), node.results[1].dtype)


def _unique(node: Node) -> tuple[Expr, Expr]:
    """Convert UNIQUE: the unique values by first occurrence, and the index of each element's value."""
    column = expand_dims(node.input(0), 1)
    outputs = ops.unique(column, ordered=False)
    return ops.take(node.input(0), tuple_item(outputs, 0), axis=0), cast_to(tuple_item(outputs, 1), node.results[1].dtype)


def _diagonal(node: Node, shape: tuple[Dim, ...]) -> Expr:
    """Build a mask of the diagonal of the last two axes."""
    return ops.equal(ops.iota(shape=(shape[-2], 1), axis=0), ops.iota(shape=(1, shape[-1]), axis=1))


def _matrix_diag(node: Node) -> Expr:
    shape = (*node.shape(0), node.shape(0)[-1])
    rows = expand_dims(node.input(0), len(shape) - 1)
    return ops.where(_diagonal(node, shape), rows, scalar(0, node.tensor(0).dtype))


def _matrix_set_diag(node: Node) -> Expr:
    shape, length = node.shape(0), node.shape(1)[-1]
    rows, columns = shape[-2:]
    with node.relations():
        require_shape(node.shape(1), (*shape[:-2], simple(arith.minimum(rows, columns))), "the diagonal")
    # Element i of the diagonal is in column i.
    diagonal, missing_columns = node.input(1), simple(arith.add(columns, arith.mul(length, -1)))
    if missing_columns != 0:
        no_pads = tuple(0 for _ in shape[2:])
        diagonal = ops.pad(diagonal, scalar(0, node.tensor(0).dtype), pads=(*no_pads, 0, *no_pads, missing_columns))
    return ops.where(_diagonal(node, shape), expand_dims(diagonal, len(shape) - 2), node.input(0))


def _bucketize(node: Node) -> Expr:
    """Convert BUCKETIZE: for each value, count the boundaries (ascending) that are <= the value."""
    count = node.option("BoundariesLength")
    if not 0 <= count <= MAX_BOUNDARIES:
        raise node.error(f"expected at most {MAX_BOUNDARIES} boundaries, got {count}")
    boundaries = np.array([node.options.Boundaries(index) for index in range(count)], np.float32)
    last = len(node.shape(0))
    value = expand_dims(cast_to(node.input(0), "float64"), last)
    is_reached = ops.less_equal(constant(boundaries.astype(np.float64)), value)
    return ops.reduce_sum(cast_to(is_reached, "int32"), axes=(last,), keepdims=False)


def _bitcast(node: Node) -> Expr:
    source_dtype, target_dtype = node.tensor(0).dtype, node.result.dtype
    if source_dtype.bits != target_dtype.bits:
        raise node.error(f"the dtypes must have one width, got {source_dtype} and {target_dtype}")
    return ops.bitcast(node.input(0), dtype=target_dtype.name)


CONVERTERS: Mapping[str, Converter] = {
    "BITCAST": _bitcast,
    "BUCKETIZE": typed(_bucketize, "float32 float64 int32 int64"),
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "MATRIX_DIAG": _matrix_diag,
    "MATRIX_SET_DIAG": _matrix_set_diag,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "SCATTER_ND": _scatter_nd,
    "SEGMENT_SUM": typed(_segment_sum, "float32 int32"),
    "SELECT": _select,
    "SELECT_V2": _select_v2,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "TOPK_V2": typed(_topk, "float32 int8 uint8 int16 int32 int64"),
    "UNIQUE": _unique,
    "UNSORTED_SEGMENT_MAX": typed(partial(_unsorted, "max", "least"), "float32 int32"),
    "UNSORTED_SEGMENT_MIN": typed(partial(_unsorted, "min", "greatest"), "float32 int32"),
    "UNSORTED_SEGMENT_PROD": typed(partial(_unsorted, "mul", "1"), "float32 int32"),
    "UNSORTED_SEGMENT_SUM": typed(partial(_unsorted, "add", "0"), "float32 int32"),
    "WHERE": _where,
}
