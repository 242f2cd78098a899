"""The last iteration of a loop taken off, where only it must check bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlay import arith
from inlay.arith import Analyzer
from inlay.tensor import ir
from inlay.tensor.rewrite import Rewriter

Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]


def peel_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Loops whose last iteration alone can fail a condition run that iteration apart.

        for i in 8: for j in 14 unrolled: if 14*i + j < 100: ...
    becomes
        for i in 7: for j in 14 unrolled: ...
        for j in 14 unrolled: if 98 + j < 100: ...

    so that the body of the loop, which is where the time goes, checks nothing. The program has no blocks.
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
    if loop.kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL) and isinstance(loop.extent, arith.Const) and loop.extent.value > 1:
        last = loop.extent.value - 1
        most: Ranges = {**ranges, loop.var: (0, last - 1)}
        if any(_only_last(condition, inner, inside, most) for condition, inner in _conditions(loop, {})):
            main = _decided(replace(loop, extent=arith.Const(last)), most)
            tail = Rewriter({loop.var: arith.Const(last)}).stmt(loop.body)
            return ir.Seq((_peel_body(main, most), _peel(tail, ranges)))
    return replace(loop, body=_peel(loop.body, inside))


def _peel_body(loop: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    assert isinstance(loop, ir.For)
    return replace(loop, body=_peel(loop.body, ranges))


def _only_last(condition: arith.Expr, inner: Ranges, whole: Ranges, most: Ranges) -> bool:
    """Whether a condition may fail in the loop, but not before its last iteration."""
    return not Analyzer({**whole, **inner}).prove(condition) and Analyzer({**most, **inner}).prove(condition)


def _conditions(stmt: ir.Stmt, ranges: Ranges) -> Iterator[tuple[arith.Expr, Ranges]]:
    """The parts of the conditions of statements that read the loop's variable, with the ranges of the loops inside it."""
    stack: list[tuple[ir.Stmt, Ranges]] = [(stmt, ranges)]
    variable = stmt.var if isinstance(stmt, ir.For) else None
    while stack:
        node, known = stack.pop()
        if isinstance(node, ir.For) and node is not stmt:
            known = {**known, node.var: (0, arith.unwrap(node.extent - 1))}
        if isinstance(node, ir.If) and isinstance(node.condition, ir.Index):
            yield from ((part, known) for part in _parts(node.condition.index) if variable in arith.free_vars(part))
        stack.extend((child, known) for child in ir.substatements(node))


def _parts(condition: arith.Expr) -> Iterator[arith.Expr]:
    """The conditions that are joined by `and`."""
    if isinstance(condition, arith.And):
        for operand in condition.operands:
            yield from _parts(operand)
    else:
        yield condition


def _decided(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    """The statement without the conditions that hold throughout."""

    def known(node: ir.Stmt, inner: Ranges) -> ir.Stmt:
        match node:
            case ir.For(var=var, extent=extent, body=body):
                limits = ranges[var] if var in ranges else (0, arith.unwrap(extent - 1))
                return replace(node, body=known(body, {**inner, var: limits}))
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(known(item, inner) for item in stmts))
            case ir.Alloc(body=body) | ir.Let(body=body) | ir.While(body=body):
                return replace(node, body=known(body, inner))
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                then = known(then, inner)
                if isinstance(condition, ir.Index):
                    left = [part for part in _parts(condition.index) if not Analyzer(inner).prove(part)]
                    if not left:
                        return then
                    joined: arith.Expr = arith.ONE
                    for part in left:
                        joined = arith.logical_and(joined, part)
                    condition = ir.Index(condition.dtype, joined)
                return ir.If(condition, then, None if otherwise is None else known(otherwise, inner))
        return node

    return known(stmt, dict(ranges))
