"""Reshaping, generated tensors, concatenation and splitting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from inlaid import ops
from inlaid.frontends.shapes import cut, quotient, range_size, require_parts, require_squeezed
from inlaid.graph.conditions import broadcast_shapes, require_multiple
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, scalar, squeeze
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_tflite.node import Converter, Node, half_away, tensor_type, typed
from inlaid_tflite.table import byte_values, look_up

# --- shapes -----------------------------------------------------------------------------------------------------------


def _reshape(node: Node) -> Expr:
    """Convert RESHAPE. The new shape is input 1; in old files, an option; else the shape of the result in the file."""
    if node.has(1):
        target_shape = node.dims(1)
    elif node.options is not None and node.options.NewShapeLength():
        target_shape = tuple(int(node.options.NewShape(axis)) for axis in range(node.options.NewShapeLength()))
    else:
        target_shape = node.result.shape
    inferred_axes = [axis for axis, dim in enumerate(target_shape) if isinstance(dim, int) and dim < 0]
    if len(inferred_axes) > 1 or any(target_shape[axis] != -1 for axis in inferred_axes):
        raise node.error(f"the new shape must have at most one -1 and no other negative size, got {target_shape}")
    shape = list(target_shape)
    if inferred_axes:
        old, new = node.shape(0), [dim for axis, dim in enumerate(target_shape) if axis != inferred_axes[0]]
        # If a new dimension is 0, LiteRT ignores the dimensions that are 0, old and new.
        shape[inferred_axes[0]] = quotient(*(_at_least_1(dims) for dims in (old, new))) if 0 in new else quotient(old, new)
    return ops.reshape(node.input(0), shape=tuple(shape))


def _at_least_1(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(simple(arith.maximum(dim, 1)) for dim in dims)


def _squeeze(node: Node) -> Expr:
    shape = node.shape(0)
    count = node.option("SqueezeDimsLength")
    axes = {node.axis(node.options.SqueezeDims(index), len(shape)) for index in range(count)}
    with node.relations():
        dropped = require_squeezed(shape, axes if count else None, "SQUEEZE")
    return squeeze(node.input(0), *dropped)


def _expand_dims(node: Node) -> Expr:
    rank = len(node.shape(0)) + 1
    return expand_dims(node.input(0), node.axis(int(node.array(1).item()), rank))


def _transpose(node: Node) -> Expr:
    rank = len(node.shape(0))
    perm = tuple(node.axis(int(axis), rank) for axis in node.array(1).reshape(-1))
    return ops.transpose(node.input(0), perm=perm)


def _broadcast_to(node: Node) -> Expr:
    return ops.broadcast_to(node.input(0), shape=node.dims(1))


def _tile(node: Node) -> Expr:
    return ops.tile(node.input(0), repeats=node.dims(1))


# --- shapes as values -------------------------------------------------------------------------------------------------


def _shape(node: Node) -> Expr:
    return cast_to(ops.sizes(dims=node.shape(0)), node.result.dtype)


def _rank(node: Node) -> Expr:
    return constant(np.int32(len(node.shape(0))))


def _broadcast_args(node: Node) -> Expr:
    """Convert BROADCAST_ARGS: the shape that two shapes broadcast to."""
    lengths = [node.tensor(index).shape[0] for index in (0, 1)]
    if not all(isinstance(length, int) for length in lengths):
        raise node.error("the shapes must have static length")
    dtype = node.tensor(0).dtype
    static_shapes = [node.scope.dims(node.input(index)) for index in (0, 1)]
    if static_shapes[0] is not None and static_shapes[1] is not None:
        with node.relations():
            shape = broadcast_shapes(static_shapes[0], static_shapes[1])
        return cast_to(ops.sizes(dims=shape), dtype)
    one = scalar(1, dtype)
    padded_shapes = [ops.pad(node.input(index), one, pads=(max(lengths) - lengths[index], 0)) for index in (0, 1)]
    return ops.where(ops.equal(padded_shapes[0], one), padded_shapes[1], padded_shapes[0])


# --- generated tensors -----------------------------------------------------------------------------------------------


def _fill(node: Node) -> Expr:
    return ops.full(ops.reshape(node.input(1), shape=()), shape=node.dims(0))


def _zeros_like(node: Node) -> Expr:
    return ops.full(scalar(0, node.tensor(0).dtype), shape=node.shape(0))


def _range(node: Node) -> Expr:
    dtype = node.tensor(0).dtype
    if dtype.is_float:
        start, limit, delta = (node.array(index).item() for index in range(3))
        if delta == 0:
            raise node.error("the step must not be 0")
        count: Dim = max(0, int(np.ceil(np.abs((limit - start) / delta)))) if (limit > start) == (delta > 0) else 0
    else:
        (first,), (end,), (step,) = (node.dims(index) for index in range(3))
        if not isinstance(step, int) or step == 0:
            raise node.error(f"the step must be static and not 0, got {step}")
        size = range_size(first, end, step)
        if size is None:
            raise node.error(
                f"the start and the limit must be >= -2^61 and <= 2^61, as one of them is a dynamic size, got {first} and {end}"
            )
        count = size
    indices = ops.iota(shape=(count,), axis=0, dtype=dtype.name)
    begin, increment = (ops.reshape(node.input(index), shape=()) for index in (0, 2))
    return ops.add(ops.mul(indices, increment), begin)


# --- concatenation and splitting ------------------------------------------------------------------------------------


def _concatenation(node: Node) -> Expr:
    if node.option("FusedActivationFunction"):
        raise node.error("a fused activation is not supported, as in LiteRT: apply it to the result")
    parts = [_rescaled(node, index) for index in range(len(node.values))]
    return ops.concat(*parts, axis=node.axis(node.option("Axis"), len(node.shape(0))))


def _rescaled(node: Node, index: int) -> Expr:
    """Requantize a quantized input to the scale and zero point of the result. LiteRT requantizes only uint8."""
    value, tensor, result = node.input(index), node.tensor(index), node.result
    if tensor.quantization is None or result.quantization is None or tensor.dtype.is_float:
        return value
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(tensor), node.pair(result)
    if scale == result_scale and zero_point == result_zero_point:
        return value
    if tensor.dtype.bits != 8:
        raise node.error(f"parts of {tensor.dtype} must have the scale and zero point of the result: requantize the parts")
    factor = np.float32(scale * (np.float32(1) / result_scale))
    real = byte_values(tensor.dtype.name).astype(np.float32) * factor + np.float32(-zero_point) * factor
    limits = np.iinfo(result.dtype.name)
    return look_up(np.clip(half_away(real) + result_zero_point, limits.min, limits.max).astype(result.dtype.numpy), value)


def _pack(node: Node) -> Expr:
    axis = node.axis(node.option("Axis"), len(node.shape(0)) + 1)
    return ops.concat(*(expand_dims(node.input(index), axis) for index in range(len(node.values))), axis=axis)


def _unpack(node: Node) -> tuple[Expr, ...]:
    axis = node.axis(node.option("Axis"), len(node.shape(0)))
    parts = split(node, node.input(0), axis, [1] * len(node.results))
    return tuple(squeeze(part, axis) for part in parts)


def _split(node: Node) -> tuple[Expr, ...]:
    """Convert SPLIT. Input 0 is the axis, input 1 the value."""
    axis, count = node.axis(int(node.array(0).item()), len(node.shape(1))), len(node.results)
    with node.relations():
        part = require_multiple(node.shape(1)[axis], count, f"dimension {axis}, which is split into equal parts,")
    return split(node, node.input(1), axis, [part] * count)


def _split_v(node: Node) -> tuple[Expr, ...]:
    axis = node.axis(int(node.array(2).item()), len(node.shape(0)))
    parts = list(node.dims(1))
    inferred = [index for index, part in enumerate(parts) if part == -1]
    if len(inferred) > 1:
        raise node.error(f"expected at most one -1 in the sizes, got {tuple(parts)}")
    if inferred:
        remaining = arith.wrap(node.shape(0)[axis])
        for part in parts[: inferred[0]] + parts[inferred[0] + 1 :]:
            remaining = remaining - part
        parts[inferred[0]] = simple(remaining)
    return split(node, node.input(0), axis, parts)


def split(node: Node, value: Expr, axis: int, parts: Sequence[Dim]) -> tuple[Expr, ...]:
    """Split into parts of given sizes along an axis. States that the sizes add up to the extent."""
    with node.relations():
        ranges = require_parts(parts, tensor_type(value).shape[axis], axis)
    return tuple(cut(value, {axis: (begin, end, 1)}) for begin, end in ranges)


CONVERTERS: Mapping[str, Converter] = {
    "BROADCAST_ARGS": _broadcast_args,
    "BROADCAST_TO": _broadcast_to,
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "FILL": _fill,
    "PACK": _pack,
    "RANGE": typed(_range, "float32 int32 int64"),
    "RANK": _rank,
    "RESHAPE": _reshape,
    "SHAPE": _shape,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
    "ZEROS_LIKE": _zeros_like,
}
