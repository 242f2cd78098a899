"""What the elements of integer tensors can be, whatever a model is given: interval analysis, channel by channel.

A range has one interval for each index along one axis, which is that of channels nearly always, or one for all. What an operator
does that is not known here, and what may wrap around, is taken to give any value of its type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, post_order
from inlaid.graph.operator import Operator
from inlaid.types import TensorType

Array = np.ndarray[Any, Any]
Bounds = tuple[Array, Array]

_EXACT = 1 << 62
"""Bounds are worked out in int64; sums of products that may come to more are not."""


@dataclass(frozen=True, eq=False)
class Range:
    """The least and the greatest value of the elements of a tensor, inclusive: int64 arrays of the tensor's rank, which have the
    tensor's extent along at most one axis, and 1 along the others."""

    low: Array
    high: Array

    def along(self, axis: int) -> Bounds:
        """The bounds for each index along an axis, or one for all: 1-d."""
        others = tuple(other for other in range(self.low.ndim) if other != axis)
        return self.low.min(axis=others), self.high.max(axis=others)

    @property
    def axis(self) -> int | None:
        """The axis along which there are several intervals; None where one holds for all elements."""
        return next((axis for axis, extent in enumerate(self.low.shape) if extent > 1), None)


def integer_ranges(root: Expr) -> dict[int, Range]:
    """The ranges of all expressions under a root, by id, that are tensors of bool or of integers of at most 32 bits; constants are
    left out. Time is linear in the number of expressions and in the sizes of weights."""
    known: dict[int, Range] = {}
    for expr in post_order(root):
        if is_narrow(expr) and not isinstance(expr, Constant):
            known[id(expr)] = _range(expr, known)
    return known


def is_narrow(expr: Expr) -> bool:
    """Whether an expression is a tensor of bool or of integers of at most 32 bits."""
    of = expr.type.dtype if isinstance(expr.type, TensorType) else None
    return of is not None and (of.kind == "bool" or (of.is_int and of.bits <= 32))


def moved_axis(call: Call, axis: int) -> tuple[int, Array] | None:
    """Where an axis of the first operand of an operator that moves, copies or reduces elements lies in the result: the axis there,
    and which index of the operand each index along it shows. None where that is not so, or the operator another."""
    shape, result = (_shape(expr) for expr in (call.args[0], call))
    extent = shape[axis]
    if not isinstance(extent, int):
        return None
    same = np.arange(extent)
    attrs: Any = call.attrs
    match call.callee:
        case ops.transpose:
            return attrs.perm.index(axis), same
        case ops.pad:
            return None if attrs.pads[axis] != 0 or attrs.pads[axis + len(shape)] != 0 else (axis, same)
        case ops.max_pool:
            return (axis, same) if axis < 2 else None
        case ops.reduce_max | ops.reduce_min | ops.reduce_sum:
            if axis in attrs.axes:
                return None
            return (axis if attrs.keepdims else axis - sum(other < axis for other in attrs.axes)), same
        case ops.reshape:
            return _reshaped_axis(shape, axis, result)
    return None


def _reshaped_axis(shape: tuple[Any, ...], axis: int, result: tuple[Any, ...]) -> tuple[int, Array] | None:
    if not all(isinstance(dim, int) and dim > 0 for dim in (*shape, *result)):
        return None
    extent, inner = shape[axis], int(np.prod(shape[axis + 1 :], dtype=np.int64))
    for place, size in enumerate(result):
        below = int(np.prod(result[place + 1 :], dtype=np.int64))
        if inner % below == 0 and below * size % (inner * extent) == 0:
            return place, np.arange(size) // (inner // below) % extent
    return None


