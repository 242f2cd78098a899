"""Gather, scatter and selection operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid.graph.conditions import require_at_most, require_equal, require_shape
from inlaid.graph.ir import Expr, constant
from inlaid.ops.conversion import cast
from inlaid.ops.elementwise import add, equal, less, mod, where
from inlaid.ops.index import gather_nd, reverse_sequence, take, take_along_axis
from inlaid.ops.scatter import scatter_along_axis, scatter_nd
from inlaid.ops.select import nonzero
from inlaid.ops.shape import broadcast_to, iota, reshape, sizes, strided_slice
from inlaid_onnx.convert.shape import scalar
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.errors import Remedy, dims_setting
from inlaid_runtime.types import TensorType


def _type(value: Expr) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _int64(value: int) -> Expr:
    return constant(np.asarray(value, np.int64))


# --- reading ----------------------------------------------------------------------------------------------------------


def _gather(node: Node) -> Expr:
    return take(node.input(0), node.input(1), axis=node.axis(node.attrs.get("axis", 0), node.rank(0)))


def _gather_elements(node: Node) -> Expr:
    return take_along_axis(node.input(0), node.input(1), axis=node.axis(node.attrs.get("axis", 0), node.rank(0)))


def _gather_nd(node: Node) -> Expr:
    batch = node.attrs.get("batch_dims", 0)
    return gather_nd(node.input(0), _require_index_depth(node, 1 if node.rank(0) - batch == 1 else None), batch_dims=batch)


def _require_index_depth(node: Node, depth: int | None) -> Expr:
    """Return input 1, index vectors whose last extent is the number of indexed axes. A symbolic last extent must be `depth`, the
    number that the other ranks imply. Raises `ModelImportError` if both are unknown."""
    indices, shape = node.input(1), node.tensor(1).shape
    if not shape or isinstance(shape[-1], int):
        return indices
    if depth is None:
        names = [leaf.name for leaf in arith.free_vars(shape[-1]) if isinstance(leaf, arith.SizeVar) and not leaf.existential]
        remedy = Remedy.join("give ", dims_setting(dict.fromkeys(names))) if names else None
        raise node.error("the last dimension of the indices determines the rank and must be static", remedy=remedy)
    with node.relations():
        require_equal(shape[-1], depth, "the last dimension of the indices")
    return reshape(indices, shape=(*shape[:-1], depth))


def _reverse_sequence(node: Node) -> Expr:
    rank = node.rank(0)
    batch, time = (node.axis(node.attrs.get(name, default), rank) for name, default in (("batch_axis", 1), ("time_axis", 0)))
    return reverse_sequence(node.input(0), node.input(1), batch_axis=batch, time_axis=time)


# --- writing ----------------------------------------------------------------------------------------------------------


def _scatter_elements(node: Node) -> Expr:
    axis = node.axis(node.attrs.get("axis", 0), node.rank(0))
    inputs = (node.input(index) for index in range(3))
    return scatter_along_axis(*inputs, axis=axis, reduction=node.attrs.get("reduction", "none"))


def _scatter_nd(node: Node) -> Expr:
    depth = node.rank(1) - 1 + node.rank(0) - node.rank(2)
    return scatter_nd(
        node.input(0), _require_index_depth(node, depth), node.input(2), reduction=node.attrs.get("reduction", "none")
    )


def _tensor_scatter(node: Node) -> Expr:
    cache, update = node.tensor(0), node.tensor(1)
    axis = node.axis(node.attrs.get("axis", -2), cache.rank)
    if axis == 0:
        raise node.error("axis must not be 0, the batch axis")
    mode = node.attrs.get("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.error(f"mode must be linear or circular, got {mode!r}")
    write_indices = node.optional(2)
    with node.relations():
        if write_indices is not None:
            require_shape(node.tensor(2).shape, update.shape[:1], "write_indices")
        require_shape(update.shape, (*cache.shape[:axis], update.shape[axis], *cache.shape[axis + 1 :]), "the update")
        require_at_most(update.shape[axis], cache.shape[axis], f"dimension {axis} of the update")
    axis_indices = iota(shape=(update.shape[0], update.shape[axis]), axis=1)
    if write_indices is not None:
        axis_indices = add(axis_indices, reshape(cast(write_indices, dtype="int64"), shape=(update.shape[0], 1)))
    if mode == "circular":
        axis_indices = mod(axis_indices, sizes(dims=(cache.shape[axis],)))
    shape = tuple(dim if position in (0, axis) else 1 for position, dim in enumerate(update.shape))
    indices = broadcast_to(reshape(axis_indices, shape=shape), shape=update.shape)
    return scatter_along_axis(node.input(0), indices, node.input(1), axis=axis)


# --- choosing ---------------------------------------------------------------------------------------------------------


def _nonzero(node: Node) -> Expr:
    return nonzero(node.input(0))


def _compress(node: Node) -> Expr:
    x = node.input(0)
    axis = node.attrs.get("axis")
    if axis is None:
        x = reshape(x, shape=(node.tensor(0).size,))
    indices = nonzero(node.input(1))
    positions = reshape(indices, shape=_type(indices).shape[1:])
    return take(x, positions, axis=0 if axis is None else node.axis(axis, node.rank(0)))


def _one_hot(node: Node) -> Expr:
    rank = node.rank(0) + 1
    axis = node.axis(node.attrs.get("axis", -1), rank)
    (size,) = node.sizes(1, "depth")
    with node.relations():
        require_shape(node.tensor(2).shape, (2,), "the values")
    indices = cast(node.input(0), dtype="int64")
    length = cast(scalar(node, node.input(1)), dtype="int64")
    positive = where(less(indices, _int64(0)), add(indices, length), indices)
    shape = list(node.tensor(0).shape)
    positive = reshape(positive, shape=(*shape[:axis], 1, *shape[axis:]))
    class_indices = iota(shape=tuple(size if position == axis else 1 for position in range(rank)), axis=axis)
    off, on = (
        reshape(strided_slice(node.input(2), begin=(position,), end=(position + 1,), strides=(1,)), shape=()) for position in (0, 1)
    )
    return where(equal(positive, class_indices), on, off)


CONVERTERS: Mapping[str, Converter] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
