"""The last iteration of a loop taken off, where only it must check bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce

from inlaid import arith
from inlaid.arith import Analyzer
from inlaid.tensor import ir
from inlaid.tensor.lower_blocks import truth
from inlaid.tensor.rewrite import Rewriter

Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]


def peel_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Loops whose last iteration alone can fail a condition, of a statement or a choice of values, run that iteration apart.

        for i in 8: for j in 14 unrolled: if 14*i + j < 100: ...
    becomes
        for i in 7: for j in 14 unrolled: ...
        for j in 14 unrolled: if 98 + j < 100: ...

    and, where the extent is not known,

        for i in (n + 13) // 14: for j in 14 unrolled: if 14*i + j < n: ...
    becomes
        for i in n // 14: for j in 14 unrolled: ...
        if n // 14 < (n + 13) // 14: for j in 14 unrolled: if 14*(n // 14) + j < n: ...

    so that the body of the loop, which is where the time goes, checks nothing. What a loop around others asks once in an iteration
    stays as it is. The program has no blocks.
    """
    return replace(program, body=_peel(program.body, {}))


def _peel(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    match stmt:
        case ir.For():
            return _loop(stmt, ranges)
        case ir.Seq(stmts=stmts):
            return ir.Seq(tuple(_peel(item, ranges) for item in stmts))
        case ir.Alloc(body=body) | ir.Let(body=body):
            return replace(stmt, body=_peel(body, ranges))
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            return ir.If(condition, _peel(then, ranges), None if otherwise is None else _peel(otherwise, ranges))
    return stmt


def _loop(loop: ir.For, ranges: Ranges) -> ir.Stmt:
    inside: Ranges = {**ranges, loop.var: (0, arith.unwrap(loop.extent - 1))}
    if loop.kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL):
        if not isinstance(loop.extent, arith.Const):
            return _symbolic_loop(loop, ranges) or replace(loop, body=_peel(loop.body, inside))
        if loop.extent.value > 1:
            last = loop.extent.value - 1
            most: Ranges = {**ranges, loop.var: (0, last - 1)}
            if any(_only_last(condition, inner, inside, most) for condition, inner in _often(loop)):
                main = _without(replace(loop, extent=arith.Const(last)), lambda part, inner: Analyzer(inner).prove(part), most)
                tail = Rewriter({loop.var: arith.Const(last)}).stmt(loop.body)
                return ir.Seq((_peel_body(main, most), _peel(tail, ranges)))
    return replace(loop, body=_peel(loop.body, inside))


def _often(loop: ir.For) -> list[tuple[arith.Expr, Ranges]]:
    """The conditions that are asked where a loop's time goes: what a loop around others asks once in an iteration costs less than
    its code twice."""
    nested = any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(loop.body))
    return [(condition, inner) for condition, inner in _conditions(loop, {}) if inner or not nested]


def _symbolic_loop(loop: ir.For, ranges: Ranges) -> ir.Stmt | None:
    """A loop over pieces of an unknown length, the last piece apart; None where no condition says that it is such a loop."""
    ends = dict.fromkeys(end for part, inner in _conditions(loop, {}) if (end := _pieces(loop, part, inner)) is not None)
    if not ends:
        return None
    # Limits that take as many pieces may leave different numbers of them whole.
    whole = reduce(arith.minimum, ends)
    main = _without(
        replace(loop, extent=whole), lambda part, inner: _pieces(loop, part, inner) is not None, {loop.var: (0, None), **ranges}
    )
    tail = Rewriter({loop.var: whole}).stmt(loop.body)
    most: Ranges = {**ranges, loop.var: (0, arith.unwrap(whole - 1))}
    return ir.Seq((_peel_body(main, most), ir.If(truth(arith.compare("<", whole, loop.extent)), _peel(tail, ranges))))


