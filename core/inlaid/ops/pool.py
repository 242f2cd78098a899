"""Pooling: windows reduced by maximum or mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import FLOAT, NUMERIC, Array, as_array, quiet, tensor_type, widen_array, working_dtype
from inlaid.ops.window import Axis, WindowAttrs, pad_spatial, tap_axes, window_axes, window_index, window_shape, windows
from inlaid.tensor import ir, te
from inlaid.types import DType, TensorType, TupleType, Type, dtype, from_numpy


@dataclass(frozen=True)
class PoolAttrs(WindowAttrs):
    """Steps and padding as of every window, where empty tuples stand for ones and zeros; `kernel` is the extent of the window along
    each spatial dimension."""

    kernel: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class MaxPoolIndicesAttrs(PoolAttrs):
    """`column_major` counts positions with the first spatial dimension fastest."""

    column_major: bool = False


@dataclass(frozen=True)
class AvgPoolAttrs(PoolAttrs):
    """`count_include_pad` divides by the extent of the window, else by the number of elements in it that are not padding."""

    count_include_pad: bool = False


def _pooled(attrs: PoolAttrs, x: Type, kinds: tuple[str, ...]) -> TensorType:
    data = tensor_type(x, kinds)
    if data.rank != len(attrs.kernel) + 2:
        raise ValueError(f"a window of {len(attrs.kernel)} dimensions does not fit data of rank {data.rank}")
    return TensorType(data.shape[:2] + window_shape(data.shape[2:], window_axes(attrs, attrs.kernel)), data.dtype)


def _infer_max_pool(attrs: PoolAttrs, x: Type) -> Type:
    return _pooled(attrs, x, NUMERIC)


def _infer_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: Type) -> Type:
    pooled = _pooled(attrs, x, NUMERIC)
    return TupleType((pooled, TensorType(pooled.shape, "int64")))


def _infer_avg_pool(attrs: AvgPoolAttrs, x: Type) -> Type:
    return _pooled(attrs, x, FLOAT)


def _least(of: DType) -> float:
    """What padding holds for a maximum: it never wins."""
    return -np.inf if of.is_float else of.limits[0]


@quiet
def _reference_max_pool(attrs: PoolAttrs, x: Array) -> Array:
    axes = window_axes(attrs, attrs.kernel)
    view = windows(widen_array(x), axes, _least(from_numpy(x.dtype)))
    return as_array(view.max(axis=tuple(range(-len(axes), 0))), from_numpy(x.dtype))


@quiet
def _reference_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: Array) -> tuple[Array, Array]:
    """The first of equal elements counts; a NaN is greater than all else."""
    axes = window_axes(attrs, attrs.kernel)
    of = from_numpy(x.dtype)
    positions = np.empty(x.shape, np.int64)
    order = (0, 1, *(range(x.ndim - 1, 1, -1) if attrs.column_major else range(2, x.ndim)))
    np.transpose(positions, order)[...] = np.arange(x.size).reshape([x.shape[axis] for axis in order])
    values, places = windows(widen_array(x), axes, _least(of)), windows(positions, axes, np.iinfo(np.int64).max)
    flat = values.shape[: x.ndim] + (-1,)
    if not values.size:
        return np.zeros(values.shape[: x.ndim], x.dtype), np.zeros(values.shape[: x.ndim], np.int64)
    values, places = values.reshape(flat), places.reshape(flat)
    # Padding has the lowest value and the highest place, so the first tap that is not padding wins over it.
    best = values.max(axis=-1, keepdims=True)
    wins = (values == best) | (np.isnan(values) if of.is_float else False)
    inside = wins & (places != np.iinfo(np.int64).max)
    chosen = np.expand_dims(np.argmax(inside, axis=-1), -1)
    return as_array(best[..., 0], of), np.take_along_axis(places, chosen, -1)[..., 0]


def _counts(axes: tuple[Axis, ...], spatial: tuple[int, ...]) -> Array:
    """How many taps of each window are not padding: shape (output positions...)."""
    ones = np.ones((1, 1, *spatial), np.float32)
    found: Array = windows(ones, axes, 0).sum(axis=tuple(range(-len(axes), 0)))[0, 0]
    return found


@quiet
def _reference_avg_pool(attrs: AvgPoolAttrs, x: Array) -> Array:
    axes = window_axes(attrs, attrs.kernel)
    total = windows(widen_array(x), axes, 0).sum(axis=tuple(range(-len(axes), 0)))
    count = (
        np.float32(np.prod(np.array(attrs.kernel, np.int64)))
        if attrs.count_include_pad
        else np.maximum(_counts(axes, x.shape[2:]), 1)
    )
    return as_array(total / count.astype(total.dtype), from_numpy(x.dtype))


def _compute_max_pool(attrs: PoolAttrs, x: te.Tensor) -> te.Tensor:
    axes = window_axes(attrs, attrs.kernel)
    padded = pad_spatial(x, axes, te.lowest(x.dtype))
    taps = tap_axes(axes)
    # Narrow floats are compared in float32: each is converted once, and the greatest once back, which changes nothing.
    acc = working_dtype(x.dtype) if x.dtype.is_float else x.dtype
    shape = x.shape[:2] + window_shape(x.shape[2:], axes)
    greatest: te.Tensor = te.compute(
        shape, lambda n, c, *position: te.max_(te.cast(padded[(n, c, *window_index(axes, position, taps))], acc), taps), "pool"
    )
    if acc is x.dtype:
        return greatest
    made: te.Tensor = te.compute(shape, lambda *position: te.cast(greatest[position], x.dtype), "max_pool")
    return made


def _compute_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    axes = window_axes(attrs, attrs.kernel)
    padded = pad_spatial(x, axes, te.lowest(x.dtype))
    taps = tap_axes(axes)
    outside = te.const(dtype("int64").limits[1], "int64")

    def combine(old: tuple[ir.Expr, ...], new: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        """The greater value; of equal ones the one that lies first."""
        greater = new[0] > old[0]
        same = new[0].equal(old[0])
        if x.dtype.is_float:
            old_nan, new_nan = te.unary("isnan", old[0]), te.unary("isnan", new[0])
            greater = greater | (new_nan & ~old_nan)
            same = same | (new_nan & old_nan)
        take = greater | (same & (new[1] < old[1]))
        return te.select(take, new[0], old[0]), te.select(take, new[1], old[1])

    reducer = te.comm_reducer(combine, lambda types: (te.lowest(types[0]), outside), "max_pool")

    def element(n: arith.Var, c: arith.Var, *position: arith.Var) -> tuple[ir.Expr, ...]:
        at = window_index(axes, position, taps)
        place: Dim = n * x.shape[1] + c
        inside: arith.Expr = arith.ONE
        own = [index - axis.before for index, axis in zip(at, axes, strict=True)]
        for dim in range(len(axes)):
            extent = x.shape[2 + dim]
            place = place * extent + own[dim]
            inside = arith.logical_and(inside, arith.compare(">=", own[dim], 0))
            inside = arith.logical_and(inside, arith.compare("<", own[dim], extent))
        found: tuple[ir.Expr, ...] = reducer((padded[(n, c, *at)], te.select(inside, ir.as_expr(arith.wrap(place)), outside)), taps)
        return found

    values, places = te.compute(x.shape[:2] + window_shape(x.shape[2:], axes), element, "pool")
    if not attrs.column_major:
        return values, places

    def by_columns(*position: arith.Var) -> ir.Expr:
        """The place that was found, counted by columns. It is not found so: of equal elements the first one by rows counts."""
        found = places[position]
        extents = [ir.as_expr(arith.wrap(extent), found.dtype) for extent in x.shape[2:]]
        rest, coordinates = found, []
        for extent in reversed(extents):
            coordinates.append(rest % extent)
            rest = rest / extent
        for extent, coordinate in zip(reversed(extents), coordinates, strict=True):
            rest = rest * extent + coordinate
        return te.select(found.equal(outside), outside, rest)

    return values, te.compute(places.shape, by_columns, "places")


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

    made: te.Tensor = te.compute(shape, mean, "avg_pool")
    return made


def _taps_inside(axis: Axis, extent: Dim, position: Dim) -> Dim:
    """How many taps of the window at a position are not padding."""
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
    inputs=("x",),
)
"""The maximum of each window of x (N, C, spatial...); padding never wins; a NaN does."""

max_pool_indices = Operator(
    "max_pool_indices",
    _infer_max_pool_indices,
    MaxPoolIndicesAttrs,
    reference=_reference_max_pool_indices,
    compute=_compute_max_pool_indices,
    inputs=("x",),
)
"""(max_pool, the places of the maxima in x seen as a vector, int64)."""

avg_pool = Operator(
    "avg_pool",
    _infer_avg_pool,
    AvgPoolAttrs,
    reference=_reference_avg_pool,
    compute=_compute_avg_pool,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    inputs=("x",),
)
"""The mean of each window of x (N, C, spatial...)."""

OPERATORS: tuple[Operator, ...] = (max_pool, max_pool_indices, avg_pool)
