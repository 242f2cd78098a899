"""Distinct rows of a matrix: rows are ordered, groups of equal ones numbered, and all else is looked up."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.ordering import key_dtype, sort_key
from inlaid.ops.threads import merge
from inlaid.ops.threads.choose import Numbered, running_total
from inlaid.ops.threads.grid import LONG, Grid, each, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder


@dataclass(frozen=True)
class Distinct:
    """The results of `unique`: for each distinct row its first occurrence, for each row the number of its distinct row, how often
    each occurs, and how many there are, which `size` is."""

    first: ir.Buffer
    inverse: ir.Buffer
    counts: ir.Buffer
    count: ir.Buffer
    size: Dim


def find_distinct(b: Builder, grid: Grid, source: ir.Buffer, ordered: bool, into: Distinct) -> None:
    """Store the distinct rows of a matrix, in rising order, or in that of their first occurrences."""
    rows = source.shape[0]
    last = arith.add(rows, -1)
    order = _order(b, grid, source)
    fresh = _first_of_equals(b, grid, source, order)
    groups = running_total(b, grid, rows, lambda place: fresh[place])
    # The places of rows in the order are the order of its numbers.
    places = merge.sort(b, grid, merge.Rows(1, rows, rows, LONG, lambda _, place: order[place])).numbers

    def place_of(row: Dim) -> arith.Var:
        return b.let(places[0, row], "place", (0, last))

    def start_of(group: Dim) -> arith.Var:
        return groups.find(b, group)

    def length_of(group: Dim, start: Dim) -> ir.Expr:
        end = b.alloc((), LONG, "end")
        b.store(end, (), arith.wrap(rows))
        with b.if_(ir.as_expr(arith.add(group, 1), LONG) < groups.total):
            b.store(end, (), start_of(arith.add(group, 1)))
        return end[()] - ir.as_expr(start, LONG)

    b.store(into.count, (), groups.total)
    if ordered:
        with each(b, grid, rows) as row:
            b.store(into.inverse, row, groups.counts[0, place_of(row)] - 1)
        with each(b, grid, rows) as group, b.if_(truth(arith.compare("<", group, into.size))):
            start = start_of(group)
            b.store(into.first, group, order[start])
            b.store(into.counts, group, length_of(group, start))
        return
    named = _named(b, grid, rows, fresh, places)
    with each(b, grid, rows) as row:
        start = start_of(b.let(groups.counts[0, place_of(row)] - 1, "group"))
        b.store(into.inverse, row, named.counts[0, b.let(order[start], "founder", (0, last))] - 1)
    with each(b, grid, rows) as name, b.if_(truth(arith.compare("<", name, into.size))):
        founder = named.find(b, name)
        start = place_of(founder)
        b.store(into.first, name, founder)
        b.store(into.counts, name, length_of(b.let(groups.counts[0, start] - 1, "group"), start))


def _order(b: Builder, grid: Grid, source: ir.Buffer) -> ir.Buffer:
    """The numbers of rows in rising order, by one column after the other, the last one first: each order is stable."""
    rows, columns = source.shape
    order = b.alloc((rows,), LONG, "order")
    with each(b, grid, rows) as place:
        b.store(order, place, place)
    with b.loop(columns, "step") as step:
        column = arith.add(columns, -1) - step

        def key(_: Dim, place: Dim) -> ir.Expr:
            return sort_key(source[b.let(order[place], "row", (0, arith.add(rows, -1))), column])

        found = merge.sort(b, grid, merge.Rows(1, rows, rows, key_dtype(source.dtype), key)).numbers
        after = b.alloc((rows,), LONG, "after")
        with each(b, grid, rows) as place:
            b.store(after, place, order[b.let(found[0, place], "before", (0, arith.add(rows, -1)))])
        with each(b, grid, rows) as place:
            b.store(order, place, after[place])
    return order


def _first_of_equals(b: Builder, grid: Grid, source: ir.Buffer, order: ir.Buffer) -> ir.Buffer:
    """At each place of the order 1 where the row differs from the one before, else 0: int64."""
    rows, columns = source.shape
    fresh = b.alloc((rows,), LONG, "fresh")
    with each(b, grid, rows) as place:
        row, before = (
            b.let(order[at], name, (0, arith.add(rows, -1)))
            for at, name in ((place, "row"), (arith.maximum(place - 1, 0), "before"))
        )
        differs = b.alloc((), "bool", "differs")
        b.store(differs, (), truth(arith.compare("==", place, 0)))
        with b.loop(columns, "column") as column:
            other = sort_key(source[row, column]).not_equal(sort_key(source[before, column]))
            b.store(differs, (), differs[()] | other)
        b.store(fresh, place, te.select(differs[()], te.const(1, LONG), te.const(0, LONG)))
    return fresh


def _named(b: Builder, grid: Grid, rows: Dim, fresh: ir.Buffer, places: ir.Buffer) -> Numbered:
    """First occurrences, numbered in the order of rows: they come first among their equals, since the order is stable."""
    founds = b.alloc((rows,), LONG, "founds")
    with each(b, grid, rows) as row:
        b.store(founds, row, fresh[b.let(places[0, row], "place", (0, arith.add(rows, -1)))])
    return running_total(b, grid, rows, lambda row: founds[row])
