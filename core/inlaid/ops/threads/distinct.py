"""Distinct rows of a matrix (`unique`): sort the rows, number the groups of equal rows by a prefix sum, then gather."""

from __future__ import annotations

from inlaid.ops.ordering import key_dtype, sort_key
from inlaid.ops.threads import merge
from inlaid.ops.threads.choose import PrefixCounts, prefix_sum
from inlaid.ops.threads.grid import LONG, Grid, parallel_range, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class Distinct:
    """Output buffers of `unique`: the first occurrence of each distinct row, the distinct row of each row, the number of
    occurrences of each distinct row, and the number of distinct rows, which defines the dimension `size`."""

    first: ir.Buffer
    inverse: ir.Buffer
    counts: ir.Buffer
    count: ir.Buffer
    size: Dim


def find_distinct(b: Builder, grid: Grid, source: ir.Buffer, ordered: bool, outputs: Distinct) -> None:
    """Store the distinct rows of a matrix: ascending if `ordered`, else by first occurrence."""
    rows = source.shape[0]
    last = arith.add(rows, -1)
    order = _argsort(b, grid, source)
    is_head = _group_heads(b, grid, source, order)
    groups = prefix_sum(b, grid, rows, lambda position: is_head[position])
    # The argsort of a permutation is its inverse.
    positions = merge.sort(b, grid, merge.SortSpec(1, rows, rows, LONG, lambda _, position: order[position])).numbers

    def sorted_position(row: Dim) -> arith.Var:
        return b.let(positions[0, row], "place", (0, last))

    def group_start(group: Dim) -> arith.Var:
        return groups.find(b, group)

    def group_length(group: Dim, start: Dim) -> ir.Expr:
        end = b.alloc((), LONG, "end")
        b.store(end, (), arith.wrap(rows))
        with b.if_(ir.as_expr(arith.add(group, 1), LONG) < groups.total):
            b.store(end, (), group_start(arith.add(group, 1)))
        return end[()] - ir.as_expr(start, LONG)

    b.store(outputs.count, (), groups.total)
    if ordered:
        with parallel_range(b, grid, rows) as row:
            b.store(outputs.inverse, row, groups.counts[0, sorted_position(row)] - 1)
        with parallel_range(b, grid, rows) as group, b.if_(truth(arith.compare("<", group, outputs.size))):
            start = group_start(group)
            b.store(outputs.first, group, order[start])
            b.store(outputs.counts, group, group_length(group, start))
        return
    first_counts = _count_first_occurrences(b, grid, rows, is_head, positions)
    with parallel_range(b, grid, rows) as row:
        start = group_start(b.let(groups.counts[0, sorted_position(row)] - 1, "group"))
        b.store(outputs.inverse, row, first_counts.counts[0, b.let(order[start], "founder", (0, last))] - 1)
    with parallel_range(b, grid, rows) as number, b.if_(truth(arith.compare("<", number, outputs.size))):
        founder = first_counts.find(b, number)
        start = sorted_position(founder)
        b.store(outputs.first, number, founder)
        b.store(outputs.counts, number, group_length(b.let(groups.counts[0, start] - 1, "group"), start))


def _argsort(b: Builder, grid: Grid, source: ir.Buffer) -> ir.Buffer:
    """Argsort the rows lexicographically: a stable sort per column, last column first."""
    rows, columns = source.shape
    order = b.alloc((rows,), LONG, "order")
    with parallel_range(b, grid, rows) as position:
        b.store(order, position, position)
    with b.loop(columns, "step") as step:
        column = arith.add(columns, -1) - step

        def key(_: Dim, position: Dim) -> ir.Expr:
            return sort_key(source[b.let(order[position], "row", (0, arith.add(rows, -1))), column])

        permutation = merge.sort(b, grid, merge.SortSpec(1, rows, rows, key_dtype(source.dtype), key)).numbers
        after = b.alloc((rows,), LONG, "after")
        with parallel_range(b, grid, rows) as position:
            b.store(after, position, order[b.let(permutation[0, position], "before", (0, arith.add(rows, -1)))])
        with parallel_range(b, grid, rows) as position:
            b.store(order, position, after[position])
    return order


def _group_heads(b: Builder, grid: Grid, source: ir.Buffer, order: ir.Buffer) -> ir.Buffer:
    """Compute group heads: 1 at each sorted position whose row differs from the previous row, else 0; int64."""
    rows, columns = source.shape
    is_head = b.alloc((rows,), LONG, "fresh")
    with parallel_range(b, grid, rows) as position:
        row, before = (
            b.let(order[index], name, (0, arith.add(rows, -1)))
            for index, name in ((position, "row"), (arith.maximum(position - 1, 0), "before"))
        )
        differs = b.alloc((), "bool", "differs")
        b.store(differs, (), truth(arith.compare("==", position, 0)))
        with b.loop(columns, "column") as column:
            column_differs = sort_key(source[row, column]).not_equal(sort_key(source[before, column]))
            b.store(differs, (), differs[()] | column_differs)
        b.store(is_head, position, te.select(differs[()], te.const(1, LONG), te.const(0, LONG)))
    return is_head


def _count_first_occurrences(b: Builder, grid: Grid, rows: Dim, is_head: ir.Buffer, positions: ir.Buffer) -> PrefixCounts:
    """Count first occurrences in row order, as prefix sums. The sort is stable, so the head of a group is its first occurrence."""
    is_first = b.alloc((rows,), LONG, "founds")
    with parallel_range(b, grid, rows) as row:
        b.store(is_first, row, is_head[b.let(positions[0, row], "place", (0, arith.add(rows, -1)))])
    return prefix_sum(b, grid, rows, lambda row: is_first[row])