def _pieces(loop: ir.For, condition: arith.Expr, inner: Ranges) -> arith.Expr | None:
    """How many iterations of a loop of ceil(n / c) certainly fulfil `c * var + rest < n`, where 0 <= rest < c: floor(n / c)."""
    match condition:
        case arith.Compare(op="<", operands=(place, end)):
            found = arith.affine(place, loop.var)
            if found is None or not isinstance(found[0], arith.Const) or found[0].value < 1:
                return None
            piece = found[0].value
            low, high = Analyzer(inner).bounds(found[1])
            if low is None or high is None or low < 0 or high >= piece:
                return None
            if arith.simplify(arith.ceildiv(end, piece)) == arith.simplify(loop.extent):
                return arith.simplify(end // piece)
    return None


def _peel_body(loop: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    assert isinstance(loop, ir.For)
    return replace(loop, body=_peel(loop.body, ranges))


def _only_last(condition: arith.Expr, inner: Ranges, whole: Ranges, most: Ranges) -> bool:
    """Whether a condition may fail in the loop, but not before its last iteration."""
    return not Analyzer({**whole, **inner}).prove(condition) and Analyzer({**most, **inner}).prove(condition)


def _conditions(stmt: ir.Stmt, ranges: Ranges) -> Iterator[tuple[arith.Expr, Ranges]]:
    """The parts of the conditions of statements and choices that read the loop's variable, with the ranges of the loops inside."""
    stack: list[tuple[ir.Stmt, Ranges]] = [(stmt, ranges)]
    variable = stmt.var if isinstance(stmt, ir.For) else None
    while stack:
        node, known = stack.pop()
        if isinstance(node, ir.For) and node is not stmt:
            known = {**known, node.var: (0, arith.unwrap(node.extent - 1))}
        for condition in _asked(node):
            if isinstance(condition, ir.Index):
                yield from ((part, known) for part in _parts(condition.index) if variable in arith.free_vars(part))
        stack.extend((child, known) for child in ir.substatements(node))


def _asked(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """The conditions of a statement itself."""
    if isinstance(stmt, ir.If):
        yield stmt.condition
    elif isinstance(stmt, ir.Store):
        yield from (item.condition for item in ir.walk_exprs(stmt.value) if isinstance(item, ir.Select))


def _parts(condition: arith.Expr) -> Iterator[arith.Expr]:
    """The conditions that are joined by `and`."""
    if isinstance(condition, arith.And):
        for operand in condition.operands:
            yield from _parts(operand)
    else:
        yield condition


def _without(stmt: ir.Stmt, holds: Callable[[arith.Expr, Ranges], bool], ranges: Ranges) -> ir.Stmt:
    """The statement without the parts of conditions that hold throughout, given the ranges of the loops around each."""

    def left(condition: ir.Expr, inner: Ranges) -> ir.Expr | None:
        """What must still be asked of a condition; None for nothing."""
        if not isinstance(condition, ir.Index):
            return condition
        parts = [part for part in _parts(condition.index) if not holds(part, inner)]
        joined: arith.Expr = arith.ONE
        for part in parts:
            joined = arith.logical_and(joined, part)
        return ir.Index(condition.dtype, joined) if parts else None

    def chosen(node: ir.Expr, inner: Ranges) -> ir.Expr | None:
        if not isinstance(node, ir.Select):
            return None
        condition = left(node.condition, inner)
        return node.then if condition is None else ir.Select(node.dtype, condition, node.then, node.otherwise)

    def known(node: ir.Stmt, inner: Ranges) -> ir.Stmt:
        match node:
            case ir.For(var=var, extent=extent, body=body):
                limits = ranges[var] if var in ranges else (0, arith.unwrap(extent - 1))
                return replace(node, body=known(body, {**inner, var: limits}))
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(known(item, inner) for item in stmts))
            case ir.Alloc(body=body) | ir.Let(body=body) | ir.While(body=body):
                return replace(node, body=known(body, inner))
            case ir.Store():
                return Rewriter(expr=lambda value: chosen(value, inner)).stmt(node)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                then, rest = known(then, inner), left(condition, inner)
                if rest is None:
                    return then
                return ir.If(rest, then, None if otherwise is None else known(otherwise, inner))
        return node

    return known(stmt, dict(ranges))
