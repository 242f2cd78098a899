"""Loop-invariant code motion: compute loop-invariant expressions once, before the loop.

An expression is evaluated in the innermost scope that dominates all its uses. An expression outside of a loop that only the loop's
body uses, such as the encoder of a model whose decoder is a loop, is therefore evaluated in every iteration. A `Let` around the
loop keeps the expression outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlaid.graph.ir import Expr, Function, Let, Loop, Tuple, TupleItem, Var, children, let, post_order, rebuild, var
from inlaid.graph.scopes import Scope, Scopes, analyse, is_leaf
from inlaid.types import FunctionType


def bind_invariants(function: Function) -> Function:
    """Bind loop-invariant expressions by `Let`s around their loops. Returns the same object if there are none.

    Expressions inside a branch of the body stay there, since the branch may not be taken. A bound expression is computed even if
    the loop runs no iteration.
    """
    while True:
        found = _loops(analyse(function), function)
        if not found:
            return function
        # An expression hoisted out of an inner loop may be hoisted out of the enclosing loop next.
        function = _bound(function, found)


@dataclass
class _Found:
    """A loop, and the maximal invariant expressions of its body, in order."""

    loop: Loop
    invariants: list[Expr] = field(default_factory=list)


def _loops(scopes: Scopes, function: Function) -> list[_Found]:
    found = []
    for expr in post_order(function):
        if isinstance(expr, Loop) and isinstance(expr.body, Function) and scopes.uses[id(expr.body)] == 1:
            invariants = _invariants(expr.body, scopes)
            if invariants:
                found.append(_Found(expr, invariants))
    return found


def _invariants(body: Function, scopes: Scopes) -> list[Expr]:
    """Return the expressions of a loop body that do not depend on its parameters and are read by an expression that does."""
    home: Scope = scopes.body(body)
    varying = {id(param) for param in body.params}
    order = list(post_order(body.body))
    for expr in order:
        parts = (scopes.resolve(expr),) if isinstance(expr, Var) else children(expr)
        # Building a tuple is free, so only its fields may be worth hoisting.
        wiring = isinstance(expr, Tuple) and scopes.of[id(expr)] is home
        if wiring or any(id(part) in varying for part in parts):
            varying.add(id(expr))
    readers = [expr for expr in order if id(expr) in varying]
    read = [child for expr in readers for child in children(expr)] + [body.body]
    chosen = {id(child): child for child in read if id(child) not in varying and scopes.of.get(id(child)) is home}
    return [expr for expr in order if id(expr) in chosen and _computes(expr)]


def _computes(expr: Expr) -> bool:
    """Test whether evaluating an expression has a cost: it is neither a leaf nor a function."""
    while isinstance(expr, TupleItem):
        expr = expr.tuple
    return not (is_leaf(expr) or isinstance(expr, (Function, Let)) or isinstance(expr.type, FunctionType))


def _bound(function: Function, found: list[_Found]) -> Function:
    """Insert the `Let`s around the loops."""
    around = {id(item.loop): item for item in found}
    names: dict[int, Var] = {id(expr): var("held", expr.type, span=expr.span) for item in found for expr in item.invariants}
    values: dict[int, Expr] = {}
    done: dict[int, Expr] = {}
    for expr in post_order(function):
        new = rebuild(expr, tuple(done[id(child)] for child in children(expr)))
        if id(expr) in around:
            for inner in reversed(around[id(expr)].invariants):
                new = let(names[id(inner)], values[id(inner)], new, expr.span)
        if id(expr) in names:
            values[id(expr)], new = new, names[id(expr)]
        done[id(expr)] = new
    result = done[id(function)]
    assert isinstance(result, Function)
    return result
