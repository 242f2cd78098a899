"""What every round of a loop would compute alike is computed once, before the loop.

A shared expression belongs to the innermost scope that encloses all its uses. What stands outside of a loop in the model, but is
used only by the loop's body, therefore belongs to the body, and would be computed in every round: the encoder of a model whose
decoder is a loop, for one. A binding around the loop keeps it outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlaid.graph.ir import Expr, Function, Let, Loop, Tuple, TupleItem, Var, children, let, post_order, rebuild, var
from inlaid.graph.scopes import Scope, Scopes, analyse, is_leaf
from inlaid.types import FunctionType


def bind_invariants(function: Function) -> Function:
    """The function with what does not depend on a loop's rounds bound around the loop; the same object where there is nothing.

    What stands in a branch of the body stays there, since it may not be wanted. What is bound is computed even where the loop runs
    no round at all.
    """
    while True:
        found = _loops(analyse(function), function)
        if not found:
            return function
        # What leaves an inner loop may leave the one around it in the next turn.
        function = _bound(function, found)


@dataclass
class _Found:
    """A loop, and the largest expressions of its body that are the same in every round, in order."""

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
    """The expressions that belong to the body, do not depend on its parameters, and are read by something that does."""
    home: Scope = scopes.body(body)
    varying = {id(param) for param in body.params}
    order = list(post_order(body.body))
    for expr in order:
        parts = (scopes.resolve(expr),) if isinstance(expr, Var) else children(expr)
        # A tuple is only put together: its fields are what may be computed.
        wiring = isinstance(expr, Tuple) and scopes.of[id(expr)] is home
        if wiring or any(id(part) in varying for part in parts):
            varying.add(id(expr))
    readers = [expr for expr in order if id(expr) in varying]
    read = [child for expr in readers for child in children(expr)] + [body.body]
    chosen = {id(child): child for child in read if id(child) not in varying and scopes.of.get(id(child)) is home}
    return [expr for expr in order if id(expr) in chosen and _computes(expr)]


def _computes(expr: Expr) -> bool:
    """Whether an expression is a value that takes work: not one that is only looked up, nor a function."""
    while isinstance(expr, TupleItem):
        expr = expr.tuple
    return not (is_leaf(expr) or isinstance(expr, (Function, Let)) or isinstance(expr.type, FunctionType))


def _bound(function: Function, found: list[_Found]) -> Function:
    """The function with bindings around loops."""
    around = {id(item.loop): item for item in found}
    names: dict[int, Var] = {id(expr): var("held", expr.type, expr.span) for item in found for expr in item.invariants}
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
