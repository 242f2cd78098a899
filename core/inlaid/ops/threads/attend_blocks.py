"""Attention by blocks: some queries of a head, several threads for each, and tiles of keys and values that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.define import widen, working_dtype
from inlaid.ops.threads.grid import BLOCKS, MORE_BLOCKS, MORE_THREADS, THREADS, Grid, truth
from inlaid.ops.threads.scores import Attention, finite
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.types import DType

EACH = 8
"""Elements of a result for each thread."""
LANES = 32
"""Threads of a query at most."""
KEYS = 32
"""Keys of a tile at most."""


@dataclass(frozen=True)
class Tiles:
    """Of a block: its `queries`, the threads (`lanes`) of each, and the `keys` of a tile."""

    queries: int
    lanes: int
    keys: int


def tiles_of(grid: Grid, size: Dim, width: Dim, of: DType) -> Tiles | None:
    """Tiles for keys of a size and values of a width that fit the memory of a block; None where there are none."""
    if not isinstance(size, int) or not isinstance(width, int):
        return None
    wanted = 4
    while wanted < min(LANES, grid.block) and wanted * EACH < width:
        wanted *= 2
    for lanes in _halves(wanted, 4):
        for queries in _halves(max(grid.block // lanes, 1), max(grid.block // lanes // 4, 1)):
            for keys in _halves(max(KEYS, lanes), lanes):
                padded = -(-width // lanes) * lanes
                elements = queries * (size + keys) + keys * (size + padded)
                if elements * working_dtype(of).bytes + queries * lanes <= grid.capacity:
                    return Tiles(queries, lanes, keys)
    return None


def _halves(most: int, least: int) -> Iterator[int]:
    """A number, its half and so on, down to another."""
    while most >= least:
        yield most
        most //= 2


class Blocks:
    """A block for some queries of a head. In what its threads share, elements lie beside one another that threads read at once."""

    def __init__(self, b: Builder, grid: Grid, what: Attention, tiles: Tiles, out: ir.Buffer) -> None:
        self._b = b
        self._scope = grid.scope
        self._what = what
        self._tiles = tiles
        self._out = out
        size, width = what.q.shape[3], what.v.shape[3]
        assert isinstance(size, int) and isinstance(width, int), "tiles are of constant sizes"
        self._size, self._width = size, width
        self._each = -(-width // tiles.lanes)

    def emit(self) -> None:
        """The kernel."""
        b, what, tiles = self._b, self._what, self._tiles
        batches, heads, length, _ = what.q.shape
        with (
            b.loop(arith.product((batches, heads)), "row", thread=BLOCKS) as row,
            b.loop(arith.ceildiv(length, tiles.queries), "tile", thread=MORE_BLOCKS) as tile,
        ):
            self._batch, self._head = arith.simplify(row // heads), arith.simplify(row % heads)
            self._group = what.of_keys(self._head)
            self._first = tile * tiles.queries
            team = (tiles.queries, tiles.lanes)
            self._queries = b.alloc((self._size, tiles.queries), what.working, "queries", self._scope)
            self._scores = b.alloc((tiles.keys, tiles.queries), what.working, "scores", self._scope)
            self._most, self._total = (b.alloc(team, what.working, name, "register") for name in ("most", "total"))
            self._sums = b.alloc((*team, self._each), what.working, "sums", "register")
            self._seen = b.alloc(team, "bool", "seen", "register")
            self._begin()
            begin, end = what.range(self._first, tiles.queries)
            with b.loop(arith.ceildiv(arith.maximum(end - begin, 0), tiles.keys), "step") as step:
                start = begin + step * tiles.keys
                keys = b.alloc((self._size, tiles.keys), what.working, "keys", self._scope)
                with self._threads() as at:
                    self._fetch(at, what.k.buffer, start, (self._size, self._size), lambda key, element: (keys, (element, key)))
                self._score(keys, start)
                self._scale()
                values = b.alloc((tiles.keys, self._each * tiles.lanes), what.working, "values", self._scope)
                with self._threads() as at:
                    self._raise(at)
                    wide = self._each * tiles.lanes
                    self._fetch(at, what.v.buffer, start, (wide, self._width), lambda key, element: (values, (key, element)))
                self._add(values)
            self._end()

    @contextmanager
    def _threads(self) -> Iterator[tuple[arith.Var, arith.Var]]:
        """A phase: the query and the lane of each thread."""
        b = self._b
        with (
            b.loop(self._tiles.queries, "query", thread=MORE_THREADS) as query,
            b.loop(self._tiles.lanes, "lane", thread=THREADS) as lane,
        ):
            yield query, lane

    def _begin(self) -> None:
        b, what, lanes = self._b, self._what, self._tiles.lanes
        with self._threads() as (query, lane):
            inside = arith.compare("<", self._first + query, what.q.shape[2])
            with b.loop(-(-self._size // lanes), "n") as n, b.if_(truth(arith.compare("<", n * lanes + lane, self._size))):
                value = widen(what.q.buffer[self._batch, self._head, self._first + query, n * lanes + lane])
                b.store(self._queries, (n * lanes + lane, query), te.select(inside, value, te.const(0.0, what.working)))
            b.store(self._most, (query, lane), -math.inf)
            b.store(self._total, (query, lane), 0.0)
            b.store(self._seen, (query, lane), False if what.hides else truth(arith.compare("<", 0, what.k.shape[2])))
            with b.loop(self._each, "w", ir.ForKind.UNROLLED) as w:
                b.store(self._sums, (query, lane, w), 0.0)

    def _fetch(
        self,
        at: tuple[Dim, Dim],
        source: ir.Buffer,
        start: arith.Expr,
        widths: tuple[int, int],
        place: Callable[[Dim, Dim], tuple[ir.Buffer, tuple[Dim, ...]]],
    ) -> None:
        """A tile of keys or values, `widths` wide here and in memory; 0 where there are none. `place(key, element)` is where they
        go."""
        b, of = self._b, self._what.working
        team, (wide, own) = self._tiles.queries * self._tiles.lanes, widths
        elements = self._tiles.keys * wide
        with b.loop(-(-elements // team), "n") as n:
            number = n * team + at[0] * self._tiles.lanes + at[1]
            with b.if_(truth(arith.compare("<", number, elements))):
                key, element = number // wide, number % wide
                inside = arith.compare("<", start + key, self._what.k.shape[2])
                if own < wide:
                    inside = arith.logical_and(inside, arith.compare("<", element, own))
                value = widen(source[self._batch, self._group, start + key, element])
                b.store(*place(key, element), te.select(inside, value, te.const(0.0, of)))

    def _score(self, keys: ir.Buffer, start: arith.Expr) -> None:
        b, what, lanes = self._b, self._what, self._tiles.lanes
        many = self._tiles.keys // lanes
        with self._threads() as (query, lane):
            dots = b.alloc((many,), what.working, "dots", "register")
            with b.loop(many, "n", ir.ForKind.UNROLLED) as n:
                b.store(dots, n, 0.0)
            with b.loop(self._size, "e") as e, b.loop(many, "n", ir.ForKind.UNROLLED) as n:
                b.store(dots, n, dots[n] + self._queries[e, query] * keys[e, n * lanes + lane])
            with b.loop(many, "n", ir.ForKind.UNROLLED) as n:
                b.store(self._scores, (n * lanes + lane, query), dots[n])
            bias = b.alloc((), what.working, "bias")
            with b.loop(many, "n") as n:
                at, key = (n * lanes + lane, query), start + (n * lanes + lane)
                inside = arith.compare("<", key, what.k.shape[2])
                if what.hides:
                    inside = arith.logical_and(inside, arith.compare("<", self._first + query, what.q.shape[2]))
                with b.if_(truth(inside)):
                    score = what.capped(self._scores[at])
                    if what.hides:
                        b.store(bias, (), what.bias((self._batch, self._head, self._first + query, key)))
                        b.store(self._seen, (query, lane), self._seen[query, lane] | bias[()].not_equal(-math.inf))
                        score = score + bias[()]
                    b.store(self._scores, at, score)
                with b.else_():
                    b.store(self._scores, at, -math.inf)

    def _scale(self) -> None:
        """What was summed so far, as the greatest score that is known now has it."""
        b, what = self._b, self._what
        with self._threads() as (query, lane):
            grown, factor = (b.alloc((), what.working, name) for name in ("grown", "factor"))
            b.store(grown, (), self._most[query, lane])
            with b.loop(self._tiles.keys, "j") as j:
                b.store(grown, (), te.maximum(grown[()], self._scores[j, query]))
            b.store(factor, (), te.math("exp", self._most[query, lane] - finite(grown[()])))
            b.store(self._most, (query, lane), grown[()])
            b.store(self._total, (query, lane), self._total[query, lane] * factor[()])
            with b.loop(self._each, "w", ir.ForKind.UNROLLED) as w:
                b.store(self._sums, (query, lane, w), self._sums[query, lane, w] * factor[()])

    def _raise(self, at: tuple[Dim, Dim]) -> None:
        """Scores to powers, those of a thread."""
        b, lanes, (query, lane) = self._b, self._tiles.lanes, at
        with b.loop(self._tiles.keys // lanes, "n") as n:
            power = te.math("exp", self._scores[n * lanes + lane, query] - finite(self._most[query, lane]))
            b.store(self._scores, (n * lanes + lane, query), power)

    def _add(self, values: ir.Buffer) -> None:
        b, lanes = self._b, self._tiles.lanes
        with self._threads() as (query, lane):
            power = b.alloc((), self._what.working, "power")
            with b.loop(self._tiles.keys, "j") as j:
                b.store(power, (), self._scores[j, query])
                b.store(self._total, (query, lane), self._total[query, lane] + power[()])
                with b.loop(self._each, "w", ir.ForKind.UNROLLED) as w:
                    added = power[()] * values[j, w * lanes + lane]
                    b.store(self._sums, (query, lane, w), self._sums[query, lane, w] + added)

    def _end(self) -> None:
        b, what, lanes = self._b, self._what, self._tiles.lanes
        if what.hides:
            flags = b.alloc((self._tiles.queries, lanes), "bool", "flags", self._scope)
            with self._threads() as (query, lane):
                b.store(flags, (query, lane), self._seen[query, lane])
        with self._threads() as (query, lane), b.if_(truth(arith.compare("<", self._first + query, what.q.shape[2]))):
            seen = b.alloc((), "bool", "seen")
            b.store(seen, (), self._seen[query, lane])
            if what.hides:
                with b.loop(lanes, "n") as n:
                    b.store(seen, (), seen[()] | flags[query, n])
            with b.loop(self._each, "w", ir.ForKind.UNROLLED) as w, b.if_(truth(arith.compare("<", w * lanes + lane, self._width))):
                value = te.select(seen[()], self._sums[query, lane, w] / self._total[query, lane], te.const(0.0, what.working))
                place = (self._batch, self._head, self._first + query, w * lanes + lane)
                b.store(self._out, place, te.cast(value, self._out.dtype))
