"""Pooling: maximum or mean over sliding windows."""

from __future__ import annotations

import numpy as np

from inlaid.graph.operator import Choice, ErrorPropagation, FusionKind, Moves, Operator, Traits
from inlaid.ops.define import FLOAT, NUMERIC, Array, as_array, make_family, quiet, tensor_type, widen_array, working_dtype
from inlaid.ops.window import (
    WindowAttrs,
    WindowAxis,
    inner_taps,
    pad_spatial,
    tap_axes,
    window_axes,
    window_index,
    window_shape,
    windows,
)
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, TupleType, Type, dtype, from_numpy


@dataclass(frozen=True)
class PoolAttrs(WindowAttrs):
    """`kernel`: the extent of the window per spatial axis. `strides`, `dilations`: one per spatial axis; empty: all ones. `pads`:
    the padding before each spatial axis, then after each; empty: no padding."""

    kernel: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class MaxPoolIndicesAttrs(PoolAttrs):
    """`column_major`: flatten indices with the first spatial dimension varying fastest. The other attributes are those of
    `max_pool`."""

    column_major: bool = False


@dataclass(frozen=True)
class AvgPoolAttrs(PoolAttrs):
    """`count_include_pad`: divide by the number of all taps of the window, not only of those that are not padding. The other
    attributes are those of `max_pool`."""

    count_include_pad: bool = False


def _pooled(attrs: PoolAttrs, x: Type, kinds: tuple[str, ...]) -> TensorType:
    data = tensor_type(x, kinds)
    if data.rank != len(attrs.kernel) + 2:
        raise ValueError(f"kernel must have {data.rank - 2} elements for x of rank {data.rank}, got {len(attrs.kernel)}")
    return TensorType(data.shape[:2] + window_shape(data.shape[2:], window_axes(attrs, attrs.kernel)), data.dtype)


def _infer_max_pool(attrs: PoolAttrs, x: Type) -> Type:
    return _pooled(attrs, x, NUMERIC)


def _infer_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: Type) -> Type:
    pooled = _pooled(attrs, x, NUMERIC)
    return TupleType((pooled, TensorType(pooled.shape, "int64")))


def _infer_avg_pool(attrs: AvgPoolAttrs, x: Type) -> Type:
    return _pooled(attrs, x, FLOAT)


def _least(element_dtype: DType) -> float:
    """Return the padding value of a maximum: the minimum of the dtype."""
    return -np.inf if element_dtype.is_float else element_dtype.limits[0]


@quiet
def _reference_max_pool(attrs: PoolAttrs, x: Array) -> Array:
    axes = window_axes(attrs, attrs.kernel)
    view = windows(widen_array(x), axes, _least(from_numpy(x.dtype)))
    return as_array(view.max(axis=tuple(range(-len(axes), 0))), from_numpy(x.dtype))


@quiet
def _reference_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: Array) -> tuple[Array, Array]:
    """Return the maxima and their indices. Of equal elements, the first is selected. NaN counts as the maximum."""
    axes = window_axes(attrs, attrs.kernel)
    element_dtype = from_numpy(x.dtype)
    positions = np.empty(x.shape, np.int64)
    order = (0, 1, *(range(x.ndim - 1, 1, -1) if attrs.column_major else range(2, x.ndim)))
    np.transpose(positions, order)[...] = np.arange(x.size).reshape([x.shape[axis] for axis in order])
    values, indices = windows(widen_array(x), axes, _least(element_dtype)), windows(positions, axes, np.iinfo(np.int64).max)
    flat = values.shape[: x.ndim] + (-1,)
    if not values.size:
        return np.zeros(values.shape[: x.ndim], x.dtype), np.zeros(values.shape[: x.ndim], np.int64)
    values, indices = values.reshape(flat), indices.reshape(flat)
    # Padding has the minimum value and the highest index, so the first tap that is not padding is selected instead.
    best = values.max(axis=-1, keepdims=True)
    is_maximum = (values == best) | (np.isnan(values) if element_dtype.is_float else False)
    is_data_maximum = is_maximum & (indices != np.iinfo(np.int64).max)
    first_tap = np.expand_dims(np.argmax(is_data_maximum, axis=-1), -1)
    return as_array(best[..., 0], element_dtype), np.take_along_axis(indices, first_tap, -1)[..., 0]


@quiet
def _reference_avg_pool(attrs: AvgPoolAttrs, x: Array) -> Array:
    axes = window_axes(attrs, attrs.kernel)
    total = windows(widen_array(x), axes, 0).sum(axis=tuple(range(-len(axes), 0)))
    count = (
        np.float32(np.prod(np.array(attrs.kernel, np.int64)))
        if attrs.count_include_pad
        else np.maximum(inner_taps(axes, x.shape[2:]), 1)
    )
    return as_array(total / count.astype(total.dtype), from_numpy(x.dtype))


