"""Sorting by loop programs: top-k, and a stable bottom-up merge sort of indices by any order.

The order is numpy's: NaN is greater than every number and equal to itself, and -0.0 equals 0.0. Of equal elements the one of lower
index comes first, both in ascending and in descending order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inlaid.graph.conditions import require_within
from inlaid.graph.operator import Attrs, FusionKind, Operator, Threaded
from inlaid.ops.define import ANY, Array, check_axis, loop_nest, make_family, tensor_type, widen_array
from inlaid.ops.ordering import by_share, heap_select, key_dtype, radix_sort, sort_key
from inlaid.ops.threads import merge
from inlaid.ops.threads.grid import Grid, parallel_rows, unflatten
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, Type

COLUMNS = 16
"""Maximum number of columns that are searched together: the maximum number of keys in a vector."""
MAX_HEAP_K = 128
"""Maximum number of selected elements per column for which `COLUMNS` heaps fit the first-level cache."""

Precedes = Callable[[Builder, arith.Var, arith.Var, ir.Buffer], None]
"""Comparison `precedes(b, i, j, result)`: emits statements that store in the 0-d bool buffer `result` whether element i must
precede element j. The order is strict: of equal elements, neither precedes the other."""


def before(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """Test whether a is strictly before b. Both are in their working dtype."""
    if a.dtype.kind == "bool":
        a, b = te.cast(a, "uint8"), te.cast(b, "uint8")
    if not a.dtype.is_float:
        return a < b
    return (a < b) | (te.unary("isnan", b) & ~te.unary("isnan", a))


def merge_sort(b: Builder, count: Dim, precedes: Precedes, order: ir.Buffer, spare: ir.Buffer) -> None:
    """Emit an argsort: store the indices 0 ... count - 1 in `order`, sorted. `order` and `spare` are int64, size >= `count`.

    Runs of `width` elements are merged pairwise from `order` into `spare` and copied back, for widths 1, 2, 4, ...
    """
    width, left, right = (b.alloc((), "int64", name) for name in ("width", "left", "right"))
    take_right = b.alloc((), "bool", "take_right")
    with b.loop(count) as i:
        b.store(order, i, i)
    b.store(width, (), 1)
    with b.while_(width[()] < count):
        run = b.let(width[()], "run")
        with b.loop(arith.ceildiv(count, run * 2), "pair") as pair:
            start = pair * run * 2
            middle = arith.minimum(start + run, count)
            end = arith.minimum(start + run * 2, count)
            b.store(left, (), start)
            b.store(right, (), middle)
            with b.loop(end - start) as i:
                _choose(b, left, right, (middle, end), precedes, order, take_right)
                with b.if_(take_right[()]):
                    b.store(spare, start + i, order[b.let(right[()], "at", (0, count - 1))])
                    b.store(right, (), right[()] + 1)
                with b.else_():
                    b.store(spare, start + i, order[b.let(left[()], "at", (0, count - 1))])
                    b.store(left, (), left[()] + 1)
        with b.loop(count) as i:
            b.store(order, i, spare[i])
        b.store(width, (), width[()] * 2)


def _choose(
    b: Builder,
    left: ir.Buffer,
    right: ir.Buffer,
    ends: tuple[arith.Expr, arith.Expr],
    precedes: Precedes,
    order: ir.Buffer,
    take_right: ir.Buffer,
) -> None:
    """Store whether the right run has the next element: the left run is exhausted, or the right run's head precedes the left's."""
    middle, end = ends
    last = order.shape[0] - 1
    b.store(take_right, (), left[()] >= middle)
    with b.if_((left[()] < middle) & (right[()] < end)):
        left_head = b.let(order[b.let(left[()], "at", (0, last))], "ours", (0, last))
        right_head = b.let(order[b.let(right[()], "at", (0, last))], "theirs", (0, last))
        precedes(b, right_head, left_head, take_right)


def stable_argsort(x: Array, axis: int, *, descending: bool = False) -> Array:
    """Argsort along an axis with numpy, stable, int64."""
    keys = widen_array(x)
    if not descending:
        return np.asarray(np.argsort(keys, axis, kind="stable"))
    # Sorting the reversed input and reversing the result keeps equal elements in order.
    return np.asarray(x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis))


# --- topk -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopkAttrs(Attrs):
    """`k`: the number of elements. `axis`: the axis to select along. `largest`: whether to select the largest elements instead of
    the smallest."""

    k: Dim
    axis: int
    largest: bool = True


def _infer_topk(attrs: TopkAttrs, x: Type) -> Type:
    x = tensor_type(x, ANY)
    axis = check_axis(attrs.axis, x.rank)
    require_within(attrs.k, 0, x.shape[axis], "k")
    shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
    return TupleType((TensorType(shape, x.dtype), TensorType(shape, "int64")))


def _topk(attrs: TopkAttrs, x: Array) -> tuple[Array, Array]:
    assert isinstance(attrs.k, int)
    order = stable_argsort(x, attrs.axis, descending=attrs.largest)
    indices = order[(slice(None),) * attrs.axis + (slice(attrs.k),)]
    return np.take_along_axis(x, indices, attrs.axis), np.ascontiguousarray(indices)


def _compute_topk(attrs: TopkAttrs, x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis, count = attrs.axis, x.shape[attrs.axis]
    shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (source,) = inputs
        values, indices = outputs
        k = attrs.k
        if not (isinstance(k, int) and isinstance(count, int)):
            k = b.let(arith.wrap(k), "k", (0, count))
        # Adjacent columns are searched together if their heaps fit the first-level cache.
        adjacent_columns = x.shape[-1] if axis + 1 < len(x.shape) else 1
        max_columns = COLUMNS if isinstance(k, int) and k <= MAX_HEAP_K else 1
        max_columns = min(max_columns, adjacent_columns) if isinstance(adjacent_columns, int) else max_columns
        outer_dims = (*x.shape[:axis], *x.shape[axis + 1 : -1])
        with loop_nest(b, (*outer_dims, arith.ceildiv(adjacent_columns, max_columns)), ir.ForKind.PARALLEL) as outer_index:
            columns = (
                arith.minimum(max_columns, adjacent_columns - outer_index[-1] * max_columns) if max_columns != 1 else arith.ONE
            )

            def index(position: Dim, column: Dim) -> tuple[Dim, ...]:
                last = (outer_index[-1] * max_columns + column,) if axis + 1 < len(x.shape) else ()
                return (*outer_index[:axis], position, *outer_index[axis:-1], *last)

            def key(position: Dim, column: Dim) -> ir.Expr:
                return sort_key(source[index(position, column)], attrs.largest)

            def store_result(column: Dim, rank: Dim, number: ir.Expr) -> None:
                source_index = b.let(number, "found", (0, count - 1))
                b.store(values, index(rank, column), source[index(source_index, column)])
                b.store(indices, index(rank, column), source_index)

            def emit_heap() -> None:
                part_size = k if isinstance(k, int) else count
                order = b.alloc((max_columns * part_size,), "int64", "order")
                heap_select(b, count, k, key, order, (columns, max_columns))
                with b.loop(columns, "column") as column, b.loop(k) as rank:
                    store_result(column, rank, order[column * part_size + rank])

            def emit_sort() -> None:
                keys = b.alloc((count,), key_dtype(x.dtype), "keys")
                order, spare = (b.alloc((count,), "int64", name) for name in ("order", "spare"))
                with b.loop(columns, "column") as column:
                    with b.loop(count) as i:
                        b.store(keys, i, key(i, column))
                    radix_sort(b, count, keys, order, spare)
                    with b.loop(k) as rank:
                        store_result(column, rank, order[rank])

            by_share(b, count, k, emit_heap, emit_sort)

    return te.extern([(shape, x.dtype), (shape, "int64")], (x,), body, "topk")


def _threaded_topk(grid: Grid, attrs: TopkAttrs, x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis, count, k = attrs.axis, x.shape[attrs.axis], attrs.k
    outer_dims = (*x.shape[:axis], *x.shape[axis + 1 :])
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def index(row: Dim, position: Dim) -> tuple[Dim, ...]:
        outer_index = unflatten(row, outer_dims)
        return (*outer_index[:axis], position, *outer_index[axis:])

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (source,) = inputs
        values, indices = outputs
        rows = arith.product(outer_dims)

        def key(row: Dim, position: Dim) -> ir.Expr:
            return sort_key(source[index(row, position)], attrs.largest)

        order = merge.sort(b, grid, merge.SortSpec(rows, count, k, key_dtype(x.dtype), key))
        with parallel_rows(b, grid, rows, k) as (row, rank):
            source_index = b.let(order.numbers[row, rank], "found", (0, count - 1))
            b.store(values, index(row, rank), source[index(row, source_index)])
            b.store(indices, index(row, rank), source_index)

    return te.extern([(shape, x.dtype), (shape, "int64")], (x,), body, "topk")


topk = Operator(
    "topk",
    _infer_topk,
    TopkAttrs,
    reference=_topk,
    compute=_compute_topk,
    threaded=Threaded(_threaded_topk),
    fusion=FusionKind.OPAQUE,
    inputs=("x",),
    doc="""Largest or smallest k elements along an axis, sorted. NaN counts as the largest.
Operand: x, numeric or bool. Results: values, dtype of x; their indices along the axis, int64; both of extent `k` along the axis. Of
equal elements the one of lower index comes first.""",
)


OPERATORS = make_family(topk)
