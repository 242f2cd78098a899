"""Interval analysis of integer tensors, per channel, over all inputs of a model.

A range has one interval for each index of one axis, usually the channel axis, or one interval for all elements. Unknown operators,
and operators that may wrap, have the full range of their dtype.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, post_order
from inlaid.graph.operator import Interval, Moves, Operator
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]

_EXACT = 1 << 60
"""Bounds are computed in int64; sums of products that may exceed this value have the full range."""
_FLOAT_EXACT = 1 << 51
"""Bounds up to this value are computed in float64, which is exact up to four times the value."""
_PART = 1 << 15  # weights that are converted at a time, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class Range:
    """Inclusive bounds of the elements of a tensor: int64 arrays of the tensor's rank, with the tensor's extent along at most one
    axis and extent 1 along the others."""

    low: Array
    high: Array

    def along(self, axis: int) -> Interval:
        """Return the bounds per index of an axis as 1-d arrays, of one element if the bounds are equal for all indices."""
        other_axes = tuple(other for other in range(self.low.ndim) if other != axis)
        return self.low.min(axis=other_axes), self.high.max(axis=other_axes)

    @property
    def axis(self) -> int | None:
        """The axis along which intervals differ; None if one interval holds for all elements."""
        return next((axis for axis, extent in enumerate(self.low.shape) if extent > 1), None)


def integer_ranges(root: Expr) -> dict[int, Range]:
    """Compute the ranges of the bool and integer tensors of at most 32 bits under a root, except constants, by expression id. Time
    is linear in the number of expressions and the sizes of weights."""
    ranges: dict[int, Range] = {}
    for expr in post_order(root):
        if is_narrow(expr) and not isinstance(expr, Constant):
            ranges[id(expr)] = _range(expr, ranges)
    return ranges


def is_narrow(expr: Expr) -> bool:
    """Test whether an expression is a tensor of bool or of integers of at most 32 bits."""
    dtype = expr.type.dtype if isinstance(expr.type, TensorType) else None
    return dtype is not None and (dtype.kind == "bool" or (dtype.is_int and dtype.bits <= 32))


def moved_axis(call: Call, axis: int) -> tuple[int, Array] | None:
    """Follow an axis of the first operand through an operator that moves, copies or reduces elements.

    Returns the axis of the result and, for each index along it, the index of the operand's axis. None for any other operator, or if
    the result has no such axis."""
    shape = _shape(call.args[0])
    extent = shape[axis]
    if not isinstance(extent, int):
        return None
    identity = np.arange(extent)
    attrs: Any = call.attrs
    match call.callee:
        case ops.transpose:
            return attrs.perm.index(axis), identity
        case ops.pad:
            return None if attrs.pads[axis] != 0 or attrs.pads[axis + len(shape)] != 0 else (axis, identity)
        case ops.max_pool:
            return (axis, identity) if axis < 2 else None
        case ops.reduce_max | ops.reduce_min | ops.reduce_sum:
            if axis in attrs.axes:
                return None
            return (axis if attrs.keepdims else axis - sum(other < axis for other in attrs.axes)), identity
        case ops.reshape:
            return _reshaped_axis(shape, axis, _shape(call))
    return None


def _reshaped_axis(shape: tuple[Any, ...], axis: int, result: tuple[Any, ...]) -> tuple[int, Array] | None:
    if not all(isinstance(dim, int) and dim > 0 for dim in (*shape, *result)):
        return None
    extent, inner = shape[axis], int(np.prod(shape[axis + 1 :], dtype=np.int64))
    for result_axis, size in enumerate(result):
        below = int(np.prod(result[result_axis + 1 :], dtype=np.int64))
        if inner % below == 0 and below * size % (inner * extent) == 0:
            return result_axis, np.arange(size) // (inner // below) % extent
    return None


def _shape(expr: Expr) -> tuple[Any, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _dtype(expr: Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


# --- one expression ---------------------------------------------------------------------------------------------------


def _range(expr: Expr, ranges: Mapping[int, Range]) -> Range:
    """Compute the range of a narrow expression from the ranges of its operands."""
    type_ = expr.type
    assert isinstance(type_, TensorType)
    interval = None
    if isinstance(expr, Call) and isinstance(expr.callee, Operator) and all(_has_range(arg, ranges) for arg in expr.args):
        traits = expr.callee.traits
        if traits.interval is not None and all(map(is_narrow, expr.args)):
            interval = _elementwise(expr, traits.interval, ranges)
        elif traits.monotone and expr.callee.elementwise:
            interval = _scaled(expr, ranges)
        elif is_product(expr):
            interval = _product(expr, ranges)
        elif traits.moves is not None or expr.callee is ops.reduce_sum:
            interval = _moved(expr, traits.moves or Moves(), ranges)
    lowest, highest = type_.dtype.limits
    if interval is None:
        interval = np.full((1,) * type_.rank, lowest, np.int64), np.full((1,) * type_.rank, highest, np.int64)
    wraps = (interval[0] < lowest) | (interval[1] > highest)
    return Range(np.where(wraps, lowest, interval[0]), np.where(wraps, highest, interval[1]))


def _has_range(expr: Expr, ranges: Mapping[int, Range]) -> bool:
    return id(expr) in ranges or (isinstance(expr, Constant) and bool(expr.data.size))


def _bounds(expr: Expr, ranges: Mapping[int, Range]) -> Interval:
    if isinstance(expr, Constant):
        value = expr.data.astype(np.int64)
        return value, value
    return ranges[id(expr)].low, ranges[id(expr)].high


def _elementwise(call: Call, interval: Callable[..., Interval | None], ranges: Mapping[int, Range]) -> Interval | None:
    """Compute the bounds of an element-wise operator's result."""
    rank = len(_shape(call))
    operand_bounds = [
        tuple(part.reshape((1,) * (rank - part.ndim) + part.shape) for part in _bounds(arg, ranges)) for arg in call.args
    ]
    computed_shapes = [low.shape for (low, _), arg in zip(operand_bounds, call.args, strict=True) if not isinstance(arg, Constant)]
    shapes = [*computed_shapes, *(low.shape for low, _ in operand_bounds)]
    varying_axis = next((axis for shape in shapes for axis, extent in enumerate(shape) if extent > 1), None)
    other_axes = tuple(axis for axis in range(rank) if axis != varying_axis)
    reduced_bounds = [
        (low.min(axis=other_axes, keepdims=True), high.max(axis=other_axes, keepdims=True)) for low, high in operand_bounds
    ]
    return interval(*reduced_bounds)


