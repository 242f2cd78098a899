"""Stream compaction: a prefix sum counts the selected elements, and each output thread finds its element by binary search."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.ops.threads.grid import LONG, Grid, first_where
from inlaid.ops.threads.scan import RowScan, emit_scan
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class PrefixCounts:
    """Inclusive prefix sums of the selection counts: int64 (1, extent)."""

    counts: ir.Buffer
    extent: Dim

    @property
    def total(self) -> ir.Expr:
        """Number of selected elements."""
        last = arith.maximum(arith.add(self.extent, -1), 0)
        return te.select(arith.compare("<", 0, self.extent), self.counts[0, last], te.const(0, LONG))

    def find(self, b: Builder, number: Dim) -> arith.Var:
        """Return the index of selected element number `number`, which must be below the total."""
        position = first_where(b, (0, self.extent), self.extent, lambda index: ir.as_expr(number, LONG) < self.counts[0, index])
        return b.let(position[()], "element", (0, arith.add(self.extent, -1)))


def count_selected(b: Builder, grid: Grid, extent: Dim, selected: Callable[[Dim], ir.Expr]) -> PrefixCounts:
    """Count the elements that a predicate selects, as prefix sums."""
    return prefix_sum(b, grid, extent, lambda position: te.select(selected(position), te.const(1, LONG), te.const(0, LONG)))


def prefix_sum(b: Builder, grid: Grid, extent: Dim, count: Callable[[Dim], ir.Expr]) -> PrefixCounts:
    """Compute the inclusive prefix sums of `count(element)`."""
    counts = b.alloc((1, extent), LONG, "counts")

    def keep(b: Builder, row: Dim, position: Dim, before: ir.Expr, value: ir.Expr) -> None:
        b.store(counts, (row, position), value)

    emit_scan(b, grid, RowScan(1, extent, LONG, "add", te.const(0, LONG), lambda row, position: count(position), keep))
    return PrefixCounts(counts, extent)