def _greatest(attrs: PoolAttrs, x: te.Tensor, padded: te.Tensor) -> te.Tensor:
    """Compute the maximum of each window. Narrow floats are converted to float32, once and without loss, and compared in
    float32."""
    axes = window_axes(attrs, attrs.kernel)
    taps, acc = tap_axes(axes), _comparison_dtype(x.dtype)
    result: te.Tensor = te.compute(
        x.shape[:2] + window_shape(x.shape[2:], axes),
        lambda n, c, *position: te.max_(te.cast(padded[(n, c, *window_index(axes, position, taps))], acc), taps),
        "pool",
    )
    return result


def _comparison_dtype(element_dtype: DType) -> DType:
    return working_dtype(element_dtype) if element_dtype.is_float else element_dtype


def _stored(greatest: te.Tensor, element_dtype: DType) -> te.Tensor:
    """Convert the maxima to the dtype of the data."""
    if greatest.dtype is element_dtype:
        return greatest
    result: te.Tensor = te.compute(greatest.shape, lambda *position: te.cast(greatest[position], element_dtype), "max_pool")
    return result


def _compute_max_pool(attrs: PoolAttrs, x: te.Tensor) -> te.Tensor:
    padded = pad_spatial(x, window_axes(attrs, attrs.kernel), te.lowest(x.dtype))
    return _stored(_greatest(attrs, x, padded), x.dtype)


