"""Resizing and sampling."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Call, Expr, Var
from inlaid.ops.compose import cast_to, count, expr_type, scalar, slice_axis, widened
from inlaid.ops.deform import col2im
from inlaid.ops.elementwise import add, div, floor, less, maximum, mul, sub
from inlaid.ops.interpolation import resize
from inlaid.ops.roi import roi_align, roi_max_pool
from inlaid.ops.sample import grid_sample
from inlaid.ops.shape import broadcast_to, concat, iota, reshape, simple
from inlaid.ops.shape import sizes as sizes_of
from inlaid_onnx.convert.window import ints
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim


def _floats(node: Node, index: int) -> tuple[float, ...]:
    """Return the elements of a static input; empty if the input is omitted."""
    return () if node.optional(index) is None else tuple(map(float, node.require_static(index).reshape(-1)))


_MAX_EXTENT = 1 << 16
"""Greatest extent for which `_scaled` gives a symbolic axis the same size as a static one."""
_SIGNIFICAND_BITS = 24
"""Significant bits of a float32."""


def _scaled(extent: Dim, scale: float) -> Dim:
    """Compute the floor of the float32 product extent * scale, as ONNX's shape inference and ONNX Runtime do: 10 * 0.7 is 7,
    although the float32 number 0.7 is less than 7 / 10."""
    if isinstance(extent, int):
        return int(_products(np.array(extent), scale))
    ratio = _ratio(scale)
    if ratio is not None:
        return simple(arith.unwrap(arith.floordiv(arith.mul(extent, ratio.numerator), ratio.denominator)))
    # Rounding a product of b bits to float32 adds at most half of the last bit kept, 2 ** (b - 25), and so may reach an integer.
    factor, denominator = Fraction(scale).as_integer_ratio()
    max_bits = (factor * _MAX_EXTENT).bit_length()
    half: Dim = 1 << (max_bits - _SIGNIFICAND_BITS - 1)
    for bits in reversed(range(_SIGNIFICAND_BITS, max_bits)):
        shorter = arith.compare("<", extent, -(-(1 << bits) // factor))
        half = arith.select(shorter, 1 << (bits - _SIGNIFICAND_BITS - 1) if bits > _SIGNIFICAND_BITS else 0, half)
    return simple(arith.unwrap(arith.floordiv(arith.add(arith.mul(extent, factor), half), denominator)))


def _products(extents: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    """Return the integer parts of extents * scale in float32."""
    products: np.ndarray[Any, Any] = np.floor(extents.astype(np.float32) * np.float32(scale)).astype(np.int64)
    return products


@functools.cache
def _ratio(scale: float) -> Fraction | None:
    """Return the simplest fraction that rounds to `scale` in float32 and whose products with all extents up to `_MAX_EXTENT`
    have the same integer parts as the float32 products; None if no fraction fits."""
    extents = np.arange(_MAX_EXTENT + 1)
    integer_parts = _products(extents, scale)
    for digits in range(8):
        ratio = Fraction(scale).limit_denominator(10**digits)
        is_exact = np.float32(ratio) == np.float32(scale)
        if is_exact and np.array_equal(extents * ratio.numerator // ratio.denominator, integer_parts):
            return ratio
    return None


def _resize_10(node: Node) -> Expr:
    """Convert Resize of opset 10. Coordinates are asymmetric, rounded down for a scale above 1, up for a scale below 1."""
    shape, scales = node.tensor(0).shape, _floats(node, 1)
    if len(scales) != len(shape) or any(scale <= 0 for scale in scales):
        raise node.error(f"expected one positive scale for each of {len(shape)} axes, got {scales}")
    result = node.input(0)
    for rounding, is_selected in (("ceil", [scale < 1 for scale in scales]), ("floor", [scale > 1 for scale in scales])):
        if any(is_selected):
            factors = tuple(scale if on else 1.0 for scale, on in zip(scales, is_selected, strict=True))
            result = resize(
                result,
                shape=tuple(map(_scaled, expr_type(result).shape, factors)),
                scales=factors,
                mode=node.attrs.get("mode", "nearest"),
                coordinates="asymmetric",
                rounding=rounding,
            )
    return result


def _resize(node: Node) -> Expr:
    """Convert Resize of (x, roi, scales, sizes).

    If size * scale is fractional, "align_corners" uses the fractional size, as ONNX's reference does. ONNX's text says only "the
    length of the resized tensor", and ONNX Runtime uses the integer size, so results differ.
    """
    if node.opset < 11:
        return _resize_10(node)
    shape = node.tensor(0).shape
    rank = len(shape)
    attrs = node.attrs
    axes = tuple(node.axis(axis, rank) for axis in attrs.get("axes") or range(rank))
    if node.optional(2) is not None and node.static(2) is None and not isinstance(node.input(2), Var):
        return _resize_computed(node, axes)  # a graph input could have any scales, so it must be static
    policy = attrs.get("keep_aspect_ratio_policy", "stretch")
    scales, sizes = _floats(node, 2), _sizes(node, policy) if node.optional(3) is not None else ()
    if bool(scales) == bool(sizes) or len(scales or sizes) != len(axes):
        raise node.error(f"expected either scales or sizes, one for each of {len(axes)} axes")
    if any(scale <= 0 for scale in scales):
        raise node.error(f"scales must be positive, got {scales}")
    coordinates = attrs.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_half_pixel_for_nn":
        raise node.error("coordinate_transformation_mode tf_half_pixel_for_nn was removed in opset 13")
    new_shape, factors = list(shape), [1.0] * rank
    if sizes and policy != "stretch":
        scales = _aspect_ratio_scales(node, [shape[axis] for axis in axes], sizes, policy)
        for axis, scale in zip(axes, scales, strict=True):
            extent = shape[axis]
            assert isinstance(extent, int)
            new_shape[axis], factors[axis] = int(extent * scale + 0.5), scale
    else:
        for number, axis in enumerate(axes):
            new_shape[axis] = sizes[number] if sizes else _scaled(shape[axis], scales[number])
            factors[axis] = 0.0 if sizes else scales[number]
    crop: list[float] = []
    if coordinates == "tf_crop_and_resize":
        roi = _floats(node, 1)
        if len(roi) != 2 * len(axes):
            raise node.error(f"roi must have a start and an end for each of {len(axes)} axes")
        crop = [0.0] * rank + [1.0] * rank
        for number, axis in enumerate(axes):
            crop[axis], crop[rank + axis] = roi[number], roi[len(axes) + number]
    return resize(
        node.input(0),
        shape=tuple(new_shape),
        scales=tuple(factors),
        mode=attrs.get("mode", "nearest"),
        coordinates=coordinates,
        rounding=attrs.get("nearest_mode", "round_prefer_floor"),
        cubic_a=attrs.get("cubic_coeff_a", -0.75),
        antialias=bool(attrs.get("antialias", 0)),
        exclude_outside=bool(attrs.get("exclude_outside", 0)),
        crop=tuple(crop),
        outside=attrs.get("extrapolation_value", 0.0),
    )


def _sizes(node: Node, policy: str) -> tuple[Dim, ...]:
    """Return the sizes of a Resize. They must be static with antialias, and with a policy other than "stretch", since a
    scale is computed from them."""
    if policy == "stretch" and not node.attrs.get("antialias", 0):
        return node.sizes(3, "sizes")
    return tuple(map(int, node.require_static(3)))


def _resize_computed(node: Node, axes: tuple[int, ...]) -> Expr:
    """Convert a Resize with data-dependent scales. `resize` computes each scale as the quotient of two sizes, so the run fails
    unless size * scale is an integer in float32. It also fails if the product is just below an integer, as ONNX rounds it down."""
    shape, attrs = list(node.tensor(0).shape), node.attrs
    if node.tensor(2).shape != (len(axes),) or attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.error(f"computed scales must have {len(axes)} elements, and cropping is not supported")
    x = node.input(0)
    for number, axis in enumerate(axes):
        scale = _part(node.input(2), number)
        static_scale = node.scope.static(scale)
        if static_scale is not None:
            shape[axis] = _scaled(shape[axis], float(static_scale.item()))
            continue
        product = mul(cast_to(reshape(sizes_of(dims=(shape[axis],)), shape=()), "float32"), reshape(scale, shape=()))
        size = floor(product)
        fits = less(sub(product, size), scalar(1e-3, "float32"))
        x = node.asserted(fits, f"the computed scale of axis {axis} must give an integer size in float32; use sizes instead", x)
        shape[axis] = node.size(cast_to(size, "int64"), f"the size of axis {axis}")
    return resize(
        x,
        shape=tuple(shape),
        scales=(0.0,) * len(shape),
        mode=attrs.get("mode", "nearest"),
        coordinates=attrs.get("coordinate_transformation_mode", "half_pixel"),
        rounding=attrs.get("nearest_mode", "round_prefer_floor"),
        cubic_a=attrs.get("cubic_coeff_a", -0.75),
        antialias=bool(attrs.get("antialias", 0)),
        exclude_outside=bool(attrs.get("exclude_outside", 0)),
        crop=(),
        outside=attrs.get("extrapolation_value", 0.0),
    )


def _part(vector: Expr, index: int) -> Expr:
    """Return the element at `index` of a vector, as shape (1,). If the vector is a concatenation, read the part that has the
    element."""
    while isinstance(vector, Call) and vector.callee is concat:
        for part in vector.args:
            extent = expr_type(part).shape[0]
            if not isinstance(extent, int):
                return slice_axis(vector, 0, index, index + 1)
            if index < extent:
                vector = part
                break
            index -= extent
    return slice_axis(vector, 0, index, index + 1)


def _aspect_ratio_scales(node: Node, extents: list[Dim], sizes: tuple[Dim, ...], policy: str) -> tuple[float, ...]:
    """Return one scale for all axes: the greatest with which no axis exceeds its size ("not_larger"), or the least with which no
    axis is below its size ("not_smaller")."""
    quotients = []
    for extent, size in zip(extents, sizes, strict=True):
        if not isinstance(extent, int) or not isinstance(size, int) or extent == 0:
            raise node.error(f"keep_aspect_ratio_policy {policy!r} requires static extents >= 1")
        quotients.append(size / extent)
    if policy not in ("not_larger", "not_smaller"):
        raise node.error(f"keep_aspect_ratio_policy must be stretch, not_larger or not_smaller, got {policy!r}")
    return (min(quotients) if policy == "not_larger" else max(quotients),) * len(quotients)


def _upsample(node: Node) -> Expr:
    """Convert Upsample. The scales are an input since opset 9, an attribute before."""
    shape = node.tensor(0).shape
    if node.opset >= 9:
        scales = _floats(node, 1)
    elif node.opset >= 7:
        scales = tuple(node.attrs["scales"])
    else:
        scales = (1.0, 1.0, node.attrs["height_scale"], node.attrs["width_scale"])
    if len(scales) != len(shape) or any(scale < 1 for scale in scales):
        raise node.error(f"expected one scale >= 1 for each of {len(shape)} axes, got {scales}")
    return resize(
        node.input(0),
        shape=tuple(map(_scaled, shape, scales)),
        scales=scales,
        mode="nearest" if node.attrs.get("mode", "nearest") == "nearest" else "linear",
        coordinates="asymmetric",
        rounding="floor",
    )


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_sample(node: Node) -> Expr:
    mode = node.attrs.get("mode", "linear")
    return grid_sample(
        node.input(0),
        node.input(1),
        mode=_GRID_MODES.get(mode, mode),
        padding=node.attrs.get("padding_mode", "zeros"),
        align_corners=bool(node.attrs.get("align_corners", 0)),
    )


def _roi_align(node: Node) -> Expr:
    """Convert RoiAlign. Coordinates are shifted by half an element by default since opset 16."""
    attrs = node.attrs
    transformation = attrs.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    return roi_align(
        node.input(0),
        node.input(1),
        node.input(2),
        shape=(attrs.get("output_height", 1), attrs.get("output_width", 1)),
        sampling=attrs.get("sampling_ratio", 0),
        scale=attrs.get("spatial_scale", 1.0),
        half_pixel=transformation == "half_pixel",
        maximum=attrs.get("mode", "avg") == "max",
    )


def _max_roi_pool(node: Node) -> Expr:
    shape = tuple(node.attrs.get("pooled_shape") or ())
    if len(shape) != 2:
        raise node.error("the attribute pooled_shape must have a height and a width")
    return roi_max_pool(node.input(0), node.input(1), shape=shape, scale=node.attrs.get("spatial_scale", 1.0))


def _affine_grid(node: Node) -> Expr:
    """Convert AffineGrid: apply theta (N, k, k + 1) to the coordinates, in [-1, 1], of a k-dimensional image."""
    size = node.sizes(1, "size")
    theta = widened(node.input(0))
    batch, spatial = size[0], size[2:]
    rank = len(spatial)
    dtype = expr_type(theta).dtype
    if rank not in (2, 3):
        raise node.error(f"size must have 4 or 5 elements, got {len(size)}")
    with node.relations():
        require_shape(node.tensor(0).shape, (batch, rank, rank + 1), "theta")
    align = bool(node.attrs.get("align_corners", 0))

    def term(column: int) -> Expr:
        return reshape(slice_axis(theta, 2, column, column + 1), shape=(expr_type(theta).shape[0], *(1,) * rank, rank))

    total = term(rank)
    for axis, extent in enumerate(spatial):
        position = cast_to(iota(shape=(extent,), axis=0), dtype)
        length = count([extent], dtype)
        two, one = scalar(2, dtype), scalar(1, dtype)
        if align:
            # The only point of an axis of extent 1 is at -1, as in ONNX's reference implementation.
            coordinates = sub(div(mul(position, two), maximum(sub(length, one), one)), one)
        else:
            coordinates = sub(div(add(mul(position, two), one), length), one)
        along_axis = reshape(coordinates, shape=tuple(extent if k == axis + 1 else 1 for k in range(rank + 2)))
        # The last spatial dimension is first in theta.
        total = add(total, mul(along_axis, term(rank - 1 - axis)))
    return cast_to(broadcast_to(total, shape=(batch, *spatial, rank)), node.dtype(0))


def _col2im(node: Node) -> Expr:
    image, block = node.sizes(1, "image_shape"), node.require_static(2).reshape(-1)
    rank = len(image)
    return col2im(
        node.input(0),
        shape=image,
        kernel=tuple(map(int, block)),
        strides=ints(node, "strides", rank, 1),
        pads=tuple(node.attrs.get("pads") or (0,) * (2 * rank)),
        dilations=ints(node, "dilations", rank, 1),
    )


CONVERTERS: Mapping[str, Converter] = {
    "AffineGrid": _affine_grid,
    "Col2Im": _col2im,
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _upsample,
}
