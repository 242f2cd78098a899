"""Greedy non-maximum suppression: one block per image and class, whose threads test the candidates against each kept box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inlaid.ops.define import widen
from inlaid.ops.ordering import key_dtype, sort_key
from inlaid.ops.threads import merge
from inlaid.ops.threads.choose import prefix_sum
from inlaid.ops.threads.grid import BLOCKS, LONG, THREADS, BlockScratch, Grid, first_where, parallel_range, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass

Corners = list[ir.Expr]


@dataclass(frozen=True)
class Suppression:
    """Inputs of `non_max_suppression`. `limits` are the IoU and the score threshold; `max_boxes` is the maximum number of boxes
    kept per class. `corners` converts the four coordinates of a box to corners; `overlap` is the IoU of two boxes."""

    boxes: ir.Buffer
    scores: ir.Buffer
    limits: tuple[ir.Buffer, ir.Buffer]
    max_boxes: Dim
    corners: Callable[[list[ir.Expr]], Corners]
    overlap: Callable[[Corners, Corners], ir.Expr]

    @property
    def rows(self) -> Dim:
        """Number of (image, class) pairs."""
        return arith.product(self.scores.shape[:2])

    @property
    def candidates(self) -> Dim:
        """Number of boxes per image."""
        return self.scores.shape[2]

    def score(self, row: Dim, box: Dim) -> ir.Load:
        """Return the score of a box for an (image, class) pair, numbered `row`."""
        classes = self.scores.shape[1]
        return self.scores[arith.floordiv(row, classes), arith.floormod(row, classes), box]

    def box(self, row: Dim, box: Dim) -> Corners:
        """Return the corners of a box in the image of the (image, class) pair `row`."""
        image = arith.floordiv(row, self.scores.shape[1])
        return self.corners([widen(self.boxes[image, box, side]) for side in range(4)])


def suppress(b: Builder, grid: Grid, nms: Suppression, outputs: tuple[ir.Buffer, ...], size: Dim) -> None:
    """Store the kept boxes as rows (image, class, box), and the number of kept boxes, which defines the dimension `size`."""
    result, count = outputs
    rows, candidates, classes = nms.rows, nms.candidates, nms.scores.shape[1]

    def key(row: Dim, box: Dim) -> ir.Expr:
        return sort_key(nms.score(row, box), descending=True)

    order = merge.sort(b, grid, merge.SortSpec(rows, candidates, candidates, key_dtype(nms.scores.dtype), key)).numbers
    selection = b.alloc((rows, nms.max_boxes), LONG, "kept")
    counts = b.alloc((rows,), LONG, "counts")
    _keep_boxes(b, grid, nms, order, selection, counts)
    ends = prefix_sum(b, grid, rows, lambda row: counts[row])
    b.store(count, (), ends.total)
    with (
        parallel_range(b, grid, arith.unwrap(arith.mul(rows, nms.max_boxes))) as slot,
        b.if_(truth(arith.compare("<", slot, size))),
    ):
        row = ends.find(b, slot)
        start = b.let(ends.counts[0, row] - counts[row], "start")
        box_index = b.let(selection[row, b.let(ir.as_expr(slot - start, LONG), "at", (0, arith.add(nms.max_boxes, -1)))], "box")
        for column, value in enumerate((row // classes, row % classes, box_index)):
            b.store(result, (slot, column), value)


def _keep_boxes(b: Builder, grid: Grid, nms: Suppression, order: ir.Buffer, selection: ir.Buffer, counts: ir.Buffer) -> None:
    """Select the kept boxes of each row, by descending score."""
    candidates = nms.candidates
    last = arith.add(candidates, -1)
    overlap_limit, score_limit = nms.limits
    alive = b.alloc((nms.rows, candidates), "bool", "alive")
    cursors, numbers = (BlockScratch(b, grid, (nms.rows,), (1,), LONG, name) for name in ("place", "number"))
    ends, going_flags = (
        BlockScratch(b, grid, (nms.rows,), (1,), dtype, name) for dtype, name in ((LONG, "end"), ("bool", "going"))
    )
    with b.loop(nms.rows, "row", thread=BLOCKS) as row:
        cursor, number, end, going = (memory.open(row) for memory in (cursors, numbers, ends, going_flags))

        def score(rank: Dim) -> ir.Expr:
            return widen(nms.score(row, b.let(order[row, rank], "box", (0, last))))

        with b.loop(grid.block, "t", thread=THREADS) as t, _block_stride(b, grid, t, candidates) as box:
            b.store(alive, (row, box), True)
        with b.loop(1, "t", thread=THREADS):
            # NaN scores sort first and are never kept, nor are scores below the threshold.
            cursor.store(b, 0, first_where(b, (0, candidates), candidates, lambda rank: ~te.unary("isnan", score(rank)))[()])
            first_below = first_where(
                b, (0, candidates), candidates, lambda rank: _below_threshold(score(rank), widen(score_limit[()]))
            )
            end.store(b, 0, first_below[()])
            number.store(b, 0, 0)
        with b.while_((cursor[0] < end[0]) & (number[0] < ir.as_expr(arith.wrap(nms.max_boxes), LONG))):
            rank = b.let(cursor[0], "at", (0, last))
            going.store(b, 0, alive[row, rank])
            with b.if_(going[0]):
                with b.loop(grid.block, "t", thread=THREADS) as t:
                    box_corners = nms.box(row, b.let(order[row, rank], "own", (0, last)))
                    rest = b.let(end[0] - (rank + 1), "rest")
                    with _block_stride(b, grid, t, rest) as distance:
                        corners = nms.box(row, b.let(order[row, rank + 1 + distance], "other", (0, last)))
                        with b.if_(nms.overlap(box_corners, corners) > widen(overlap_limit[()])):
                            b.store(alive, (row, rank + 1 + distance), False)
                b.store(selection, (row, b.let(number[0], "free", (0, arith.add(nms.max_boxes, -1)))), order[row, rank])
                number.store(b, 0, number[0] + 1)
            cursor.store(b, 0, rank + 1)
        b.store(counts, row, number[0])


@contextmanager
def _block_stride(b: Builder, grid: Grid, thread: arith.Expr, count: Dim) -> Iterator[arith.Expr]:
    """Open a block-stride loop; yields the indices below `count` of one thread."""
    with (
        b.loop(arith.ceildiv(count, grid.block), "n") as n,
        b.if_(truth(arith.compare("<", n * grid.block + thread, count))),
    ):
        yield n * grid.block + thread


def _below_threshold(score: ir.Expr, limit: ir.Expr) -> ir.Expr:
    """Test whether a score is at or below the threshold; False for NaN."""
    return ~((score > limit) | te.unary("isnan", score))
