"""Sampling at data-dependent coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid.graph.conditions import require_at_least, require_equal
from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import FLOAT, Array, as_array, make_family, quiet, tensor_type, widen, widen_array, working_dtype
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, dtype, from_numpy

CUBIC_A = -0.75
"""The coefficient of the cubic kernel (Keys, 1981) in grid sampling."""


@dataclass(frozen=True)
class GridSampleAttrs(Attrs):
    """Attributes of grid_sample.

    mode
        "nearest", "linear" or "cubic".
    padding
        Values out of bounds: "zeros", "border" (repeat the edge) or "reflection". With "border", a coordinate is clamped to the
        edge; with mode "cubic", each of the four neighbors is clamped instead, as in PyTorch and ONNX Runtime.
    align_corners
        Whether -1 and 1 are the centers of the outermost elements, instead of their outer edges.
    elements
        Whether coordinates are in elements, first spatial dimension first; `align_corners` is then ignored.
    """

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False
    elements: bool = False


def _infer_grid_sample(attrs: GridSampleAttrs, x: Type, grid: Type) -> Type:
    data, coordinates = tensor_type(x, what="the data"), tensor_type(grid, FLOAT, "the grid")
    if data.dtype.kind not in ("float", "int", "uint") or (attrs.mode != "nearest" and not data.dtype.is_float):
        raise ValueError(f"x must be float, or numeric with mode nearest, got {data.dtype} with mode {attrs.mode}")
    spatial_rank = data.rank - 2
    if spatial_rank < 1 or coordinates.rank != data.rank:
        raise ValueError(
            f"x must be (N, C, spatial...) and grid (N, positions..., spatial dimensions), got {data!r} and {coordinates!r}"
        )
    require_equal(coordinates.shape[0], data.shape[0], "dimension 0 of the grid")
    require_equal(coordinates.shape[-1], spatial_rank, "the last dimension of the grid")
    if attrs.mode not in ("nearest", "linear", "cubic") or attrs.padding not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"mode must be nearest, linear or cubic, padding zeros, border or reflection, got {attrs.mode!r}, {attrs.padding!r}"
        )
    for number, extent in enumerate(data.shape[2:], 2):
        require_at_least(extent, 1, f"dimension {number} of the data")
    return TensorType((*data.shape[:2], *coordinates.shape[1:-1]), data.dtype)


def _taps(mode: str) -> tuple[int, int]:
    """Return (offset of the first tap from the coordinate's floor, number of taps) of a sample along an axis."""
    return {"nearest": (0, 1), "linear": (0, 2), "cubic": (-1, 4)}[mode]


@quiet
def _reference_grid_sample(attrs: GridSampleAttrs, x: Array, grid: Array) -> Array:
    spatial_rank = x.ndim - 2
    first, taps = _taps(attrs.mode)
    indices, weights = [], []
    for axis in range(spatial_rank):
        extent = x.shape[2 + axis]
        coordinate = _pad_array(
            attrs, _denormalize(attrs, widen_array(grid[..., axis if attrs.elements else spatial_rank - 1 - axis]), extent), extent
        )
        low = coordinate if attrs.mode == "nearest" else np.floor(coordinate)
        index = np.nan_to_num(low, posinf=2.0**40, neginf=-(2.0**40))[..., None] + first + np.arange(taps)
        outside = (index < 0) | (index > extent - 1)
        if attrs.padding == "reflection":
            index = np.trunc(_reflect_array(index.astype(coordinate.dtype), *_borders(attrs, extent)))
        index = np.clip(index, 0, extent - 1).astype(np.int64)
        indices.append(np.where(outside & (attrs.padding == "zeros"), -1, index))
        weights.append(_kernel_array(attrs.mode, first + np.arange(taps) - (coordinate - low)[..., None]).astype(coordinate.dtype))
    total = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]), working_dtype(from_numpy(x.dtype)).numpy)
    image = np.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
    for tap in np.ndindex(*(taps,) * spatial_rank):
        tap_indices = [index[..., k] for index, k in zip(indices, tap, strict=True)]
        value = np.moveaxis(x, 1, -1)[(image, *(np.maximum(index, 0) for index in tap_indices))]
        inside = np.logical_and.reduce([index >= 0 for index in tap_indices])[..., None]
        value = np.moveaxis(np.where(inside, value, 0).astype(total.dtype), -1, 1)
        if attrs.mode == "nearest":
            return as_array(value, from_numpy(x.dtype))
        weight = np.prod([weight[..., k] for weight, k in zip(weights, tap, strict=True)], axis=0)
        total += value * weight[:, None].astype(total.dtype)
    return as_array(total, from_numpy(x.dtype))


