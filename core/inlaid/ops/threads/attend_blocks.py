"""Tiled attention: a block computes a tile of queries of one head over shared tiles of keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inlaid.ops.define import widen, working_dtype
from inlaid.ops.threads.grid import BLOCKS, BLOCKS_Y, THREADS, THREADS_Y, Grid, truth
from inlaid.ops.threads.scores import Attention, finite
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType

EACH = 8
"""Number of output elements per thread."""
LANES = 32
"""Maximum number of threads per query."""
KEYS = 32
"""Maximum number of keys per tile."""


@dataclass(frozen=True)
class AttentionTiles:
    """Tile sizes of a block: the number of queries, the number of threads per query (`lanes`), and the number of keys per step."""

    queries: int
    lanes: int
    keys: int


def choose_tiles(grid: Grid, size: Dim, width: Dim, dtype: DType) -> AttentionTiles | None:
    """Return the largest tiles that fit shared memory, for keys of `size` elements and values of `width` elements. Returns None if
    none fit or a size is symbolic."""
    if not isinstance(size, int) or not isinstance(width, int):
        return None
    max_lanes = 4
    while max_lanes < min(LANES, grid.block) and max_lanes * EACH < width:
        max_lanes *= 2
    for lanes in _halves(max_lanes, 4):
        for queries in _halves(max(grid.block // lanes, 1), max(grid.block // lanes // 4, 1)):
            for keys in _halves(max(KEYS, lanes), lanes):
                padded = -(-width // lanes) * lanes
                elements = queries * (size + keys) + keys * (size + padded)
                if elements * working_dtype(dtype).bytes + queries * lanes <= grid.capacity:
                    return AttentionTiles(queries, lanes, keys)
    return None


def _halves(start: int, least: int) -> Iterator[int]:
    """Yield `start`, halved while it is at least `least`."""
    while start >= least:
        yield start
        start //= 2


class TiledKernel:
    """Emits the tiled kernel. Shared tiles are laid out so that adjacent threads read adjacent elements, without bank conflicts."""

    def __init__(self, b: Builder, grid: Grid, attention: Attention, tiles: AttentionTiles, out: ir.Buffer) -> None:
        self._b = b
        self._scope = grid.scope
        self._attention = attention
        self._tiles = tiles
        self._out = out
        size, width = attention.q.shape[3], attention.v.shape[3]
        assert isinstance(size, int) and isinstance(width, int), "tiles have constant sizes"
        self._size, self._width = size, width
        self._lane_width = -(-width // tiles.lanes)

    def emit(self) -> None:
        """Emit the kernel."""
        b, attention, tiles = self._b, self._attention, self._tiles
        batches, heads, length, _ = attention.q.shape
        with (
            b.loop(arith.product((batches, heads)), "row", thread=BLOCKS) as row,
            b.loop(arith.ceildiv(length, tiles.queries), "tile", thread=BLOCKS_Y) as tile,
        ):
            self._batch, self._head = arith.simplify(row // heads), arith.simplify(row % heads)
            self._group = attention.kv_head(self._head)
            self._first = tile * tiles.queries
            team = (tiles.queries, tiles.lanes)
            self._queries = b.alloc((self._size, tiles.queries), attention.working, "queries", self._scope)
            self._scores = b.alloc((tiles.keys, tiles.queries), attention.working, "scores", self._scope)
            self._row_max, self._total = (b.alloc(team, attention.working, name, "register") for name in ("most", "total"))
            self._sums = b.alloc((*team, self._lane_width), attention.working, "sums", "register")
            self._any_visible = b.alloc(team, "bool", "seen", "register")
            self._initialize()
            begin, end = attention.visible_keys(self._first, tiles.queries)
            with b.loop(arith.ceildiv(arith.maximum(end - begin, 0), tiles.keys), "step") as step:
                start = begin + step * tiles.keys
                keys = b.alloc((self._size, tiles.keys), attention.working, "keys", self._scope)
                with self._threads() as thread:
                    self._fetch(
                        thread, attention.k.buffer, start, (self._size, self._size), lambda key, element: (keys, (element, key))
                    )
                self._score(keys, start)
                self._rescale()
                values = b.alloc((tiles.keys, self._lane_width * tiles.lanes), attention.working, "values", self._scope)
                with self._threads() as thread:
                    self._exponentiate(thread)
                    padded_width = self._lane_width * tiles.lanes
                    self._fetch(
                        thread,
                        attention.v.buffer,
                        start,
                        (padded_width, self._width),
                        lambda key, element: (values, (key, element)),
                    )
                self._accumulate(values)
            self._finalize()

    @contextmanager
    def _threads(self) -> Iterator[tuple[arith.Var, arith.Var]]:
        """Open a phase, a loop over the threads of a block; yields the query and the lane of each thread."""
        b = self._b
        with (
            b.loop(self._tiles.queries, "query", thread=THREADS_Y) as query,
            b.loop(self._tiles.lanes, "lane", thread=THREADS) as lane,
        ):
            yield query, lane

    def _initialize(self) -> None:
        b, attention, lanes = self._b, self._attention, self._tiles.lanes
        with self._threads() as (query, lane):
            inside = arith.compare("<", self._first + query, attention.q.shape[2])
            with b.loop(-(-self._size // lanes), "n") as n, b.if_(truth(arith.compare("<", n * lanes + lane, self._size))):
                value = widen(attention.q.buffer[self._batch, self._head, self._first + query, n * lanes + lane])
                b.store(self._queries, (n * lanes + lane, query), te.select(inside, value, te.const(0.0, attention.working)))
            b.store(self._row_max, (query, lane), -math.inf)
            b.store(self._total, (query, lane), 0.0)
            b.store(
                self._any_visible, (query, lane), False if attention.masked else truth(arith.compare("<", 0, attention.k.shape[2]))
            )
            with b.loop(self._lane_width, "w", ir.ForKind.UNROLLED) as w:
                b.store(self._sums, (query, lane, w), 0.0)

    def _fetch(
        self,
        thread: tuple[Dim, Dim],
        source: ir.Buffer,
        start: arith.Expr,
        widths: tuple[int, int],
        destination: Callable[[Dim, Dim], tuple[ir.Buffer, tuple[Dim, ...]]],
    ) -> None:
        """Fetch a tile of keys or values cooperatively, zero-padded out of bounds.

        `widths` are the widths of the tile and of the tensor; `destination(key, element)` is the buffer and index to store to."""
        b, dtype = self._b, self._attention.working
        team, (tile_width, tensor_width) = self._tiles.queries * self._tiles.lanes, widths
        elements = self._tiles.keys * tile_width
        with b.loop(-(-elements // team), "n") as n:
            number = n * team + thread[0] * self._tiles.lanes + thread[1]
            with b.if_(truth(arith.compare("<", number, elements))):
                key, element = number // tile_width, number % tile_width
                inside = arith.compare("<", start + key, self._attention.k.shape[2])
                if tensor_width < tile_width:
                    inside = arith.logical_and(inside, arith.compare("<", element, tensor_width))
                value = widen(source[self._batch, self._group, start + key, element])
                b.store(*destination(key, element), te.select(inside, value, te.const(0.0, dtype)))

    def _score(self, keys: ir.Buffer, start: arith.Expr) -> None:
        b, attention, lanes = self._b, self._attention, self._tiles.lanes
        keys_per_lane = self._tiles.keys // lanes
        with self._threads() as (query, lane):
            dots = b.alloc((keys_per_lane,), attention.working, "dots", "register")
            with b.loop(keys_per_lane, "n", ir.ForKind.UNROLLED) as n:
                b.store(dots, n, 0.0)
            with b.loop(self._size, "e") as e, b.loop(keys_per_lane, "n", ir.ForKind.UNROLLED) as n:
                b.store(dots, n, dots[n] + self._queries[e, query] * keys[e, n * lanes + lane])
            with b.loop(keys_per_lane, "n", ir.ForKind.UNROLLED) as n:
                b.store(self._scores, (n * lanes + lane, query), dots[n])
            bias = b.alloc((), attention.working, "bias")
            with b.loop(keys_per_lane, "n") as n:
                score_index, key = (n * lanes + lane, query), start + (n * lanes + lane)
                inside = arith.compare("<", key, attention.k.shape[2])
                if attention.masked:
                    inside = arith.logical_and(inside, arith.compare("<", self._first + query, attention.q.shape[2]))
                with b.if_(truth(inside)):
                    score = attention.capped(self._scores[score_index])
                    if attention.masked:
                        b.store(bias, (), attention.bias((self._batch, self._head, self._first + query, key)))
                        b.store(self._any_visible, (query, lane), self._any_visible[query, lane] | bias[()].not_equal(-math.inf))
                        score = score + bias[()]
                    b.store(self._scores, score_index, score)
                with b.else_():
                    b.store(self._scores, score_index, -math.inf)

    def _rescale(self) -> None:
        """Update the running maximum and rescale the accumulators (online softmax)."""
        b, attention = self._b, self._attention
        with self._threads() as (query, lane):
            new_max, factor = (b.alloc((), attention.working, name) for name in ("grown", "factor"))
            b.store(new_max, (), self._row_max[query, lane])
            with b.loop(self._tiles.keys, "j") as j:
                b.store(new_max, (), te.maximum(new_max[()], self._scores[j, query]))
            b.store(factor, (), te.math("exp", self._row_max[query, lane] - finite(new_max[()])))
            b.store(self._row_max, (query, lane), new_max[()])
            b.store(self._total, (query, lane), self._total[query, lane] * factor[()])
            with b.loop(self._lane_width, "w", ir.ForKind.UNROLLED) as w:
                b.store(self._sums, (query, lane, w), self._sums[query, lane, w] * factor[()])

    def _exponentiate(self, thread: tuple[Dim, Dim]) -> None:
        """Exponentiate the thread's scores, relative to the running maximum."""
        b, lanes, (query, lane) = self._b, self._tiles.lanes, thread
        with b.loop(self._tiles.keys // lanes, "n") as n:
            power = te.math("exp", self._scores[n * lanes + lane, query] - finite(self._row_max[query, lane]))
            b.store(self._scores, (n * lanes + lane, query), power)

    def _accumulate(self, values: ir.Buffer) -> None:
        b, lanes = self._b, self._tiles.lanes
        with self._threads() as (query, lane):
            power = b.alloc((), self._attention.working, "power")
            with b.loop(self._tiles.keys, "j") as j:
                b.store(power, (), self._scores[j, query])
                b.store(self._total, (query, lane), self._total[query, lane] + power[()])
                with b.loop(self._lane_width, "w", ir.ForKind.UNROLLED) as w:
                    term = power[()] * values[j, w * lanes + lane]
                    b.store(self._sums, (query, lane, w), self._sums[query, lane, w] + term)

    def _finalize(self) -> None:
        b, attention, lanes = self._b, self._attention, self._tiles.lanes
        if attention.masked:
            flags = b.alloc((self._tiles.queries, lanes), "bool", "flags", self._scope)
            with self._threads() as (query, lane):
                b.store(flags, (query, lane), self._any_visible[query, lane])
        with self._threads() as (query, lane), b.if_(truth(arith.compare("<", self._first + query, attention.q.shape[2]))):
            any_visible = b.alloc((), "bool", "seen")
            b.store(any_visible, (), self._any_visible[query, lane])
            if attention.masked:
                with b.loop(lanes, "n") as n:
                    b.store(any_visible, (), any_visible[()] | flags[query, n])
            with (
                b.loop(self._lane_width, "w", ir.ForKind.UNROLLED) as w,
                b.if_(truth(arith.compare("<", w * lanes + lane, self._width))),
            ):
                value = te.select(
                    any_visible[()], self._sums[query, lane, w] / self._total[query, lane], te.const(0.0, attention.working)
                )
                index = (self._batch, self._head, self._first + query, w * lanes + lane)
                b.store(self._out, index, te.cast(value, self._out.dtype))
