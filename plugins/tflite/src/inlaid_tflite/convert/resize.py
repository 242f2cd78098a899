"""Image resizing. Integers are interpolated with 10-bit weights, as in LiteRT."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to
from inlaid_runtime.arith import Dim
from inlaid_tflite.model import Array
from inlaid_tflite.node import Converter, Node, half_away, tensor_type, typed

LONGEST = 1 << 16
"""Maximum extent of a side of an image."""
BITS = 10
"""Fraction bits of a weight."""


def _sizes(node: Node) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """Return ((input rows, output rows), (input columns, output columns))."""
    shape, new = node.shape(0), node.dims(1)
    if len(shape) != 4 or len(new) != 2:
        raise node.error(f"expected 2 sizes and an image of rank 4, got {len(new)} sizes and rank {len(shape)}")
    if node.option("AlignCorners", False) and node.option("HalfPixelCenters", False):
        raise node.error("align_corners and half_pixel_centers are mutually exclusive: set only one")
    return (shape[1], new[0]), (shape[2], new[1])


def _require_static_sizes(node: Node, sizes: tuple[Dim, Dim]) -> tuple[int, int]:
    old_size, new_size = sizes
    if not isinstance(old_size, int) or not isinstance(new_size, int) or not 0 < old_size <= LONGEST or not 0 < new_size <= LONGEST:
        raise node.error(f"input and output sizes must be static and 1 to {LONGEST}, got {old_size} and {new_size}")
    return old_size, new_size


def _nearest(node: Node) -> Expr:
    value, half_pixel, aligned = node.input(0), node.option("HalfPixelCenters", False), node.option("AlignCorners", False)
    for axis, sizes in enumerate(_sizes(node), 1):
        old_size, new_size = _require_static_sizes(node, sizes)
        align_ends = aligned and new_size > 1
        scale = np.float32(old_size - 1) / np.float32(new_size - 1) if align_ends else np.float32(old_size) / np.float32(new_size)
        coordinates = (np.arange(new_size, dtype=np.float32) + np.float32(0.5 if half_pixel else 0)) * scale
        coordinates = half_away(coordinates) if aligned else np.floor(coordinates)
        value = ops.take(value, constant(np.clip(coordinates, 0, old_size - 1).astype(np.int32)), axis=axis)
    return value


def _bilinear(node: Node) -> Expr:
    sizes = _sizes(node)
    if node.is_float():
        coordinates = "asymmetric"
        if node.option("AlignCorners", False):
            coordinates = "align_corners"
        elif node.option("HalfPixelCenters", False):
            coordinates = "half_pixel"
        (_, rows), (_, columns) = sizes
        shape = (node.shape(0)[0], rows, columns, node.shape(0)[3])
        return ops.resize(node.input(0), shape=shape, mode="linear", coordinates=coordinates)
    if node.result.dtype.name == "uint8":
        return _bilinear_in_floats(node, [_require_static_sizes(node, each) for each in sizes])
    wide = cast_to(node.input(0), "int64" if node.result.dtype.bits > 8 else "int32")
    dtype = tensor_type(wide).dtype.numpy
    for axis, each in enumerate(sizes, 1):
        low, high, upper = _weights(node, *_require_static_sizes(node, each))
        parts = (
            ops.mul(_along(wide, axis, places), constant(_column(weights.astype(dtype), axis)))
            for places, weights in ((low, (1 << BITS) - upper), (high, upper))
        )
        wide = ops.add(*parts)
    one = 1 << 2 * BITS
    half = constant(np.array(one // 2, dtype))
    # Round half away from 0; the division truncates.
    signed_half = ops.where(ops.less(constant(np.array(0, dtype)), wide), half, ops.neg(half))
    return cast_to(ops.div(ops.add(wide, signed_half), constant(np.array(one, dtype))), node.result.dtype)


def _along(value: Expr, axis: int, places: Array) -> Expr:
    return ops.take(value, constant(places.astype(np.int32)), axis=axis)


def _column(weights: Array, axis: int) -> Array:
    """Reshape weights to broadcast along an axis of an image."""
    return weights.reshape(tuple(-1 if other == axis else 1 for other in range(4)))


def _weights(node: Node, old_size: int, new_size: int) -> tuple[Array, Array, Array]:
    """Return, for each output position, the lower and upper neighbor, and the 10-bit weight of the upper one."""
    scale = ((old_size << BITS) + new_size // 2) // new_size
    if node.option("AlignCorners", False) and new_size > 1:
        scale = (((old_size - 1) << BITS) + (new_size - 1) // 2) // (new_size - 1)
    coordinates = np.arange(new_size, dtype=np.int64) * scale
    if node.option("HalfPixelCenters", False):
        coordinates = coordinates + scale // 2 - (1 << BITS - 1)
    low = np.clip(np.trunc(coordinates / (1 << BITS)), 0, old_size - 1).astype(np.int64)
    high = np.minimum(np.trunc((coordinates + (1 << BITS) - 1) / (1 << BITS)), old_size - 1).astype(np.int64)
    return low, high, coordinates - (low << BITS)


def _bilinear_in_floats(node: Node, sizes: list[tuple[int, int]]) -> Expr:
    """Interpolate uint8 as LiteRT does: sum four float32 products, rounded half up."""
    sides = []
    for axis, (old_size, new_size) in enumerate(sizes, 1):
        align_ends = node.option("AlignCorners", False) and new_size > 1
        scale = np.float32(old_size - 1) / np.float32(new_size - 1) if align_ends else np.float32(old_size) / np.float32(new_size)
        coordinates = np.arange(new_size, dtype=np.float32)
        coordinates = (
            (coordinates + np.float32(0.5)) * scale - np.float32(0.5)
            if node.option("HalfPixelCenters", False)
            else coordinates * scale
        )
        low, high = np.maximum(np.floor(coordinates), 0), np.minimum(np.ceil(coordinates), old_size - 1)
        upper = coordinates - low.astype(np.float32)
        sides.append(((low, _column(np.float32(1) - upper, axis)), (high, _column(upper, axis))))
    real = cast_to(node.input(0), "float32")
    total: Expr | None = None
    for rows, row_weights in sides[0]:
        for columns, column_weights in sides[1]:
            part = ops.mul(_along(_along(real, 1, rows), 2, columns), constant(row_weights * column_weights))
            total = part if total is None else ops.add(total, part)
    assert total is not None
    return cast_to(ops.add(total, constant(np.float32(0.5))), "uint8")


CONVERTERS: Mapping[str, Converter] = {
    "RESIZE_BILINEAR": typed(_bilinear, "float32 int8 uint8 int16"),
    "RESIZE_NEAREST_NEIGHBOR": typed(_nearest, "float32 int8 uint8 int16"),
}
"""The inputs are an image, and its new (rows, columns)."""
