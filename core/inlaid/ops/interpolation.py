"""Resizing by separable interpolation.

Along each resized axis, output position o maps to the source coordinate x (see `_coordinate`). The output is the weighted sum of
the inputs near floor(x); the weights are a kernel function of the distances from x. Inputs beyond the ends repeat the edge.
Coordinates and weights are computed in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.conditions import Constraint, provably_equal, require, require_static
from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import ANY, Array, as_array, make_family, quiet, tensor_type, working_dtype
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype, from_numpy

COORDINATES = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

MAX_UNROLLED_TAPS = 4
"""Maximum number of taps for which an output is one expression instead of a reduction."""

_Number = float | ir.Expr


@dataclass(frozen=True)
class ResizeAttrs(Attrs):
    """Attributes of resize, with the meaning of ONNX Resize. Tuples have one element per axis.

    shape
        The shape of the result.
    scales
        The ratio output / input extent for computing coordinates; 0: the ratio of the actual extents.
    mode
        "nearest", "linear" or "cubic".
    coordinates
        How output positions map to source coordinates: one of `COORDINATES`, which are ONNX's modes.
    rounding
        Rounding of coordinates in mode "nearest": "round_prefer_floor", "round_prefer_ceil", "floor" or "ceil".
    cubic_a
        The coefficient of the cubic kernel (Keys, 1981).
    antialias
        Whether to stretch the kernel by the inverse of a scale below 1.
    exclude_outside
        Whether inputs beyond the ends have weight 0 and the other weights are normalized to sum 1.
    crop
        For coordinates "tf_crop_and_resize": the start of the crop on each axis, then the end on each, in [0, 1].
    outside
        For coordinates "tf_crop_and_resize": the value of outputs whose coordinate is out of range.
    """

    shape: tuple[Dim, ...]
    scales: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    crop: tuple[float, ...] = ()
    outside: float = 0.0


@dataclass(frozen=True)
class _ResizedAxis:
    """A resized axis: its input extent `before`, its output extent `after`, its scale (None: output extent / input extent) and its
    crop."""

    index: int
    before: Dim
    after: Dim
    scale: float | None
    crop: tuple[float, float]


def _infer(attrs: ResizeAttrs, x: Type) -> Type:
    data = tensor_type(x, ANY if attrs.mode == "nearest" else ("float", "int", "uint"))
    rank = data.rank
    if len(attrs.shape) != rank or len(attrs.scales) not in (0, rank) or len(attrs.crop) not in (0, 2 * rank):
        raise ValueError(f"expected shape, scales and crop for {rank} axes, got {attrs.shape}, {attrs.scales} and {attrs.crop}")
    if attrs.mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode must be nearest, linear or cubic, got {attrs.mode!r}")
    if attrs.coordinates not in COORDINATES or attrs.rounding not in NEAREST:
        raise ValueError(f"coordinates and rounding must be modes of ONNX Resize, got {attrs.coordinates!r} and {attrs.rounding!r}")
    if attrs.antialias and attrs.mode == "nearest":
        raise ValueError("antialias requires mode linear or cubic, got nearest")
    result_is_empty: Dim = functools.reduce(arith.logical_or, [arith.compare("==", dim, 0) for dim in attrs.shape], arith.wrap(0))
    for axis in _axes(attrs, data.shape):
        is_nonempty = arith.unwrap(arith.logical_or(arith.compare(">=", axis.before, 1), result_is_empty))
        require(Constraint(is_nonempty, f"dimension {axis.index} of the input", ">= 1", axis.before))
        if attrs.antialias:
            _reach(attrs, axis)
    return TensorType(attrs.shape, data.dtype)


def _axes(attrs: ResizeAttrs, shape: tuple[Dim, ...]) -> list[_ResizedAxis]:
    """Return the axes that may be resized, or an empty list if the result is known to have no elements."""
    if any(provably_equal(dim, 0) for dim in attrs.shape):
        return []
    rank = len(shape)
    axes = []
    for index in range(rank):
        scale = attrs.scales[index] if attrs.scales else 0.0
        crop = (attrs.crop[index], attrs.crop[rank + index]) if attrs.crop else (0.0, 1.0)
        if not provably_equal(shape[index], attrs.shape[index]) or (scale and not math.isclose(scale, 1.0)) or crop != (0.0, 1.0):
            axes.append(_ResizedAxis(index, shape[index], attrs.shape[index], scale or None, crop))
    return axes


def _number(dim: Dim) -> _Number:
    return float(dim) if isinstance(dim, int) else ir.as_expr(dim, dtype("float64"))


def _equals_one(value: _Number) -> bool | ir.Expr:
    return value.equal(1) if isinstance(value, ir.Expr) else value == 1


def _pick(condition: bool | ir.Expr, then: Any, otherwise: Any) -> Any:
    if isinstance(condition, bool):
        return then if condition else otherwise
    return te.select(condition, ir.as_expr(then, dtype("float64")), ir.as_expr(otherwise, dtype("float64")))


def _coordinate(attrs: ResizeAttrs, axis: _ResizedAxis, position: Any) -> Any:
    """Return the source coordinates of output positions. Both are float64 arrays or value expressions."""
    before, after = _number(axis.before), _number(axis.after)

    def unscaled(scaled_position: Any) -> Any:
        # Without a scale, a coordinate is a quotient of integers that is rounded once, so integer coordinates, where "floor"
        # and "ceil" jump, are exact.
        return scaled_position * before / after if axis.scale is None else scaled_position / axis.scale

    scale: Any = axis.scale if axis.scale is not None else after / before
    width: Any = after if axis.scale is None else scale * before
    is_single = _equals_one(width)
    last: Any = before - 1
    steps: Any = _pick(is_single, 1.0, width - 1)
    match attrs.coordinates:
        case "align_corners":
            return position * _pick(is_single, 0.0, last) / steps
        case "asymmetric":
            return unscaled(position)
        case "tf_crop_and_resize":
            start, end = axis.crop
            inner = position * _pick(is_single, 0.0, (end - start) * last) / steps
            return inner + _pick(is_single, (end - start) * last / 2, 0.0) + start * last
        case "pytorch_half_pixel":
            return _pick(_equals_one(after), 0 * position, unscaled(position + 0.5) - 0.5)
        case "half_pixel_symmetric":
            # The center of the input maps to the center of the output, although the output is not `width` wide.
            return before / 2 * (1 - after / width) + unscaled(position + 0.5) - 0.5
    return unscaled(position + 0.5) - 0.5


def _repeats(attrs: ResizeAttrs, axis: _ResizedAxis) -> int:
    """Return how many consecutive outputs repeat each element of an axis; 0 if the number varies or is unknown."""
    after, before = arith.wrap(axis.after), arith.wrap(axis.before)
    times = round(axis.scale) if axis.scale is not None else arith.size_hint(axis.after) // max(arith.size_hint(axis.before), 1)
    if times < 1 or axis.scale not in (None, times) or arith.simplify(after - before * times) != arith.ZERO:
        return 0
    # All coordinates of an element's outputs are within half an element of it, or between it and the next element.
    is_centered = attrs.coordinates in ("half_pixel", "half_pixel_symmetric") and attrs.rounding.startswith("round")
    rounds_down = attrs.rounding == "floor" or (attrs.rounding == "round_prefer_floor" and times <= 2)
    return times if is_centered or (attrs.coordinates == "asymmetric" and rounds_down) else 0


def _reach(attrs: ResizeAttrs, axis: _ResizedAxis) -> tuple[int, int, float]:
    """Return (offset of the first tap from floor(x), number of taps, factor by which distances are multiplied) of the kernel."""
    support = 1 if attrs.mode == "linear" else 2
    shrink = 1.0
    if attrs.antialias:
        scale = axis.scale
        if scale is None:
            after, before = (require_static(extent, "an extent resized with antialias") for extent in (axis.after, axis.before))
            scale = after / before
        shrink = min(scale, 1.0)
    first = math.floor(-support / shrink) + 1
    return first, 2 - 2 * first, shrink


# --- reference --------------------------------------------------------------------------------------------------------


def _kernel_array(attrs: ResizeAttrs, distance: Array) -> Array:
    d = np.abs(distance)
    if attrs.mode == "linear":
        weights: Array = np.maximum(1 - d, 0)
        return weights
    a = attrs.cubic_a
    inner_piece = ((a + 2) * d - (a + 3)) * d * d + 1
    outer_piece = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, inner_piece, np.where(d < 2, outer_piece, 0))


def _round_array(rounding: str, x: Array) -> Array:
    low = np.floor(x)
    match rounding:
        case "floor":
            return low
        case "ceil":
            return np.ceil(x)
        case "round_prefer_floor":
            return low + (x - low > 0.5)
    return low + (x - low >= 0.5)


def _resize_axis(attrs: ResizeAttrs, axis: _ResizedAxis, data: Array, x: Array) -> Array:
    """Interpolate the data at coordinates x along an axis."""
    extent = data.shape[axis.index]
    if attrs.mode == "nearest":
        nearest = np.clip(_round_array(attrs.rounding, x), 0, extent - 1).astype(np.int64)
        result: Array = np.take(data, nearest, axis.index)
        return result
    first, taps, shrink = _reach(attrs, axis)
    low = np.floor(x)
    positions = low.astype(np.int64)[:, None] + first + np.arange(taps)
    weights = _kernel_array(attrs, (first + np.arange(taps) - (x - low)[:, None]) * shrink)
    if attrs.exclude_outside:
        weights = np.where((positions < 0) | (positions >= extent), 0, weights)
    if attrs.exclude_outside or attrs.antialias:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    inputs = np.take(np.moveaxis(data, axis.index, -1), np.clip(positions, 0, extent - 1), -1)
    summed: Array = np.moveaxis((inputs * weights.astype(data.dtype)).sum(axis=-1), -1, axis.index)
    return summed


@quiet
def _reference(attrs: ResizeAttrs, x: Array) -> Array:
    element_dtype = from_numpy(x.dtype)
    shape = tuple(arith.evaluate(dim, {}) for dim in attrs.shape)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    data = x if attrs.mode == "nearest" else x.astype(_interpolation_dtype(element_dtype).numpy)
    is_outside = np.zeros((1,) * x.ndim, bool)
    for axis in _axes(attrs, x.shape):
        extent, length = x.shape[axis.index], shape[axis.index]
        coordinates = np.asarray(_coordinate(attrs, axis, np.arange(length, dtype=np.float64)))
        data = _resize_axis(attrs, axis, data, coordinates)
        if attrs.coordinates == "tf_crop_and_resize":
            axis_is_outside = (coordinates < 0) | (coordinates > extent - 1)
            is_outside = is_outside | axis_is_outside.reshape([-1 if dim == axis.index else 1 for dim in range(x.ndim)])
    if element_dtype.is_int and attrs.mode != "nearest":
        data = np.clip(np.rint(data), *element_dtype.limits)
    result: Array = np.where(is_outside, np.asarray(attrs.outside).astype(x.dtype), as_array(data, element_dtype))
    return result


# --- compute ----------------------------------------------------------------------------------------------------------


def _interpolation_dtype(element_dtype: DType) -> DType:
    """Return the dtype of interpolation: for integers, a float dtype that represents them exactly."""
    if element_dtype.is_float:
        return working_dtype(element_dtype)
    return dtype("float32" if element_dtype.bits <= 16 else "float64")


def _kernel_value(attrs: ResizeAttrs, distance: ir.Expr) -> ir.Expr:
    d = te.unary("abs", distance)
    if attrs.mode == "linear":
        return te.maximum(1 - d, 0)
    a = attrs.cubic_a
    inner_piece = (d * (a + 2) - (a + 3)) * d * d + 1
    outer_piece = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return te.select(d <= 1, inner_piece, te.select(d < 2, outer_piece, 0))


def _round_value(rounding: str, x: ir.Expr) -> ir.Expr:
    low = te.unary("floor", x)
    match rounding:
        case "floor":
            return low
        case "ceil":
            return te.unary("ceil", x)
        case "round_prefer_floor":
            return te.select(x - low > 0.5, low + 1, low)
    return te.select(x - low >= 0.5, low + 1, low)


def _clamped(position: ir.Expr, extent: Dim) -> ir.Expr:
    """Convert a float position to an index, clamped to the axis."""
    last = ir.as_expr(arith.wrap(extent - 1), dtype("int64"))
    return te.minimum(te.maximum(te.cast(position, "int64"), 0), last)


def _replace(index: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    return (*index[:axis], value, *index[axis + 1 :])


def _resize_stage(attrs: ResizeAttrs, axis: _ResizedAxis, data: te.Tensor, x: te.Tensor, shape: tuple[Dim, ...]) -> te.Tensor:
    """Build the stages that interpolate the data along an axis at coordinates `x` of shape (output extent,)."""
    if attrs.mode == "nearest":
        times = _repeats(attrs, axis)
        if times:
            repeated: te.Tensor = te.compute(shape, lambda *i: data[_replace(i, axis.index, i[axis.index] // times)], "resize")
            return repeated
        index = te.compute((axis.after,), lambda o: _clamped(_round_value(attrs.rounding, x[o]), axis.before), "place")
        result: te.Tensor = te.compute(
            shape,
            lambda *i: data[_replace(i, axis.index, te.checked(index[i[axis.index]], 0, axis.before - 1))],
            "resize",
        )
        return result
    first, taps, shrink = _reach(attrs, axis)

    def tap_index(o: Dim, t: Dim) -> ir.Expr:
        return te.cast(te.unary("floor", x[o]), "int64") + ir.as_expr(arith.wrap(t + first), dtype("int64"))

    def weight(o: arith.Var, t: arith.Var) -> ir.Expr:
        distance = ir.as_expr(arith.wrap(t + first), dtype("float64")) - (x[o] - te.unary("floor", x[o]))
        value = _kernel_value(attrs, distance * shrink)
        if attrs.exclude_outside:
            index = tap_index(o, t)
            inside = (index >= 0) & (index < axis.before)
            value = te.select(inside, value, 0)
        return value

    weights = te.compute((axis.after, taps), weight, "weight")
    if attrs.exclude_outside or attrs.antialias:
        k = te.reduce_axis(taps, "k")
        raw = weights
        total = te.compute((axis.after,), lambda o: te.sum_(raw[o, k], k), "weight_sum")
        weights = te.compute(
            (axis.after, taps), lambda o, t: raw[o, t] / te.select(total[o].equal(0), te.const(1, "float64"), total[o]), "weight"
        )
    if taps <= MAX_UNROLLED_TAPS:
        return _sum_of_taps(axis, data, shape, tap_index, weights, taps)
    tap = te.reduce_axis(taps, "tap")

    indices = te.compute((axis.after, taps), lambda o, t: _clamped(tap_index(o, t), axis.before), "place")

    def element(*i: arith.Var) -> ir.Expr:
        o = i[axis.index]
        value = data[_replace(i, axis.index, te.checked(indices[o, tap], 0, axis.before - 1))]
        total: ir.Expr = te.sum_(value * te.cast(weights[o, tap], data.dtype), tap)
        return total

    summed: te.Tensor = te.compute(shape, element, "resize")
    return summed


def _sum_of_taps(
    axis: _ResizedAxis, data: te.Tensor, shape: tuple[Dim, ...], tap_index: Callable[..., ir.Expr], weights: te.Tensor, taps: int
) -> te.Tensor:
    """Build the interpolation as one expression, with an index table and a weight table per tap."""
    indices = [te.compute((axis.after,), lambda o, t=t: _clamped(tap_index(o, t), axis.before), "place") for t in range(taps)]
    factors = [te.compute((axis.after,), lambda o, t=t: te.cast(weights[o, t], data.dtype), "factor") for t in range(taps)]

    def element(*i: arith.Var) -> ir.Expr:
        o = i[axis.index]
        parts = [
            data[_replace(i, axis.index, te.checked(index[o], 0, axis.before - 1))] * factor[o]
            for index, factor in zip(indices, factors, strict=True)
        ]
        total: ir.Expr = sum(parts[1:], parts[0])
        return total

    result: te.Tensor = te.compute(shape, element, "resize")
    return result


def _compute(attrs: ResizeAttrs, x: te.Tensor) -> te.Tensor:
    data = x
    interpolation_dtype = _interpolation_dtype(x.dtype)
    if attrs.mode != "nearest" and interpolation_dtype is not x.dtype:
        data = te.compute(x.shape, lambda *i: te.cast(x[i], interpolation_dtype), "widen")
    crop_coordinates: list[tuple[_ResizedAxis, te.Tensor]] = []
    shape = x.shape
    for axis in _axes(attrs, x.shape):
        coordinates = te.compute(
            (axis.after,), lambda o, axis=axis: _coordinate(attrs, axis, ir.as_expr(o, dtype("float64"))), "coordinate"
        )
        shape = _replace(shape, axis.index, axis.after)
        data = _resize_stage(attrs, axis, data, coordinates, shape)
        if attrs.coordinates == "tf_crop_and_resize":
            crop_coordinates.append((axis, coordinates))

    def finish(*i: arith.Var) -> ir.Expr:
        value = data[i]
        if value.dtype is not x.dtype and x.dtype.is_int:
            low, high = x.dtype.limits
            value = te.minimum(te.maximum(te.unary("round", value), low), high)
        value = te.cast(value, x.dtype)
        for axis, coordinates in crop_coordinates:
            coordinate = coordinates[i[axis.index]]
            outside = (coordinate < 0) | (coordinate > ir.as_expr(arith.wrap(axis.before - 1), dtype("float64")))
            value = te.select(outside, te.const(attrs.outside, x.dtype), value)
        return value

    result: te.Tensor = te.compute(attrs.shape, finish, "resize")
    return result


resize = Operator(
    "resize",
    _infer,
    ResizeAttrs,
    reference=_reference,
    compute=_compute,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    inputs=("x",),
    doc="""Resize by nearest, linear or cubic interpolation, as ONNX Resize.
Operand: x, numeric (mode "nearest": or bool), any shape. Result: shape `shape`, dtype of x. Integers are interpolated as floats,
rounded half to even and saturated.""",
)

OPERATORS = make_family(resize)
