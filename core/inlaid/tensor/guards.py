"""Conditions asked as few times as possible: hoisted out of loops, and nested where one implies another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.lower_blocks import conjuncts, guarded, joined, mapped


def nest_guards(program: ir.LoopProgram) -> ir.LoopProgram:
    """Guards leave the loops that they do not depend on, and those that imply the guard before them go into it.

        for j in 2, vectorised: if r < n: a; for j in 2, vectorised: if r + 1 < n: b; if r + 2 < n: c
    becomes
        if r < n: { for j in 2, vectorised: a; if r + 1 < n: { for j in 2, vectorised: b; if r + 2 < n: c } }

    so that a tile of unrolled rows of which only the first few exist takes one branch in each iteration of the loop around, not one
    for each row. Of several vectors side by side, each of which an end may cut off, those entirely behind it are skipped. Expects
    no blocks.
    """
    body = _Nesting().stmt(program.body)
    return program if body is program.body else replace(program, body=body)


class _Nesting:
    """The pass; comparisons of conditions are remembered."""

    def __init__(self) -> None:
        self._known: dict[tuple[arith.Expr, arith.Expr], bool] = {}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement with its guards nested."""
        stmt = mapped(stmt, self.stmt)
        match stmt:
            case ir.For(kind=ir.ForKind.VECTORIZED | ir.ForKind.SERIAL):
                return _hoisted(stmt)
            case ir.Seq(stmts=stmts):
                if sum(_cut(item) is not None for item in stmts) > 1:
                    stmts = tuple(map(_begun, stmts))
                nested = self._nested(stmts)
                return stmt if len(nested) == len(stmt.stmts) else joined(*nested)
        return stmt

    def _nested(self, stmts: Sequence[ir.Stmt]) -> list[ir.Stmt]:
        """Statements in order, those under a condition with the ones after them that can run only where it holds."""
        found: list[ir.Stmt] = []
        place = 0
        while place < len(stmts):
            stmt, condition = stmts[place], _guard(stmts[place])
            place += 1
            if condition is None:
                found.append(stmt)
                continue
            start = place
            while place < len(stmts) and (other := _guard(stmts[place])) is not None and self._implies(other, condition):
                place += 1
            if place == start:
                found.append(stmt)
                continue
            parts = frozenset(conjuncts(condition))
            inside = [part for item in stmts[start - 1 : place] for part in _flat(_without(item, parts))]
            found.append(guarded(joined(*self._nested(inside)), condition))
        return found

    def _implies(self, condition: arith.Expr, other: arith.Expr) -> bool:
        """Whether the second condition holds wherever the first does, as far as comparisons of sums say."""
        key = (condition, other)
        if key not in self._known:
            parts = list(conjuncts(condition))
            self._known[key] = all(any(_stronger(part, wanted) for part in parts) for wanted in conjuncts(other))
        return self._known[key]


def _guard(stmt: ir.Stmt) -> arith.Expr | None:
    """The condition under which alone a statement runs; None for one that is no guard, or whose condition reads data."""
    match stmt:
        case ir.If(condition=ir.Index(index=condition), otherwise=None) if not arith.reads_data(condition):
            return condition
    return None


def _without(stmt: ir.Stmt, parts: frozenset[arith.Expr]) -> ir.Stmt:
    """A guarded statement without the parts of its condition that are known to hold."""
    condition = _guard(stmt)
    assert isinstance(stmt, ir.If) and condition is not None
    return guarded(stmt.then, _joint(part for part in conjuncts(condition) if part not in parts))


def _joint(parts: Iterable[arith.Expr]) -> arith.Expr:
    result: arith.Expr = arith.ONE
    for part in parts:
        result = arith.logical_and(result, part)
    return result


def _flat(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)


def _stronger(part: arith.Expr, other: arith.Expr) -> bool:
    """Whether one comparison implies another."""
    if part == other:
        return True
    match part, other:
        case arith.Compare(op="<", operands=(a, end)), arith.Compare(op="<", operands=(b, limit)):
            distance = arith.simplify((b - limit) - (a - end))
            return isinstance(distance, arith.Const) and distance.value <= 0
    return False


def _hoisted(loop: ir.For) -> ir.Stmt:
    """A loop whose body is guarded, with those parts of the condition in front of it that do not depend on it."""
    condition = _guard(loop.body)
    if condition is None:
        return loop
    assert isinstance(loop.body, ir.If)
    inside = [part for part in conjuncts(condition) if loop.var in arith.free_vars(part)]
    outside = [part for part in conjuncts(condition) if loop.var not in arith.free_vars(part)]
    return guarded(replace(loop, body=guarded(loop.body.then, _joint(inside))), _joint(outside)) if outside else loop


def _cut(stmt: ir.Stmt) -> tuple[ir.For, arith.Expr] | None:
    """The vectorised loop that a statement is, under a guard or not, whose lanes an end may cut off, and the condition under which
    its first lane runs; None for anything else."""
    loop = stmt.then if isinstance(stmt, ir.If) and _guard(stmt) is not None else stmt
    if not isinstance(loop, ir.For) or loop.kind is not ir.ForKind.VECTORIZED:
        return None
    match _guard(loop.body):
        case arith.Compare(op="<", operands=(place, end)):
            found = arith.affine(place, loop.var)
            if found is not None and found[0] == arith.ONE and loop.var not in arith.free_vars(end):
                return loop, arith.compare("<", found[1], end)
    return None


def _begun(stmt: ir.Stmt) -> ir.Stmt:
    """A vector that may be cut off, under the condition that its first lane runs."""
    cut, condition = _cut(stmt), _guard(stmt)
    if cut is None:
        return stmt
    return guarded(cut[0], arith.logical_and(condition or arith.ONE, cut[1]))
