"""Conversion of shapes and slices from the conventions of frontends to the conventions of canonical operators."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from inlaid.graph.conditions import require, require_equal
from inlaid.graph.ir import Expr
from inlaid.ops.compose import expr_type
from inlaid.ops.shape import bounded_stride, simple, strided_slice
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim

_OPEN_END = 2**31 - 1
"""Ends from this value on mean "to the end of the axis": exporters write the maximum of some integer width."""
MAX_RANGE_END = 2**61
"""Greatest magnitude of an end of a range from or to a symbolic size: the distance, plus a stride, does not overflow."""


def quotient(shape: Sequence[Dim], divisor: Sequence[Dim]) -> Dim:
    """Return the extent that the shape `divisor` lacks to have as many elements as `shape`. Common dimensions cancel, even if they
    may be 0: (n, 4, 5) reshaped to (n, -1) is (n, 20)."""
    numerator = list(shape)
    denominator: list[Dim] = []
    for dim in divisor:
        if dim in numerator:
            numerator.remove(dim)
        else:
            denominator.append(dim)
    size, divisor_size = arith.product(tuple(numerator)), arith.product(tuple(denominator))
    return 0 if divisor_size == 0 else simple(arith.floordiv(size, divisor_size))


def show_shape(shape: Sequence[Dim]) -> str:
    """Format a shape for messages."""
    return f"({', '.join(map(str, shape))})"


def require_squeezed(shape: Sequence[Dim], axes: Collection[int] | None, source: str) -> tuple[int, ...]:
    """Require the axes that are squeezed to have extent 1, and return them. If `axes` is None, all axes of extent 1 are squeezed,
    and a symbolic dimension is required not to be 1, as the rank of the result would depend on it. `source` is the operator that
    may have axes, in the remedy. Raises ValueError."""
    if axes is None:
        axes = [axis for axis, dim in enumerate(shape) if dim == 1]
        expected = f"other than 1 (give the model's {source} its axes, or compile the model with this dimension fixed to 1)"
        for dim in (dim for axis, dim in enumerate(shape) if axis not in axes):
            what = f"dimension {dim} of {show_shape(shape)}, which is squeezed if it is 1,"
            require(Constraint(arith.unwrap(arith.compare("!=", dim, 1)), what, expected, dim))
    for axis in axes:
        require_equal(shape[axis], 1, f"dimension {axis}, which is squeezed,")
    return tuple(axes)


def require_parts(parts: Sequence[Dim], extent: Dim, axis: int) -> list[tuple[Dim, Dim]]:
    """Require the sizes of parts to add up to the extent of an axis. Returns the begin and end of each part. Raises ValueError."""
    ends = [0, *(simple(total) for total in itertools.accumulate(parts, arith.add))]
    require_equal(ends[-1], extent, f"the sum of the parts {show_shape(parts)} of dimension {axis}")
    return list(itertools.pairwise(ends))


def cut(x: Expr, ranges: Mapping[int, tuple[Dim, Dim, int]]) -> Expr:
    """Slice along some axes. `ranges` maps an axis to (begin, end, stride) for `strided_slice`."""
    axis_ranges = [ranges.get(axis, (0, dim, 1)) for axis, dim in enumerate(expr_type(x).shape)]
    begin, end, strides = (tuple(item) for item in zip(*axis_ranges, strict=True)) if axis_ranges else ((), (), ())
    return strided_slice(x, begin=begin, end=end, strides=strides)


def normal_range(extent: Dim, start: Dim, end: Dim, step: int, least: int = 0) -> tuple[Dim, Dim, int]:
    """Convert a slice of an axis to (begin, end, stride) for `strided_slice`. A start before the axis becomes `least`, which
    is 0 in ONNX. In Python and TensorFlow, it is -1 if the step is negative, so that the slice is empty."""
    high = arith.wrap(extent) if step > 0 else arith.wrap(arith.add(extent, -1))

    def clamped(position: Dim, least: int) -> arith.Expr:
        low = arith.minimum(least, high)  # less than `least` on an empty axis
        if isinstance(position, int) and abs(position) >= _OPEN_END:
            return high if position > 0 else low
        positive = arith.select(arith.compare("<", position, 0), arith.add(position, extent), position)
        return arith.minimum(arith.maximum(positive, low), high)

    begin, stop = clamped(start, least), clamped(end, 0 if step > 0 else -1)
    stop = arith.maximum(stop, begin) if step > 0 else arith.minimum(stop, begin)
    return simple(begin), simple(stop), step


def range_size(begin: Dim, end: Dim, step: int) -> Dim | None:
    """Return the number of integers from `begin` to the exclusive `end`, `step` apart, which is not 0. None if one end is symbolic
    and the other one is further from 0 than `MAX_RANGE_END`: their distance could overflow at run time."""
    first, last = (begin, end) if step > 0 else (end, begin)
    if isinstance(first, int) and isinstance(last, int):
        return max(0, -((first - last) // abs(step)))
    if any(isinstance(limit, int) and abs(limit) > MAX_RANGE_END for limit in (first, last)):
        return None
    # `bounded_stride` exceeds the distance, too, so that a longer stride has the same number of integers.
    distance = arith.add(last, arith.mul(first, -1))
    return simple(arith.maximum(0, arith.ceildiv(distance, abs(bounded_stride(step)))))