def _compute_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Compute the maxima, then the first tap of each window that equals its maximum, then the index of that tap.

    Each stage has one result and is vectorized. One reduction over (value, index) pairs is not, and took 8 times as long."""
    axes = window_axes(attrs, attrs.kernel)
    padded = pad_spatial(x, axes, te.lowest(x.dtype))
    greatest = _greatest(attrs, x, padded)
    taps = tap_axes(axes)
    number: Dim = 0
    for axis, tap in zip(axes, taps, strict=True):
        number = number * axis.kernel + tap

    def first_greatest_tap(n: arith.Var, c: arith.Var, *position: arith.Var) -> ir.Expr:
        value = te.cast(padded[(n, c, *window_index(axes, position, taps))], greatest.dtype)
        is_greatest = value.equal(greatest[(n, c, *position)])
        if value.dtype.is_float:
            is_greatest = is_greatest | te.unary("isnan", value)
        is_least: ir.Expr = te.min_(te.select(is_greatest, ir.as_expr(arith.wrap(number), _TAP), te.highest(_TAP)), taps)
        return is_least

    first = te.compute(greatest.shape, first_greatest_tap, "tap")

    def flat_index(n: arith.Var, c: arith.Var, *position: arith.Var) -> ir.Expr:
        rest = first[(n, c, *position)]
        start, inside = _first_flat_index(attrs, x.shape, (n, c, *position))
        origin = (output * axis.stride - axis.before for axis, output in zip(axes, position, strict=True))
        index = _index(_flat_index(attrs, x.shape, (n, c, *origin)))
        steps = _steps(attrs, x.shape)
        for dim in reversed(range(len(axes))):
            kernel = ir.as_expr(arith.wrap(axes[dim].kernel), _TAP)
            tap = rest % kernel if dim else rest
            rest = rest / kernel
            index = index + te.cast(tap, _INDEX) * _index(steps[dim] * axes[dim].dilation)
        # Padding equals the maximum only if all elements of the window are the minimum of the dtype.
        is_least = greatest[(n, c, *position)].equal(te.cast(te.lowest(x.dtype), greatest.dtype))
        return te.select(is_least, te.select(ir.as_expr(inside, dtype("bool")), _index(start), te.highest(_INDEX)), index)

    return _stored(greatest, x.dtype), te.compute(greatest.shape, flat_index, "place")


_TAP, _INDEX = dtype("int32"), dtype("int64")
"""Dtype of the index of a tap in its window, then dtype of indices into the data."""


def _index(value: Dim) -> ir.Expr:
    return ir.as_expr(arith.wrap(value), _INDEX)


def _steps(attrs: MaxPoolIndicesAttrs, shape: tuple[Dim, ...]) -> list[Dim]:
    """Return the stride of each spatial dimension in the flattened index."""
    count = len(shape) - 2
    order = range(count) if attrs.column_major else reversed(range(count))
    steps: list[Dim] = [1] * count
    step: Dim = 1
    for dim in order:
        steps[dim] = step
        step = step * shape[2 + dim]
    return steps


def _flat_index(attrs: MaxPoolIndicesAttrs, shape: tuple[Dim, ...], element_index: tuple[Dim, ...]) -> Dim:
    """Return the flattened index of an element."""
    n, c, *position = element_index
    flat_index: Dim = (n * shape[1] + c) * arith.product(shape[2:])
    for index, step in zip(position, _steps(attrs, shape), strict=True):
        flat_index = flat_index + index * step
    return flat_index


def _first_flat_index(attrs: MaxPoolIndicesAttrs, shape: tuple[Dim, ...], output_index: tuple[Dim, ...]) -> tuple[Dim, arith.Expr]:
    """Return the flattened index of the first tap of a window that is not padding, and whether the window has such a tap."""
    n, c, *position = output_index
    coordinates: list[Dim] = []
    inside: arith.Expr = arith.ONE
    for axis, extent, output in zip(window_axes(attrs, attrs.kernel), shape[2:], position, strict=True):
        start = output * axis.stride - axis.before
        tap = arith.maximum(0, arith.ceildiv(0 - start, axis.dilation)) if axis.before != 0 else arith.ZERO
        coordinates.append(start + tap * axis.dilation)
        inside = arith.logical_and(inside, arith.compare("<", tap, axis.kernel))
        inside = arith.logical_and(inside, arith.compare("<", coordinates[-1], extent))
    return _flat_index(attrs, shape, (n, c, *coordinates)), inside


def _compute_avg_pool(attrs: AvgPoolAttrs, x: te.Tensor) -> te.Tensor:
    axes = window_axes(attrs, attrs.kernel)
    acc = working_dtype(x.dtype)
    padded = pad_spatial(x, axes, te.const(0, x.dtype))
    taps = tap_axes(axes)
    shape = x.shape[:2] + window_shape(x.shape[2:], axes)
    total = te.compute(
        shape, lambda n, c, *position: te.sum_(te.cast(padded[(n, c, *window_index(axes, position, taps))], acc), taps), "pool"
    )

    def mean(n: arith.Var, c: arith.Var, *position: arith.Var) -> ir.Expr:
        if attrs.count_include_pad:
            count: Dim = arith.product(tuple(attrs.kernel))
        else:
            count = arith.maximum(1, arith.product(tuple(map(_taps_inside, axes, x.shape[2:], position))))
        return te.cast(total[(n, c, *position)] / ir.as_expr(arith.wrap(count), acc), x.dtype)

    result: te.Tensor = te.compute(shape, mean, "avg_pool")
    return result


def _taps_inside(axis: WindowAxis, extent: Dim, position: Dim) -> Dim:
    """Count the taps of the window at a position that are not padding."""
    if axis.before == 0 and axis.after == 0:
        return axis.kernel
    start = position * axis.stride - axis.before
    first = arith.maximum(0, arith.ceildiv(0 - start, axis.dilation))
    last = arith.minimum(axis.kernel, arith.ceildiv(extent - start, axis.dilation))
    return arith.maximum(0, last - first)


max_pool = Operator(
    "max_pool",
    _infer_max_pool,
    PoolAttrs,
    reference=_reference_max_pool,
    compute=_compute_max_pool,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    traits=Traits(moves=Moves(by=Choice.ORDER), errors=ErrorPropagation.PRESERVES),
    inputs=("x",),
    doc="""Maximum over sliding windows. Padding is ignored. NaN-propagating.
Operand: x (N, C, spatial...), numeric. Result: (N, C, output spatial...), dtype of x.""",
)

max_pool_indices = Operator(
    "max_pool_indices",
    _infer_max_pool_indices,
    MaxPoolIndicesAttrs,
    reference=_reference_max_pool_indices,
    compute=_compute_max_pool_indices,
    inputs=("x",),
    doc="""Maximum over sliding windows, with its index. Padding is ignored. NaN-propagating.
Operand: x (N, C, spatial...), numeric. Results: the maxima (N, C, output spatial...), dtype of x; their indices into the flattened
x, int64, same shape. Of equal elements the first is selected.""",
)

avg_pool = Operator(
    "avg_pool",
    _infer_avg_pool,
    AvgPoolAttrs,
    reference=_reference_avg_pool,
    compute=_compute_avg_pool,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    traits=Traits(errors=ErrorPropagation.PRESERVES),
    inputs=("x",),
    doc="""Mean over sliding windows.
Operand: x (N, C, spatial...), float. Result: (N, C, output spatial...), dtype of x.""",
)

OPERATORS = make_family(max_pool, max_pool_indices, avg_pool)