def _denormalize(attrs: GridSampleAttrs, value: Any, extent: Any) -> Any:
    """Convert a coordinate to elements."""
    if attrs.elements:
        return value
    return (value + 1) / 2 * (extent - 1) if attrs.align_corners else ((value + 1) * extent - 1) / 2


def _borders(attrs: GridSampleAttrs, extent: Any) -> tuple[Any, Any]:
    """Return the positions at which coordinates are reflected."""
    return (0.0, extent - 1.0) if attrs.align_corners else (-0.5, extent - 0.5)


def _pad_array(attrs: GridSampleAttrs, coordinate: Array, extent: int) -> Array:
    if attrs.mode == "nearest":
        coordinate = np.rint(coordinate)
    if attrs.padding == "border" and attrs.mode != "cubic":
        return np.clip(coordinate, 0, extent - 1)
    return _reflect_array(coordinate, *_borders(attrs, extent)) if attrs.padding == "reflection" else coordinate


def _reflect_array(coordinate: Array, low: float, high: float) -> Array:
    """Reflect a coordinate at the borders until it is between them."""
    distance = np.maximum(low - coordinate, coordinate - high)
    width = coordinate.dtype.type(max(high - low, 1))
    reflections = np.floor(distance / width)
    reflected_distance = distance - reflections * width
    from_low = (coordinate < low) == (np.mod(reflections, 2) == 0)
    return np.where(distance > 0, np.where(from_low, low + reflected_distance, high - reflected_distance), coordinate).astype(
        coordinate.dtype
    )


