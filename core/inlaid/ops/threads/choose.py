"""Choosing elements: the chosen ones are numbered by a scan, and the thread of a number searches for its element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.threads.grid import LONG, Grid, first_where
from inlaid.ops.threads.scan import Running, scan
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder


@dataclass(frozen=True)
class Numbered:
    """How many of the first elements are chosen, at each of `extent` elements, itself included: int64."""

    counts: ir.Buffer
    extent: Dim

    @property
    def total(self) -> ir.Expr:
        """How many are chosen."""
        last = arith.maximum(arith.add(self.extent, -1), 0)
        return te.select(arith.compare("<", 0, self.extent), self.counts[0, last], te.const(0, LONG))

    def find(self, b: Builder, number: Dim) -> arith.Var:
        """The element that is chosen with a number, below the total."""
        found = first_where(b, (0, self.extent), self.extent, lambda at: ir.as_expr(number, LONG) < self.counts[0, at])
        return b.let(found[()], "element", (0, arith.add(self.extent, -1)))


def number_chosen(b: Builder, grid: Grid, extent: Dim, chosen: Callable[[Dim], ir.Expr]) -> Numbered:
    """Number those of some elements for which a condition holds."""
    return running_total(b, grid, extent, lambda place: te.select(chosen(place), te.const(1, LONG), te.const(0, LONG)))


def running_total(b: Builder, grid: Grid, extent: Dim, many: Callable[[Dim], ir.Expr]) -> Numbered:
    """Number what is chosen where each element counts so often."""
    counts = b.alloc((1, extent), LONG, "counts")

    def keep(b: Builder, row: Dim, place: Dim, before: ir.Expr, value: ir.Expr) -> None:
        b.store(counts, (row, place), value)

    scan(b, grid, Running(1, extent, LONG, "add", te.const(0, LONG), lambda row, place: many(place), keep))
    return Numbered(counts, extent)