def _shape(expr: Expr) -> tuple[Any, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _dtype(expr: Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


# --- one expression ---------------------------------------------------------------------------------------------------


def _range(expr: Expr, known: Mapping[int, Range]) -> Range:
    """The range of a narrow expression, given those of its parts."""
    type_ = expr.type
    assert isinstance(type_, TensorType)
    found = None
    if isinstance(expr, Call) and isinstance(expr.callee, Operator) and all(_is_known(arg, known) for arg in expr.args):
        if expr.callee.name in _RULES and all(map(is_narrow, expr.args)):
            found = _elementwise(expr, known)
        elif expr.callee.name in _OTHERS:
            found = _OTHERS[expr.callee.name](expr, known)
    lowest, highest = type_.dtype.limits
    if found is None:
        found = np.full((1,) * type_.rank, lowest, np.int64), np.full((1,) * type_.rank, highest, np.int64)
    wraps = (found[0] < lowest) | (found[1] > highest)
    return Range(np.where(wraps, lowest, found[0]), np.where(wraps, highest, found[1]))


def _is_known(expr: Expr, known: Mapping[int, Range]) -> bool:
    return id(expr) in known or (isinstance(expr, Constant) and bool(expr.data.size))


def _bounds(expr: Expr, known: Mapping[int, Range]) -> Bounds:
    if isinstance(expr, Constant):
        value = expr.data.astype(np.int64)
        return value, value
    return known[id(expr)].low, known[id(expr)].high


def _elementwise(call: Call, known: Mapping[int, Range]) -> Bounds | None:
    """The bounds of what an operator makes of elements at the same place."""
    rank = len(_shape(call))
    given = [tuple(part.reshape((1,) * (rank - part.ndim) + part.shape) for part in _bounds(arg, known)) for arg in call.args]
    computed = [low.shape for (low, _), arg in zip(given, call.args, strict=True) if not isinstance(arg, Constant)]
    shapes = [*computed, *(low.shape for low, _ in given)]
    kept = next((axis for shape in shapes for axis, extent in enumerate(shape) if extent > 1), None)
    others = tuple(axis for axis in range(rank) if axis != kept)
    reduced = [(low.min(axis=others, keepdims=True), high.max(axis=others, keepdims=True)) for low, high in given]
    return _RULES[_name(call)](*reduced)


def _name(call: Call) -> str:
    assert isinstance(call.callee, Operator)
    return call.callee.name


def _corners(combine: Callable[[Array, Array], Array], a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a function that is monotonic in each operand while the other stays."""
    every = [combine(x, y) for x in a for y in b]
    return np.minimum.reduce(every), np.maximum.reduce(every)


def _divided(a: Bounds, b: Bounds) -> Bounds | None:
    if np.any(b[0] < 1):
        return None
    return _corners(lambda x, y: np.sign(x) * (np.abs(x) // y), a, b)


def _shifted(a: Bounds, b: Bounds) -> Bounds | None:
    if np.any(b[0] != b[1]) or np.any(b[0] < 0) or np.any(b[0] > 31):
        return None
    return a[0] << b[0], a[1] << b[1]


def _less(a: Bounds, b: Bounds) -> Bounds:
    return (a[1] < b[0]).astype(np.int64), (a[0] < b[1]).astype(np.int64)


def _chosen(condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    always, never = condition[0] == 1, condition[1] == 0
    low = np.where(always, a[0], np.where(never, b[0], np.minimum(a[0], b[0])))
    return low, np.where(always, a[1], np.where(never, b[1], np.maximum(a[1], b[1])))


_RULES: Mapping[str, Callable[..., Bounds | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _corners(np.multiply, a, b),
    "div": _divided,
    "minimum": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    "maximum": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    "shift_left": _shifted,
    "less": _less,
    "where": _chosen,
    "relu": lambda a: (np.maximum(a[0], 0), np.maximum(a[1], 0)),
    "cast": lambda a: a,
}


# --- operators with attributes ----------------------------------------------------------------------------------------


def _scaled(call: Call, known: Mapping[int, Range]) -> Bounds | None:
    """The bounds of a function that keeps order, by its reference: perhaps with parameters for each index along an axis."""
    attrs: Any = call.attrs
    x, *parameters = call.args
    data = known.get(id(x))
    if data is None or not all(isinstance(item, Constant) for item in parameters) or not _keeps_order(call, data):
        return None
    values = [item.data for item in parameters if isinstance(item, Constant)]
    axis = attrs.axis if any(value.ndim for value in values) else data.axis or 0
    extent = max([1, *(value.size for value in values)])
    assert isinstance(x.type, TensorType) and isinstance(call.callee, Operator) and call.callee.reference is not None
    ends = []
    for bound in data.along(axis) if data.low.ndim else (data.low, data.high):
        spread = np.broadcast_to(bound, (extent,)) if extent > 1 else bound
        own = dataclasses.replace(attrs, axis=0) if values else attrs
        ends.append(call.callee.reference(own, spread.astype(x.type.dtype.numpy), *values).astype(np.int64))
    return _spread(ends[0], axis, len(_shape(call))), _spread(ends[1], axis, len(_shape(call)))


def _keeps_order(call: Call, data: Range) -> bool:
    """Whether an operator gives more for more, as long as nothing wraps."""
    match call.callee:
        case ops.multiply_fixed:
            multiplier, shift = (arg.data for arg in call.args[1:] if isinstance(arg, Constant))
            most = 1 << max(int(shift.max(initial=0)), 0)
            whole = int(data.low.min()) * most >= -(1 << 31) and int(data.high.max()) * most < 1 << 31
            return whole and bool(np.all(multiplier >= 0))
        case ops.requantize:
            scale = next(arg.data for arg in call.args[1:] if isinstance(arg, Constant))
            return bool(np.all(np.isfinite(scale) & (scale > 0)))
    return True


def _spread(values: Array, axis: int, rank: int) -> Array:
    """Values along an axis, ready to broadcast."""
    return values.reshape(tuple(-1 if other == axis else 1 for other in range(rank)))


def _product(call: Call, known: Mapping[int, Range]) -> Bounds | None:
    """The bounds of sums of products with constant weights."""
    if not is_product(call):
        return None
    x, weights = call.args
    assert isinstance(weights, Constant)
    axis = 1 if call.callee is ops.conv else len(_shape(x)) - 1
    low, high = (np.broadcast_to(bound, (_shape(x)[axis],)) for bound in known[id(x)].along(axis))
    attrs: Any = call.attrs
    groups = attrs.groups if call.callee is ops.conv else 1
    if call.callee is ops.conv and any(amount != 0 for amount in attrs.pads):
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    # By output and input of a group; sums over the window bound what each input adds.
    array = weights.data.reshape(*weights.data.shape[:2], -1) if call.callee is ops.conv else weights.data.T[..., None]
    most = max(int(high.max(initial=0)), -int(low.min(initial=0)))
    if most * max(int(array.max()), -int(array.min())) * array[0].size >= _EXACT:
        return None
    up, down = (part.sum(axis=2, dtype=np.int64) for part in (np.maximum(array, 0), np.minimum(array, 0)))
    up, down = (part.reshape(groups, -1, array.shape[1]) for part in (up, down))
    low, high = low.reshape(groups, -1, 1), high.reshape(groups, -1, 1)
    rank = len(_shape(call))
    place = 1 if call.callee is ops.conv else rank - 1
    return _spread((up @ low + down @ high).reshape(-1), place, rank), _spread((up @ high + down @ low).reshape(-1), place, rank)


def is_product(expr: Expr) -> bool:
    """Whether an expression is a convolution or a matrix product of computed integers with constant ones, by rows, in int32."""
    if not isinstance(expr, Call) or expr.callee not in (ops.conv, ops.matmul):
        return False
    x, weights = expr.args
    if not isinstance(weights, Constant) or isinstance(x, Constant) or not all(map(is_narrow, (*expr.args, expr))):
        return False
    if expr.callee is ops.matmul and (weights.data.ndim != 2 or len(_shape(x)) < 2):
        return False
    depth = _shape(x)[1 if expr.callee is ops.conv else -1]
    return isinstance(depth, int) and weights.data.size > 0 and _dtype(expr) == "int32"


def _moved(call: Call, known: Mapping[int, Range]) -> Bounds | None:
    """The bounds of what moves, copies or reduces elements."""
    data = known.get(id(call.args[0]))
    if data is None:
        return None
    rank = len(_shape(call))
    found = None if data.axis is None else moved_axis(call, data.axis)
    if found is None:
        low, high = (np.full((1,) * rank, end, np.int64) for end in (data.low.min(), data.high.max()))
    else:
        place, index = found
        assert data.axis is not None
        low, high = (_spread(bound[index], place, rank) for bound in data.along(data.axis))
    return _filled(call, (low, high), known)


def _filled(call: Call, inside: Bounds, known: Mapping[int, Range]) -> Bounds | None:
    """Bounds of elements with those of padding, or with sums instead of elements."""
    low, high = inside
    attrs: Any = call.attrs
    match call.callee:
        case ops.pad if attrs.mode == "constant":
            least, greatest = _bounds(call.args[1], known) if len(call.args) > 1 else (np.int64(0), np.int64(0))
            return np.minimum(low, least), np.maximum(high, greatest)
        case ops.max_pool if any(amount != 0 for amount in attrs.pads):
            # Where a window may hold nothing but padding, the result is the least value of the type.
            each = zip(attrs.pads, attrs.kernel * 2, strict=True)
            whole = all(isinstance(amount, int) and isinstance(size, int) and amount < size for amount, size in each)
            return inside if whole and all(step == 1 for step in attrs.dilations) else None
        case ops.reduce_max | ops.reduce_min | ops.reduce_sum:
            counts = [_shape(call.args[0])[axis] for axis in attrs.axes]
            if not all(isinstance(count, int) and count > 0 for count in counts):
                return None
            count = int(np.prod(counts, dtype=np.int64)) if call.callee is ops.reduce_sum else 1
            return (low * count, high * count) if count < 1 << 30 else None
    return low, high


_OTHERS: Mapping[str, Callable[[Call, Mapping[int, Range]], Bounds | None]] = {
    **dict.fromkeys(("clip", "multiply_fixed", "requantize"), _scaled),
    **dict.fromkeys(("conv", "matmul"), _product),
    **dict.fromkeys(("transpose", "pad", "max_pool", "reduce_max", "reduce_min", "reduce_sum", "reshape"), _moved),
}