def _kernel_array(mode: str, distance: Array) -> Array:
    d = np.abs(distance)
    if mode != "cubic":
        return 1 - d
    inner_piece = ((CUBIC_A + 2) * d - (CUBIC_A + 3)) * d * d + 1
    outer_piece = ((CUBIC_A * d - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A
    return np.where(d <= 1, inner_piece, outer_piece)


def _compute_grid_sample(attrs: GridSampleAttrs, x: te.Tensor, grid: te.Tensor) -> te.Tensor:
    """Build three stages per axis, of coordinates, indices (-1: outside) and weights, then the stage that sums over the taps."""
    spatial_rank = x.rank - 2
    first, taps = _taps(attrs.mode)
    outputs = grid.shape[:-1]
    working = working_dtype(x.dtype)
    indices, weights = [], []
    for axis in range(spatial_rank):
        extent = x.shape[2 + axis]
        coordinate_dtype = working_dtype(grid.dtype)
        length = ir.as_expr(arith.wrap(extent), coordinate_dtype)

        def coordinate(*i: arith.Var, axis: int = axis, length: ir.Expr = length) -> ir.Expr:
            position: ir.Expr = _denormalize(attrs, widen(grid[(*i, axis if attrs.elements else spatial_rank - 1 - axis)]), length)
            if attrs.mode == "nearest":
                position = te.unary("round", position)
            if attrs.padding == "border" and attrs.mode != "cubic":
                return te.minimum(te.maximum(position, 0), length - 1)
            return _reflect_value(position, *_borders(attrs, length)) if attrs.padding == "reflection" else position

        coordinates = te.compute(outputs, coordinate, "coordinate")

        def tap_index(
            tap: arith.Var, *i: arith.Var, coordinates: te.Tensor = coordinates, length: ir.Expr = length, extent: Dim = extent
        ) -> ir.Expr:
            position = te.unary("floor", coordinates[i]) + ir.as_expr(arith.wrap(tap + first), coordinates.dtype)
            outside = (position < 0) | (position > length - 1)
            if attrs.padding == "reflection":
                position = te.unary("trunc", _reflect_value(position, *_borders(attrs, length)))
            elif attrs.padding == "border":
                position = te.minimum(te.maximum(position, 0), length - 1)  # it may be beyond int32
            last = ir.as_expr(arith.wrap(extent - 1), dtype("int32"))
            index = te.minimum(te.maximum(te.cast(position, "int32"), 0), last)
            return te.select(outside, te.const(-1, "int32"), index) if attrs.padding == "zeros" else index

        def weight(tap: arith.Var, *i: arith.Var, coordinates: te.Tensor = coordinates) -> ir.Expr:
            value = coordinates[i]
            distance = ir.as_expr(arith.wrap(tap + first), coordinates.dtype) - (value - te.unary("floor", value))
            return te.cast(_kernel_value(attrs.mode, distance), working)

        indices.append(te.compute((taps, *outputs), tap_index, "place"))
        weights.append(te.compute((taps, *outputs), weight, "weight"))

    def pixel(n: arith.Var, c: arith.Var, position: tuple[arith.Var, ...], tap: tuple[Any, ...]) -> ir.Expr:
        inside: ir.Expr = te.const(True, "bool")
        data_index: list[Any] = []
        for axis, (index_table, k) in enumerate(zip(indices, tap, strict=True)):
            index = index_table[(k, n, *position)]
            inside = inside & (index >= 0)
            data_index.append(te.checked(te.maximum(index, 0), 0, x.shape[2 + axis] - 1))
        value = x[(n, c, *data_index)]
        return te.select(inside, value, te.const(0, x.dtype)) if attrs.padding == "zeros" else value

    shape = (*x.shape[:2], *outputs[1:])
    if attrs.mode == "nearest":
        nearest: te.Tensor = te.compute(shape, lambda n, c, *i: pixel(n, c, i, (0,) * spatial_rank), "grid_sample")
        return nearest
    axes = tuple(te.reduce_axis(taps, f"k{axis}") for axis in range(spatial_rank))

    def element(n: arith.Var, c: arith.Var, *position: arith.Var) -> ir.Expr:
        value = te.cast(pixel(n, c, position, axes), working)
        for weight_table, k in zip(weights, axes, strict=True):
            value = value * weight_table[(k, n, *position)]
        total: ir.Expr = te.sum_(value, axes)
        return total

    summed = te.compute(shape, element, "grid_sample")
    if working is x.dtype:
        return summed  # type: ignore[no-any-return]
    narrow: te.Tensor = te.compute(shape, lambda *i: te.cast(summed[i], x.dtype), "round")
    return narrow


def _reflect_value(coordinate: ir.Expr, low: Any, high: Any) -> ir.Expr:
    low, high = ir.as_expr(low, coordinate.dtype), ir.as_expr(high, coordinate.dtype)
    distance = te.maximum(low - coordinate, coordinate - high)
    width = te.maximum(high - low, 1)
    reflections = te.unary("floor", distance / width)
    reflected_distance = distance - reflections * width
    is_even = (reflections - te.unary("floor", reflections / 2) * 2).equal(0)
    is_below = coordinate < low
    from_low = (is_below & is_even) | (~is_below & ~is_even)
    return te.select(distance > 0, te.select(from_low, low + reflected_distance, high - reflected_distance), coordinate)


def _kernel_value(mode: str, distance: ir.Expr) -> ir.Expr:
    d = te.unary("abs", distance)
    if mode != "cubic":
        return 1 - d
    inner_piece = (d * (CUBIC_A + 2) - (CUBIC_A + 3)) * d * d + 1
    outer_piece = ((d * CUBIC_A - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A
    return te.select(d <= 1, inner_piece, outer_piece)


grid_sample = Operator(
    "grid_sample",
    _infer_grid_sample,
    GridSampleAttrs,
    reference=_reference_grid_sample,
    compute=_compute_grid_sample,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("x", "grid"),
    doc="""Sample at the coordinates of a grid (Jaderberg et al., 2015).
Operands: x (N, C, spatial...), float (mode "nearest": numeric); grid (N, positions..., number of spatial dimensions), float,
coordinates in [-1, 1], last spatial dimension first (see `elements` for another convention). Result: (N, C, positions...), dtype of
x.""",
)

OPERATORS = make_family(grid_sample)