# --- operators with attributes ----------------------------------------------------------------------------------------


def _scaled(call: Call, ranges: Mapping[int, Range]) -> Interval | None:
    """Compute the bounds of a monotone function by its numpy reference. Parameters may differ per index of an axis."""
    attrs: Any = call.attrs
    x, *parameters = call.args
    assert isinstance(x.type, TensorType) and isinstance(call.callee, Operator)
    data, reference = ranges.get(id(x)), call.callee.reference
    values = [item.data for item in parameters if isinstance(item, Constant)]
    if data is None or reference is None or len(values) < len(parameters) or not _keeps_order(call, data):
        return None
    varies = any(value.ndim for value in values)
    if varies and not hasattr(attrs, "axis"):
        return None
    axis = attrs.axis if varies else data.axis or 0
    extent = max([1, *(value.size for value in values)])
    ends = []
    for bound in data.along(axis) if data.low.ndim else (data.low, data.high):
        values_by_index = np.broadcast_to(bound, (extent,)) if extent > 1 else bound
        vector_attrs = dataclasses.replace(attrs, axis=0) if hasattr(attrs, "axis") else attrs
        ends.append(reference(vector_attrs, values_by_index.astype(x.type.dtype.numpy), *values).astype(np.int64))
    return _spread(ends[0], axis, len(_shape(call))), _spread(ends[1], axis, len(_shape(call)))


def _keeps_order(call: Call, data: Range) -> bool:
    """Test whether an operator is monotone with the parameters of a call: no parameter is negative, and no result wraps."""
    match call.callee:
        case ops.multiply_fixed:
            multiplier, shift = (arg.data for arg in call.args[1:] if isinstance(arg, Constant))
            max_factor = 1 << max(int(shift.max(initial=0)), 0)
            fits_int32 = int(data.low.min()) * max_factor >= -(1 << 31) and int(data.high.max()) * max_factor < 1 << 31
            return fits_int32 and bool(np.all(multiplier >= 0))
        case ops.requantize:
            scale = next(arg.data for arg in call.args[1:] if isinstance(arg, Constant))
            return bool(np.all(np.isfinite(scale) & (scale > 0)))
    return True


def _spread(values: Array, axis: int, rank: int) -> Array:
    """Reshape 1-d values to broadcast along an axis."""
    return values.reshape(tuple(-1 if other == axis else 1 for other in range(rank)))


