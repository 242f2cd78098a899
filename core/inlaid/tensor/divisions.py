"""Divisions by symbolic numbers: shared among neighbours, and done outside of loops that do not change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.lower_blocks import mapped
from inlaid.tensor.rewrite import Rewriter
from inlaid.tensor.transform import Ranges, loop_ranges
from inlaid.types import dtype

Division = arith.FloorDiv | arith.FloorMod


def hoist_divisions(program: ir.LoopProgram) -> ir.LoopProgram:
    """Quotients and remainders by symbolic numbers are computed at the start of the loop that they change with, since compilers
    move no division out of a loop that may not run:

        for p: for q: a[p // n, q]    becomes    for p: let d = p // n: for q: a[d, q]

    Those of dividends that differ by less than the number follow from one another,

        (p + 3) // n, (p + 3) % n    become    p // n + c, p % n + 3 - n * c    where c is n <= p % n + 3

    and, by another comparison, those of dividends that differ by less than twice the number. So copies of a statement for
    neighbouring places, as unrolling makes them, divide once. Expects no blocks, and leaves programs for threads as they are.
    """
    stmts = list(ir.walk_stmts(program.body))
    sizes = any(not isinstance(dim, int) for stmt in (*program.params,) for dim in stmt.shape) or program.sizes
    if not sizes or any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD for stmt in stmts):
        return program
    body = _hoisted(_Sharing({}).stmt(program.body), frozenset())
    return program if body is program.body else replace(program, body=body)


class _Divisions(Rewriter):
    """Replaces divisions by numbers that are not constant, inner ones first."""

    def __init__(self, replaced: Callable[[Division], arith.Expr]) -> None:
        super().__init__()
        self._replaced = replaced

    def index(self, index: arith.Expr) -> arith.Expr:
        done = self._indices.get(index)
        if done is None:
            done = super().index(index)
            if isinstance(done, Division) and not isinstance(done.operands[1], arith.Const) and not arith.reads_data(done):
                done = self._replaced(done)
            self._indices[index] = done
        return done


class _Sharing(_Divisions):
    """Derives divisions from one another under the ranges of the loops around."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__(self._shared)
        self._ranges = ranges
        self._analyzer = arith.Analyzer(ranges)

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        if not isinstance(stmt, ir.For):
            return super().stmt(stmt)
        extent, body = self.index(stmt.extent), _Sharing({**self._ranges, **loop_ranges(stmt)}).stmt(stmt.body)
        return stmt if extent is stmt.extent and body is stmt.body else replace(stmt, extent=extent, body=body)

    def _shared(self, division: Division) -> arith.Expr:
        dividend, divisor = division.operands
        form = self._analyzer.linear(dividend)
        small: dict[arith.Expr, int] = {atom: count for atom, count in form.terms.items() if isinstance(atom, arith.Compare)}
        rest = arith.Linear({atom: count for atom, count in form.terms.items() if atom not in small}, 0).expr()
        more = arith.Linear(small, form.constant).expr()
        low, high = self._analyzer.bounds(more)
        least = self._analyzer.bounds(divisor)[0]
        if rest == arith.ZERO or low is None or low < 0 or not high or least is None or 2 * least < high:
            return division
        beyond = rest % divisor + more
        ends = (divisor,) if high <= least else (divisor, divisor * 2)
        steps = [arith.compare("<=", end, beyond) for end in ends]
        if isinstance(division, arith.FloorDiv):
            return sum(steps, rest // divisor)
        found = beyond
        for end, step in zip(ends, steps, strict=True):
            found = arith.select(step, beyond - end, found)
        return found


def _hoisted(stmt: ir.Stmt, outside: frozenset[arith.Expr]) -> ir.Stmt:
    """The statement with divisions bound to variables in the loops whose variables they read, besides those outside."""
    if not isinstance(stmt, ir.For) or stmt.kind is ir.ForKind.VECTORIZED:
        return mapped(stmt, lambda inner: _hoisted(inner, outside))
    scope = outside | {stmt.var}
    values: dict[arith.Expr, arith.Var] = {}

    def bound(division: Division) -> arith.Expr:
        variables = {var for var in arith.free_vars(division) if isinstance(var, arith.Var)}
        if not variables <= scope | set(values.values()) or not variables - outside:
            return division
        return values.setdefault(division, arith.Var(f"{stmt.var.name}_d{len(values)}"))

    body = _hoisted(_Divisions(bound).stmt(stmt.body), scope | set(values.values()))
    for value, variable in reversed(values.items()):
        body = ir.Let(variable, ir.Index(dtype("int64"), value), body)
    return stmt if body is stmt.body else replace(stmt, body=body)
