"""Decomposition: operators that no target takes whole, in simpler ones."""

from __future__ import annotations

from collections.abc import Callable

from inlay.graph import ir
from inlay.graph.operator import Operator

DEPTH = 16
"""How often a decomposition may itself be decomposed; more is a cycle among definitions."""


def decompose(function: ir.Function, keep: Callable[[ir.Call], bool]) -> ir.Function:
    """The function without those operators that have a decomposition and that `keep` does not want.

    `keep(call)` says whether some target takes the operator whole. The same object comes back when there is nothing to do. Spans
    are those of the operator that was decomposed.
    """
    memo: dict[int, ir.Expr] = {}
    _rebuild(function, keep, memo, DEPTH)
    result = memo[id(function)]
    assert isinstance(result, ir.Function)
    return result


def _rebuild(root: ir.Expr, keep: Callable[[ir.Call], bool], memo: dict[int, ir.Expr], depth: int) -> ir.Expr:
    for expr in ir.post_order(root):
        if id(expr) in memo:
            continue
        new = ir.rebuild(expr, tuple(memo[id(child)] for child in ir.children(expr)))
        if isinstance(new, ir.Call) and isinstance(new.callee, Operator) and new.callee.decompose is not None and not keep(new):
            assert depth, f"the decomposition of {new.callee.name} does not end"
            simpler = new.callee.decompose(new.attrs, new.args)
            inner: dict[int, ir.Expr] = {id(arg): arg for arg in new.args}
            new = with_span(_rebuild(simpler, keep, inner, depth - 1), new.span, new.args)
        memo[id(expr)] = new
    return memo[id(root)]


def with_span(root: ir.Expr, span: ir.Span | None, stop: tuple[ir.Expr, ...]) -> ir.Expr:
    """The expression with a span on every call that has none, down to `stop`."""
    if span is None:
        return root
    memo: dict[int, ir.Expr] = {id(expr): expr for expr in stop}
    for expr in ir.post_order(root):
        if id(expr) in memo:
            continue
        new = ir.rebuild(expr, tuple(memo[id(child)] for child in ir.children(expr)))
        if isinstance(new, ir.Call) and new.span is None:
            new = ir.Call(new.type, span, new.callee, new.args, new.attrs)
        memo[id(expr)] = new
    return memo[id(root)]