def _product(call: Call, ranges: Mapping[int, Range]) -> Interval | None:
    """Compute the bounds of sums of products with constant weights."""
    x, weights = call.args
    assert isinstance(weights, Constant)
    axis = 1 if call.callee is ops.conv else len(_shape(x)) - 1
    low, high = (np.broadcast_to(bound, (_shape(x)[axis],)) for bound in ranges[id(x)].along(axis))
    attrs: Any = call.attrs
    groups = attrs.groups if call.callee is ops.conv else 1
    if call.callee is ops.conv and any(amount != 0 for amount in attrs.pads):
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    # Per output and input channel of a group; sums over the window bound the contribution of an input channel.
    array = weights.data.reshape(*weights.data.shape[:2], -1) if call.callee is ops.conv else weights.data.T[..., None]
    max_magnitude = max(int(high.max(initial=0)), -int(low.min(initial=0)))
    bound = max_magnitude * max(int(array.max()), -int(array.min())) * array[0].size
    if bound >= _EXACT:
        return None
    # A weight times [low, high] has the middle w (low + high) / 2 and the radius |w| (high - low) / 2. Float products are faster.
    dtype = np.float64 if bound < _FLOAT_EXACT else np.int64
    low, high = (end.astype(dtype).reshape(groups, -1, 1) for end in (low, high))
    parts = np.array_split(array, min(array.size // _PART + 1, len(array)) if groups == 1 else 1)
    sums = [(_products(part, low + high), _products(np.abs(part), high - low)) for part in (part.astype(dtype) for part in parts)]
    middle, radius = (np.concatenate(ends).astype(np.int64) for ends in zip(*sums, strict=True))
    rank = len(_shape(call))
    result_axis = 1 if call.callee is ops.conv else rank - 1
    return _spread((middle - radius) // 2, result_axis, rank), _spread((middle + radius) // 2, result_axis, rank)


def _products(weights: Array, vectors: Array) -> Array:
    """Multiply weights (outputs, inputs of a group, window), summed over the window, by vectors (groups, inputs of a group, 1)."""
    sums = weights.sum(axis=2) if weights.shape[2] > 1 else weights[..., 0]
    return (sums.reshape(len(vectors), -1, sums.shape[1]) @ vectors).reshape(-1)


def is_product(expr: Expr) -> bool:
    """Test whether an expression is a convolution or matrix product of integer data with constant integer weights, in int32."""
    if not isinstance(expr, Call) or expr.callee not in (ops.conv, ops.matmul):
        return False
    x, weights = expr.args
    if not isinstance(weights, Constant) or isinstance(x, Constant) or not all(map(is_narrow, (*expr.args, expr))):
        return False
    if expr.callee is ops.matmul and (weights.data.ndim != 2 or len(_shape(x)) < 2):
        return False
    depth = _shape(x)[1 if expr.callee is ops.conv else -1]
    return isinstance(depth, int) and weights.data.size > 0 and _dtype(expr) == "int32"


def _moved(call: Call, moves: Moves, ranges: Mapping[int, Range]) -> Interval | None:
    """Compute the bounds of an operator that moves, copies or reduces elements."""
    rank, data = len(_shape(call)), ranges.get(id(call.args[0]))
    axis_mapping = None if data is None or data.axis is None else moved_axis(call, data.axis)
    if axis_mapping is None or data is None or data.axis is None:
        ends = [_bounds(call.args[position], ranges) for position in moves.places(len(call.args))]
        low = np.full((1,) * rank, min(low.min() for low, _ in ends), np.int64)
        high = np.full((1,) * rank, max(high.max() for _, high in ends), np.int64)
    else:
        result_axis, index = axis_mapping
        low, high = (_spread(bound[index], result_axis, rank) for bound in data.along(data.axis))
    fill = moves.filling(len(call.args))
    if fill is not None:
        least, greatest = _bounds(call.args[fill], ranges)
        low, high = np.minimum(low, least.min()), np.maximum(high, greatest.max())
    return _reduced(call, (low, high))


def _reduced(call: Call, bounds: Interval) -> Interval | None:
    """Compute the bounds after a reduction of elements in the interval `bounds`; None if a window may be empty."""
    low, high = bounds
    attrs: Any = call.attrs
    match call.callee:
        case ops.max_pool if any(amount != 0 for amount in attrs.pads):
            # If a window may consist of padding only, the result is the dtype's minimum.
            pad_pairs = zip(attrs.pads, attrs.kernel * 2, strict=True)
            windows_have_data = all(
                isinstance(amount, int) and isinstance(size, int) and amount < size for amount, size in pad_pairs
            )
            return bounds if windows_have_data and all(step == 1 for step in attrs.dilations) else None
        case ops.reduce_max | ops.reduce_min | ops.reduce_sum:
            counts = [_shape(call.args[0])[axis] for axis in attrs.axes]
            if not all(isinstance(count, int) and count > 0 for count in counts):
                return None
            count = int(np.prod(counts, dtype=np.int64)) if call.callee is ops.reduce_sum else 1
            return (low * count, high * count) if count < 1 << 30 else None
    return low, high
