"""Python subscripts of expressions, and numpy-style functions that combine operators: sum, mean, split."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from inlaid.graph.ir import Expr, tuple_item
from inlaid.ops import compose
from inlaid.ops.index import take
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import reshape, strided_slice
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import TensorType, TupleType

Key = int | slice | EllipsisType | None


def subscript(x: Expr, key: Any) -> Expr:
    """Build `x[key]`: see `Expr.__getitem__`. Raises `TypeInferenceError`."""
    if isinstance(x.type, TupleType):
        if not isinstance(key, int):
            raise TypeInferenceError(f"expected an integer as the index of a tuple, got {key!r}")
        return tuple_item(x, key + len(x.type.fields) if key < 0 else key)
    if not isinstance(x.type, TensorType):
        raise TypeInferenceError(f"expected a tensor or a tuple before [ ], got a value of type {x.type!r}")
    if isinstance(key, Expr):
        return take(x, key, axis=0)
    return _cut(x, x.type.shape, _complete(key if isinstance(key, tuple) else (key,), x.type))


def _complete(keys: tuple[Any, ...], type_: TensorType) -> list[int | slice | None]:
    """Expand `...` and missing keys: return a key for each axis, and `None` for each new axis."""
    for item in keys:
        if isinstance(item, bool) or not (item is None or item is ... or isinstance(item, slice) or hasattr(item, "__index__")):
            raise TypeInferenceError(
                f"expected integers, slices, None or ... as an index, got {item!r}",
                remedy="gather by tensors with inlaid.ops.take, take_along_axis or gather_nd",
            )
    key_count = len([item for item in keys if item is not None and item is not ...])
    if key_count > type_.rank or len([item for item in keys if item is ...]) > 1:
        raise TypeInferenceError(f"expected at most {type_.rank} indices and one ... for {type_!r}, got {keys!r}")
    full_slices = [slice(None)] * (type_.rank - key_count)
    ellipsis_position = next((position for position, item in enumerate(keys) if item is ...), len(keys))
    return [*keys[:ellipsis_position], *full_slices, *keys[ellipsis_position + 1 :]]


def _cut(x: Expr, shape: tuple[Dim, ...], keys: list[int | slice | None]) -> Expr:
    limits: list[tuple[Dim, Dim, int]] = []
    source_axes: list[int | None] = []  # source axis of each axis of the result; None for a new axis
    for key in keys:
        if key is None:
            source_axes.append(None)
            continue
        axis, extent = len(limits), shape[len(limits)]
        if isinstance(key, slice):
            limits.append(_range(key, extent, axis))
            source_axes.append(axis)
        else:
            limits.append(_element(int(key), extent, axis))
    is_full = all(limit == (0, extent, 1) for limit, extent in zip(limits, shape, strict=True))
    begin, end, strides = zip(*limits, strict=True) if limits else ((), (), ())
    result = x if is_full else strided_slice(x, begin=begin, end=end, strides=strides)
    if source_axes == list(range(len(shape))):
        return result
    assert isinstance(result.type, TensorType)
    return reshape(result, shape=tuple(1 if axis is None else result.type.shape[axis] for axis in source_axes))


def _element(index: int, extent: Dim, axis: int) -> tuple[Dim, Dim, int]:
    if isinstance(extent, int) and not -extent <= index < extent:
        raise TypeInferenceError(f"index must be >= {-extent} and < {extent} for axis {axis}, got {index}")
    begin = index if index >= 0 else arith.unwrap(arith.add(extent, index))
    return begin, arith.unwrap(arith.add(begin, 1)), 1


def _range(key: slice, extent: Dim, axis: int) -> tuple[Dim, Dim, int]:
    step = 1 if key.step is None else int(key.step)
    if step == 0:
        raise TypeInferenceError(f"the step of a slice must not be 0, got {key!r} (axis {axis})")
    if isinstance(extent, int):
        begin, end, step = key.indices(extent)
        return begin, (max(begin, end) if step > 0 else min(begin, end)), step
    if step < 0 and (key.start, key.stop) != (None, None):
        raise TypeInferenceError(f"expected a step > 0 or [::{step}] for the symbolic axis {axis}, got {key!r}")
    if step < 0:
        return arith.unwrap(arith.add(extent, -1)), -1, step

    def limit(value: int | None, default: Dim) -> Dim:
        if value is None:
            return default
        bound = value if value >= 0 else arith.add(extent, value)
        return arith.unwrap(arith.simplify(arith.maximum(0, arith.minimum(bound, extent))))

    begin_, end_ = limit(key.start, 0), limit(key.stop, extent)
    return begin_, arith.unwrap(arith.simplify(arith.maximum(begin_, end_))), step


def _axes(x: Expr, axes: int | Sequence[int] | None) -> tuple[int, ...]:
    rank = compose.expr_type(x).rank
    if axes is None:
        return tuple(range(rank))
    axis_numbers = (axes,) if isinstance(axes, int) else tuple(axes)
    invalid_axes = [axis for axis in axis_numbers if not -rank <= axis < rank]
    if invalid_axes:
        raise TypeInferenceError(f"axes must be >= -{rank} and < {rank} for an operand of rank {rank}, got {invalid_axes[0]}")
    return tuple(sorted({axis % rank for axis in axis_numbers}))


def sum(x: Expr, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Expr:
    """Sum over `axes` (None: all axes). `keepdims` keeps the reduced axes with extent 1. x is numeric; see `reduce_sum`."""
    return reduce_sum(x, axes=_axes(x, axes), keepdims=keepdims)


def mean(x: Expr, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Expr:
    """Average over `axes` (None: all axes), in float32 or wider, rounded once to the dtype of x. `keepdims` as in `sum`."""
    return compose.mean(x, _axes(x, axes), keepdims)


def split(x: Expr, parts: int | Sequence[int], axis: int = 0) -> tuple[Expr, ...]:
    """Split a tensor along an axis into `parts` equal pieces, or into pieces with the extents in `parts`.

    Raises `TypeInferenceError` if the extents do not add up to the axis, or if `parts` is a number and the extent is symbolic. The
    run checks that they add up to a symbolic extent.
    """
    type_ = compose.expr_type(x)
    if not -type_.rank <= axis < type_.rank:
        raise TypeInferenceError(f"axis must be >= -{type_.rank} and < {type_.rank}, got {axis} (split of {type_!r})")
    axis %= type_.rank
    extent = type_.shape[axis]
    if isinstance(parts, int):
        if not isinstance(extent, int) or parts < 1 or extent % parts:
            raise TypeInferenceError(f"expected a number of equal parts of axis {axis}, of extent {extent!r}, got {parts}")
        sizes = [extent // parts] * parts
    else:
        sizes = list(parts)
        total = 0
        for size in sizes:
            total += size
        if min(sizes, default=0) < 0 or (isinstance(extent, int) and total != extent):
            raise TypeInferenceError(f"expected parts >= 0 that add up to {extent!r} (axis {axis} of {type_!r}), got {sizes}")
        if not isinstance(extent, int):
            x = reshape(x, shape=(*type_.shape[:axis], total, *type_.shape[axis + 1 :]))  # states that they add up
    pieces, begin = [], 0
    for size in sizes:
        key = [slice(None)] * type_.rank
        key[axis] = slice(begin, begin + size)
        pieces.append(subscript(x, tuple(key)))
        begin += size
    return tuple(pieces)
