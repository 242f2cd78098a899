"""Reductions, argmax and argmin, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import expand_dims, squeeze
from inlaid.ops.fixed_point import fixed_points, scaled
from inlaid_tflite.fixed import in_vectors, number, rounded_away
from inlaid_tflite.node import Converter, Node, typed

VECTOR = 16
"""Channels per iteration of LiteRT's vector code for means."""
LONGEST_PRODUCT = 256
"""Maximum number of factors of a product of quantized integers. Such products are unrolled."""


def _axes(node: Node) -> tuple[int, ...]:
    rank = len(node.shape(0))
    return tuple(sorted({node.axis(int(axis), rank) for axis in node.array(1).reshape(-1)}))


def _count(node: Node) -> int:
    """Return the number of elements that are reduced to one. Raises `ModelImportError` if it is not static."""
    dims = [node.shape(0)[axis] for axis in _axes(node)]
    if not all(isinstance(dim, int) for dim in dims):
        raise node.error("the reduced axes must be static: set their sizes")
    return math.prod(map(int, dims))  # type: ignore[arg-type]


def _reduced(node: Node, operator: Callable[..., Expr], value: Expr) -> Expr:
    return operator(value, axes=_axes(node), keepdims=bool(node.options.KeepDims()))


def _plain(operator: Callable[..., Expr]) -> Converter:
    return lambda node: _reduced(node, operator, node.input(0))


def _extreme(operator: Callable[..., Expr]) -> Converter:
    def convert(node: Node) -> Expr:
        if node.is_stored() and node.pair(node.tensor(0)) != node.pair(node.result):
            raise node.error("the scales of the input and the result must be equal: requantize the result with QUANTIZE")
        return _reduced(node, operator, node.input(0))

    return convert


def _sum(node: Node) -> Expr:
    """Convert SUM. Stored integers are summed as floats, as in LiteRT."""
    if not node.is_stored():
        return _reduced(node, ops.reduce_sum, node.input(0))
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    total = _reduced(node, ops.reduce_sum, ops.cast(node.input(0), dtype="int32"))
    factor = scale / result_scale
    bias = np.float32(-zero_point) * factor * np.float32(_count(node))
    real = ops.add(ops.mul(ops.cast(total, dtype="float32"), constant(factor)), constant(bias))
    rounded = ops.add(ops.cast(rounded_away(real), dtype="int32"), number(result_zero_point))
    least, greatest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(rounded, minimum=least, maximum=greatest), dtype=node.result.dtype.name)


def _mean(node: Node) -> Expr:
    count, dtype = _count(node), node.result.dtype
    if count == 0:
        raise node.error("a mean requires at least one element, got an empty axis")
    if node.is_float():
        return ops.div(_reduced(node, ops.reduce_sum, node.input(0)), constant(np.asarray(count).astype(dtype.numpy)))
    if not node.is_stored():
        total = _reduced(node, ops.reduce_sum, ops.cast(node.input(0), dtype="int64"))
        return ops.cast(ops.div(total, constant(np.int64(count))), dtype=dtype.name)
    (scale, zero_point), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)
    if dtype.bits == 8 and len(node.shape(0)) == 4 and _axes(node) == (1, 2) and node.options.KeepDims():
        return _mean_of_image(node, count)
    total = ops.sub(_reduced(node, ops.reduce_sum, ops.cast(node.input(0), dtype="int32")), number(zero_point * count))
    (multiplier,), (shift,) = fixed_points([float(scale) / float(result_scale)])
    places = min(count.bit_length() - 1, 32, 31 + int(shift))
    divided_multiplier = np.array((int(multiplier) << places) // count, np.int32)
    mean = ops.multiply_fixed(total, constant(divided_multiplier), number(int(shift) - places), rounding="away")
    return node.placed(mean)


def _mean_of_image(node: Node, count: int) -> Expr:
    """Compute the 8-bit mean over rows and columns: the rounded zero point is subtracted after the division."""
    (scale, zero_point), (result_scale, result_zero_point) = node.pair(node.tensor(0)), node.pair(node.result)
    total = _reduced(node, ops.reduce_sum, ops.cast(node.input(0), dtype="int32"))
    offset = np.float32(zero_point) * scale / result_scale
    bias = result_zero_point - int(offset + np.float32(0.5 if offset > 0 else -0.5))
    mean = ops.add(in_vectors(total, [scale / (np.float32(count) * result_scale)], 3, VECTOR), number(bias))
    least, greatest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(mean, minimum=least, maximum=greatest), dtype=node.result.dtype.name)


def _prod(node: Node) -> Expr:
    if not node.is_stored():
        return _reduced(node, ops.reduce_prod, node.input(0))
    count, axes, shape = _count(node), _axes(node), node.shape(0)
    if not 0 < count <= LONGEST_PRODUCT:
        raise node.error(f"a product of stored integers must have at most {LONGEST_PRODUCT} factors, got {count}: use floats")
    outer_axes = [axis for axis in range(len(shape)) if axis not in axes]
    if count == 1:  # LiteRT copies without requantizing
        return node.input(0) if node.options.KeepDims() else squeeze(node.input(0), *axes)
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)
    factor = float(scale) / float(result_scale) ** (1 / count)
    rows = ops.transpose(node.wide(0), perm=(*axes, *outer_axes))
    rows = ops.reshape(rows, shape=(count, *(shape[axis] for axis in outer_axes)))
    factors = [ops.take(rows, number(index), axis=0) for index in range(count)]
    product: Expr = factors[0]
    for factor_value in factors[1:]:
        wide = ops.mul(ops.cast(product, dtype="int64"), ops.cast(factor_value, dtype="int64"))
        product = scaled(wide, [factor])
    placed = node.placed(scaled(ops.cast(product, dtype="int64"), [factor]))
    return expand_dims(placed, *axes) if node.options.KeepDims() else placed


def _position(operator: Callable[..., Expr]) -> Converter:
    def convert(node: Node) -> Expr:
        data = node.input(0)
        if node.tensor(0).dtype.name == "bool":
            data = ops.cast(data, dtype="uint8")
        axis = node.axis(int(node.array(1).reshape(-1)[0]), len(node.shape(0)))
        position = operator(data, axis=axis)
        return position if node.result.dtype.name == "int64" else ops.cast(position, dtype=node.result.dtype.name)

    return convert


def _cumsum(node: Node) -> Expr:
    axis = node.axis(int(node.array(1).reshape(-1)[0]), len(node.shape(0)))
    options = node.options
    return ops.cumsum(node.input(0), axis=axis, exclusive=bool(options.Exclusive()), reverse=bool(options.Reverse()))


NUMBERS = "float32 int8 uint8 int16 int32 int64"

CONVERTERS: Mapping[str, Converter] = {
    "ARG_MAX": typed(_position(ops.argmax), "float32 int8 uint8 int32 bool"),
    "ARG_MIN": typed(_position(ops.argmin), "float32 int8 uint8 int32 bool"),
    "CUMSUM": typed(_cumsum, "float32 int32 int64"),
    "MEAN": typed(_mean, NUMBERS),
    "REDUCE_ALL": typed(_plain(ops.reduce_min), "bool"),
    "REDUCE_ANY": typed(_plain(ops.reduce_max), "bool"),
    "REDUCE_MAX": typed(_extreme(ops.reduce_max), NUMBERS),
    "REDUCE_MIN": typed(_extreme(ops.reduce_min), NUMBERS),
    "REDUCE_PROD": typed(_prod, "float32 int8 int16 int32 int64"),
    "SUM": typed(_sum, NUMBERS),
}
