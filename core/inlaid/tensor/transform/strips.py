"""Runs the remainder of a tile of unrolled rows as a loop over strips of a few rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid.tensor.transform.compact import compact
from inlaid.tensor.transform.lower_blocks import conjuncts, guarded, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import replace

STRIP = 4
"""Rows per strip."""


def in_strips(
    tile: ir.Stmt, rows: frozenset[Var], strip: Var, tests_row: Callable[[arith.Expr, Var], bool], size: int, last: Var | None
) -> ir.Stmt | None:
    """Shrink a tile of unrolled rows, only the first few of which exist, to one strip of its rows:

        sums[8]; for r in 8 unrolled: if r < n: sums[r] = 0
    becomes
        sums[4]; for r in 4 unrolled: if 4*strip + r < n: sums[r] = 0

    `rows` are the variables of the loops over rows; `tests_row` returns whether a condition tests that a row exists; `size` is the
    number of rows to shrink to. Returns None if rows depend on each other, or if a row that does not exist has effects. If `last`
    is given, it is a variable with the number, in the strip, of the last row that exists. Guards of stores to local buffers are
    then dropped: rows beyond `last` read the operands of row `last`.
    """
    checker = _Rows(tile, rows, tests_row)
    if not checker.independent(tile):
        return None
    nearest_rows = {} if last is None else {row: Var(f"{row.name}_near") for row in rows}
    tile = tile if last is None else checker.without_guards(tile, nearest_rows)

    def shortened(stmt: ir.Stmt) -> ir.Stmt | None:
        if isinstance(stmt, ir.For) and stmt.var in rows:
            return ir.For(stmt.var, arith.Const(size), stmt.body, stmt.kind, stmt.thread, stmt.annotations)
        return None

    row_numbers: dict[arith.Expr, arith.Expr] = {row: strip * STRIP + row for row in rows}
    row_numbers |= {other: strip * STRIP + arith.minimum(row, last) for row, other in nearest_rows.items() if last is not None}
    return compact(Rewriter(row_numbers, stmt=shortened).stmt(tile))


_Access = tuple[ir.Buffer, tuple[arith.Expr, ...], bool]


class _Rows:
    """Checks whether the rows of a tile are independent."""

    def __init__(self, tile: ir.Stmt, rows: frozenset[Var], tests_row: Callable[[arith.Expr, Var], bool]) -> None:
        stmts = list(ir.walk_stmts(tile))
        self._rows = rows
        self._tests_row = tests_row
        self._local = {stmt.buffer for stmt in stmts if isinstance(stmt, ir.Alloc)}
        self._stored = {buffer for stmt in stmts for buffer, _, is_write in _accesses(stmt) if is_write}
        self._axes: dict[ir.Buffer, int | None] = {}

    def independent(self, stmt: ir.Stmt, row: Var | None = None, exists: bool = False) -> bool:
        """Check a statement. `row` is the variable of the enclosing row loop, if any; `exists` if that row is known to exist."""
        match stmt:
            case ir.For(var=var) if var in self._rows:
                return row is None and self.independent(stmt.body, var)
            case ir.If(condition=ir.Index(index=condition), otherwise=None):
                exists = exists or (row is not None and any(self._tests_row(part, row) for part in conjuncts(condition)))
            case ir.While() | ir.If():
                return False
        return all(self._allowed(*access, row, exists) for access in _accesses(stmt)) and all(
            self.independent(inner, row, exists) for inner in ir.substatements(stmt)
        )

    def without_guards(self, stmt: ir.Stmt, nearest_rows: Mapping[Var, Var], row: Var | None = None) -> ir.Stmt:
        """Drop the guards of stores to local buffers, which then read row `nearest_rows[row]` of other buffers."""
        match stmt:
            case ir.For(var=var, body=body) if var in self._rows:
                if any(isinstance(node, ir.Let) for node in ir.walk_stmts(body)):
                    return stmt  # its value may depend on the row
                row = var
            case ir.If(condition=ir.Index(index=condition), then=then, otherwise=None) if row is not None:
                conditions: list[arith.Expr] = [part for part in conjuncts(condition) if not self._tests_row(part, row)]
                stores = [node for node in ir.walk_stmts(then) if not isinstance(node, (ir.For, ir.Seq, ir.If))]
                if all(isinstance(node, ir.Store) and node.buffer in self._local for node in stores):
                    return _NearestRow(nearest_rows, row, self._axes).stmt(
                        guarded(then, reduce(arith.logical_and, conditions, arith.wrap(1)))
                    )
        return mapped(stmt, lambda inner: self.without_guards(inner, nearest_rows, row))

    def _allowed(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], is_write: bool, row: Var | None, exists: bool) -> bool:
        if buffer not in self._local:
            # Earlier strips may have stored elements that this one reads.
            return exists if is_write else buffer not in self._stored
        axis = next((position for position, index in enumerate(indices) if row is not None and index == row), None)
        if axis is None and ((is_write and row is not None) or any(not self._rows.isdisjoint(arith.free_vars(i)) for i in indices)):
            return False
        return self._axes.setdefault(buffer, axis) == axis


class _NearestRow(Rewriter):
    """Replaces the variable of a row by that of the nearest row that exists, except in accesses to local buffers. `axes` maps these
    buffers to the axis that the row indexes."""

    def __init__(self, nearest_rows: Mapping[Var, Var], row: Var, axes: Mapping[ir.Buffer, int | None]) -> None:
        def row_indices(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
            return tuple(row if axis == axes.get(buffer) else index for axis, index in enumerate(indices))

        super().__init__(
            {row: nearest_rows[row]},
            expr=lambda node: ir.load(node.buffer, row_indices(node.buffer, node.indices)) if isinstance(node, ir.Load) else None,
            stmt=lambda node: replace(node, indices=row_indices(node.buffer, node.indices)) if isinstance(node, ir.Store) else None,
        )


def _accesses(stmt: ir.Stmt) -> list[_Access]:
    """Return the elements that a statement reads or may write, without those of its substatements."""
    accesses: list[_Access] = [
        (node.buffer, node.indices, False) for node in ir.walk_exprs(*statement_values(stmt)) if isinstance(node, ir.Load)
    ]
    if isinstance(stmt, ir.Store):
        accesses.append((stmt.buffer, stmt.indices, True))
    if isinstance(stmt, ir.Intrinsic):
        for access in (ir.AccessMode.READ, ir.AccessMode.WRITE):
            starts = ((region.buffer, tuple(first for first, _ in region.ranges)) for region in stmt.touching(access))
            accesses += [(buffer, first, access is ir.AccessMode.WRITE) for buffer, first in starts]
    return accesses
