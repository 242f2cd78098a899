"""Stable merge sort of rows by integer keys, and top-k, with one thread per output position.

Sorted runs of 1, 2, 4, ... elements are merged pairwise. Each thread finds by bisection how many of the elements before its
position come from the left run (merge path: S. Odeh, O. Green, Z. Mwassi, O. Shmueli and Y. Birk, 2012), so stores are contiguous
and only loads depend on data. Tiles are sorted in shared memory; further rounds are kernels over main memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlaid.ops.threads.grid import BLOCKS, BLOCKS_Y, LONG, ONE, THREADS, Grid, parallel_rows, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, dtype

EACH = 4
"""Number of elements of a shared tile per thread."""
LEVELS = 40
"""Number of merge rounds for rows of unbounded length."""


@dataclass(frozen=True)
class SortSpec:
    """A stable ascending sort of `rows` rows of `count` elements by the keys `read(row, position)`, of dtype `keys_dtype`. Only the
    first `k` elements of the result are needed."""

    rows: Dim
    count: Dim
    k: Dim
    keys_dtype: DType
    read: Callable[[Dim, Dim], ir.Expr]


@dataclass(frozen=True)
class Ordered:
    """Sorted rows: keys, and int64 source positions (argsort). The first `k` elements of each (rows, count) row are valid."""

    keys: ir.Buffer
    numbers: ir.Buffer


def sort(b: Builder, grid: Grid, spec: SortSpec) -> Ordered:
    """Emit the sort that `spec` describes."""
    tile = _tile(grid, spec)
    one, other = (
        Ordered(b.alloc((spec.rows, spec.count), spec.keys_dtype, "keys"), b.alloc((spec.rows, spec.count), LONG, "numbers"))
        for _ in "ab"
    )
    if tile > 1:
        _sort_tiles(b, grid, spec, tile, one)
    else:
        _copy(b, grid, spec, one)
    begin = tile.bit_length() - 1
    rounds = arith.simplify((_levels(spec.count, begin) + 1) // 2)
    if rounds != arith.ZERO:
        with b.loop(rounds, "pair") as pair:
            for half, (source, target) in enumerate(((one, other), (other, one))):
                _round(b, grid, spec, source, target, pair * 2 + (begin + half))
    return one


def _tile(grid: Grid, spec: SortSpec) -> int:
    """Return the number of elements of a shared tile, a power of four; 1 without shared memory."""
    max_elements = min(EACH * grid.block, grid.capacity // (2 * (spec.keys_dtype.bytes + 4)))
    tile = 1
    while tile * 4 <= max_elements and not (isinstance(spec.count, int) and spec.count <= tile):
        tile *= 4
    return tile


def _levels(count: Dim, begin: int) -> arith.Expr:
    """Return the number of merge rounds from runs of 2 ** begin elements to one run."""
    upper_bound = arith.bounds(count)[1]
    last = LEVELS if upper_bound is None else max(upper_bound - 1, 0).bit_length()
    total: arith.Expr = arith.ZERO
    for level in range(begin, last):
        total = total + arith.compare("<", 1 << level, count)
    return total


def _copy(b: Builder, grid: Grid, spec: SortSpec, to: Ordered) -> None:
    """Emit a copy of the keys and positions, which are runs of one element."""
    with parallel_rows(b, grid, spec.rows, spec.count) as (row, position):
        b.store(to.keys, (row, position), spec.read(row, position))
        b.store(to.numbers, (row, position), position)


def _sort_tiles(b: Builder, grid: Grid, spec: SortSpec, tile: int, to: Ordered) -> None:
    """Sort each tile in shared memory."""
    index_dtype = dtype("int32")
    threads = min(grid.block, tile)
    with (
        b.loop(spec.rows, "row", thread=BLOCKS) as row,
        b.loop(arith.ceildiv(spec.count, tile), "tile", thread=BLOCKS_Y) as number,
    ):
        base = number * tile
        count = arith.minimum(tile, spec.count - base)
        keys = [b.alloc((tile,), spec.keys_dtype, "keys", grid.scope) for _ in "ab"]
        numbers = [b.alloc((tile,), index_dtype, "numbers", grid.scope) for _ in "ab"]

        def each_position(body: Callable[[arith.Expr], None]) -> None:
            with b.loop(threads, "t", thread=THREADS) as t, b.loop(-(-tile // threads), "e") as e:
                position = e * threads + t
                with b.if_(truth(arith.compare("<", position, count))):
                    body(position)

        def begin(position: arith.Expr) -> None:
            b.store(keys[0], position, spec.read(row, base + position))
            b.store(numbers[0], position, ir.Index(index_dtype, position))

        def merge(position: arith.Expr, level: arith.Expr, source_half: int) -> None:
            target_half = 1 - source_half

            def put(source: Dim) -> None:
                b.store(keys[target_half], position, keys[source_half][source])
                b.store(numbers[target_half], position, numbers[source_half][source])

            _merge(b, position, level, (count, spec.k, tile), lambda index: keys[source_half][index], put)

        def end(position: arith.Expr) -> None:
            b.store(to.keys, (row, base + position), keys[0][position])
            b.store(to.numbers, (row, base + position), te.cast(numbers[0][position], LONG) + base)

        each_position(begin)
        with b.loop((tile.bit_length() - 1) // 2, "pair") as pair:
            for half in (0, 1):
                each_position(partial(merge, level=pair * 2 + half, source_half=half))
        each_position(end)


def _round(b: Builder, grid: Grid, spec: SortSpec, source: Ordered, target: Ordered, level: arith.Expr) -> None:
    """Merge pairs of runs of 2 ** level elements in main memory."""
    with parallel_rows(b, grid, spec.rows, spec.count) as (row, position):

        def put(source_position: Dim) -> None:
            b.store(target.keys, (row, position), source.keys[row, source_position])
            b.store(target.numbers, (row, position), source.numbers[row, source_position])

        _merge(b, position, level, (spec.count, spec.k, spec.count), lambda source_position: source.keys[row, source_position], put)


def _merge(
    b: Builder,
    position: arith.Expr,
    level: arith.Expr,
    limits: tuple[Dim, Dim, Dim],
    key: Callable[[Dim], ir.Expr],
    put: Callable[[Dim], None],
) -> None:
    """Emit one position of the merge of two runs of 2 ** level elements: call `put` with the index of its source element. Positions
    from `k` on are skipped. `limits` are (number of elements, `k`, extent of the buffer)."""
    count, k, buffer_extent = limits
    width = b.let(ONE << ir.as_expr(level, LONG), "width")
    position_expr = ir.as_expr(position, LONG)
    start = b.let(position_expr - (position_expr & (ir.as_expr(width * 2 - 1, LONG))), "start")
    rank = position - start
    run_limit = arith.minimum(width, k)
    left = b.let(ir.as_expr(arith.minimum(run_limit, count - start), LONG), "left")
    right = b.let(ir.as_expr(arith.maximum(arith.minimum(run_limit, count - start - width), 0), LONG), "right")
    with b.if_(truth(arith.compare("<", rank, k))):
        low, high = b.alloc((), LONG, "low"), b.alloc((), LONG, "high")
        b.store(low, (), arith.maximum(rank - right, 0))
        b.store(high, (), arith.minimum(rank, left))

        def buffer_index(index: arith.Expr) -> arith.Var:
            return b.let(ir.as_expr(index, LONG), "at", (0, arith.wrap(buffer_extent) - 1))

        with b.while_(low[()] < high[()]):
            middle = b.let((low[()] + high[()]) >> ONE, "middle")
            left_index, right_index = buffer_index(start + middle), buffer_index(start + width + rank - 1 - middle)
            with b.if_(key(left_index) <= key(right_index)):
                b.store(low, (), middle + 1)
            with b.else_():
                b.store(high, (), middle)
        first = b.let(low[()], "first")
        second = rank - first
        from_left = b.alloc((), "bool", "from_left")
        b.store(from_left, (), truth(arith.compare("<", first, left)))
        with b.if_(truth(arith.logical_and(arith.compare("<", first, left), arith.compare("<", second, right)))):
            b.store(from_left, (), key(buffer_index(start + first)) <= key(buffer_index(start + width + second)))
        put(b.let(te.select(from_left[()], start + first, start + width + second), "source", (0, arith.wrap(buffer_extent) - 1)))
