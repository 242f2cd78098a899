"""Non-maximum suppression: a block for each class of each image, whose threads drop together what a box that is kept overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.define import widen
from inlaid.ops.ordering import key_dtype, sort_key
from inlaid.ops.threads import merge
from inlaid.ops.threads.choose import running_total
from inlaid.ops.threads.grid import BLOCKS, LONG, THREADS, Grid, Memory, each, first_where, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder

Corners = list[ir.Expr]


@dataclass(frozen=True)
class Suppression:
    """The arguments of `non_max_suppression`, `limits` being those of overlaps and of scores; at most `most` boxes of a class are
    kept. `corners` makes corners of the four numbers of a box, `overlap` tells how much two boxes overlap."""

    boxes: ir.Buffer
    scores: ir.Buffer
    limits: tuple[ir.Buffer, ir.Buffer]
    most: Dim
    corners: Callable[[list[ir.Expr]], Corners]
    overlap: Callable[[Corners, Corners], ir.Expr]

    @property
    def rows(self) -> Dim:
        """Classes of images."""
        return arith.product(self.scores.shape[:2])

    @property
    def candidates(self) -> Dim:
        """Boxes of an image."""
        return self.scores.shape[2]

    def score(self, row: Dim, box: Dim) -> ir.Load:
        """The score of a box in a class of an image."""
        classes = self.scores.shape[1]
        return self.scores[arith.floordiv(row, classes), arith.floormod(row, classes), box]

    def box(self, row: Dim, box: Dim) -> Corners:
        """The corners of a box of an image."""
        image = arith.floordiv(row, self.scores.shape[1])
        return self.corners([widen(self.boxes[image, box, side]) for side in range(4)])


def suppress(b: Builder, grid: Grid, what: Suppression, into: tuple[ir.Buffer, ...], size: Dim) -> None:
    """Store the boxes that are kept as rows (image, class, box), and how many these are, which `size` is."""
    result, count = into
    rows, candidates, classes = what.rows, what.candidates, what.scores.shape[1]

    def key(row: Dim, box: Dim) -> ir.Expr:
        return sort_key(what.score(row, box), descending=True)

    order = merge.sort(b, grid, merge.Rows(rows, candidates, candidates, key_dtype(what.scores.dtype), key)).numbers
    kept = b.alloc((rows, what.most), LONG, "kept")
    counts = b.alloc((rows,), LONG, "counts")
    _choose(b, grid, what, order, kept, counts)
    ends = running_total(b, grid, rows, lambda row: counts[row])
    b.store(count, (), ends.total)
    with each(b, grid, arith.unwrap(arith.mul(rows, what.most))) as place, b.if_(truth(arith.compare("<", place, size))):
        row = ends.find(b, place)
        start = b.let(ends.counts[0, row] - counts[row], "start")
        found = b.let(kept[row, b.let(ir.as_expr(place - start, LONG), "at", (0, arith.add(what.most, -1)))], "box")
        for column, value in enumerate((row // classes, row % classes, found)):
            b.store(result, (place, column), value)


def _choose(b: Builder, grid: Grid, what: Suppression, order: ir.Buffer, kept: ir.Buffer, counts: ir.Buffer) -> None:
    """Keep the boxes of each row, by falling score."""
    candidates = what.candidates
    last = arith.add(candidates, -1)
    overlap_limit, score_limit = what.limits
    alive = b.alloc((what.rows, candidates), "bool", "alive")
    places, numbers = (Memory(b, grid, (what.rows,), (1,), LONG, name) for name in ("place", "number"))
    ends, chosen = (Memory(b, grid, (what.rows,), (1,), of, name) for of, name in ((LONG, "end"), ("bool", "going")))
    with b.loop(what.rows, "row", thread=BLOCKS) as row:
        place, number, end, going = (memory.open(row) for memory in (places, numbers, ends, chosen))

        def score(at: Dim) -> ir.Expr:
            return widen(what.score(row, b.let(order[row, at], "box", (0, last))))

        with b.loop(grid.block, "t", thread=THREADS) as t, _strided(b, grid, t, candidates) as box:
            b.store(alive, (row, box), True)
        with b.loop(1, "t", thread=THREADS):
            # NaN comes first and is never kept; what comes after the limit is not, either.
            place.store(b, 0, first_where(b, (0, candidates), candidates, lambda at: ~te.unary("isnan", score(at)))[()])
            above = first_where(b, (0, candidates), candidates, lambda at: _ends(score(at), widen(score_limit[()])))
            end.store(b, 0, above[()])
            number.store(b, 0, 0)
        with b.while_((place[0] < end[0]) & (number[0] < ir.as_expr(arith.wrap(what.most), LONG))):
            at = b.let(place[0], "at", (0, last))
            going.store(b, 0, alive[row, at])
            with b.if_(going[0]):
                with b.loop(grid.block, "t", thread=THREADS) as t:
                    own = what.box(row, b.let(order[row, at], "own", (0, last)))
                    rest = b.let(end[0] - (at + 1), "rest")
                    with _strided(b, grid, t, rest) as further:
                        corners = what.box(row, b.let(order[row, at + 1 + further], "other", (0, last)))
                        with b.if_(what.overlap(own, corners) > widen(overlap_limit[()])):
                            b.store(alive, (row, at + 1 + further), False)
                b.store(kept, (row, b.let(number[0], "free", (0, arith.add(what.most, -1)))), order[row, at])
                number.store(b, 0, number[0] + 1)
            place.store(b, 0, at + 1)
        b.store(counts, row, number[0])


@contextmanager
def _strided(b: Builder, grid: Grid, thread: arith.Expr, count: Dim) -> Iterator[arith.Expr]:
    """The numbers below a count that are a thread's of a block."""
    with (
        b.loop(arith.ceildiv(count, grid.block), "n") as n,
        b.if_(truth(arith.compare("<", n * grid.block + thread, count))),
    ):
        yield n * grid.block + thread


def _ends(score: ir.Expr, limit: ir.Expr) -> ir.Expr:
    """Whether no box is kept from a score on."""
    return ~((score > limit) | te.unary("isnan", score))
