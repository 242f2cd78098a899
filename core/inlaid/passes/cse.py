"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from inlaid.graph.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Tuple,
    TupleItem,
    children,
    introduced_sizes,
    post_order,
    rebuild,
)
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import Scope, Scopes, analyse
from inlaid_runtime.distinct import DistinctArrays


def share_common(target: Function) -> Function:
    """Share equal subexpressions.

    An expression is replaced by an equal expression of the same or an enclosing scope, never of a sibling scope: hoisting an
    expression out of two branches would compute it even if neither branch is taken. Two calls of an operator that introduces
    existential sizes are never equal, since each call has its own size names.
    """
    scopes = analyse(target)
    leaders = _leaders(_equal(target), scopes)
    if not leaders:
        return target
    replacements: dict[int, Expr] = {}
    pending = [target.body]
    while pending:
        expr = pending[-1]
        if id(expr) in replacements:
            pending.pop()
        elif id(expr) in leaders:
            leader = leaders[id(expr)]
            if id(leader) in replacements:
                replacements[id(expr)] = replacements[id(leader)]
            else:
                pending.append(leader)
        elif missing := [child for child in children(expr) if id(child) not in replacements]:
            pending += reversed(missing)
        else:
            replacements[id(expr)] = rebuild(expr, tuple(replacements[id(child)] for child in children(expr)))
    result = rebuild(target, (replacements[id(target.body)],))
    assert isinstance(result, Function)
    return result


def _equal(target: Function) -> list[list[Expr]]:
    """Group equal expressions. Returns only groups of two or more."""
    arrays = DistinctArrays()
    numbers: dict[Any, int] = {}
    value_numbers: dict[int, int] = {}
    members: dict[int, list[Expr]] = {}
    for expr in post_order(target):
        key = arrays.add(expr.data) if isinstance(expr, Constant) else _key(expr, value_numbers)
        number = value_numbers[id(expr)] = numbers.setdefault(key, len(numbers))
        members.setdefault(number, []).append(expr)
    return [group for group in members.values() if len(group) > 1]


def _key(expr: Expr, value_numbers: dict[int, int]) -> Any:
    """Return the value-numbering key of an expression, over its children's numbers; its id if no other expression equals it."""
    parts = tuple(value_numbers[id(child)] for child in children(expr))
    match expr:
        case GlobalVar(name=name):
            return "global", name
        case Call() if introduced_sizes(expr):
            return "itself", id(expr)
        case Call(callee=Operator() as operator, attrs=attrs):
            return operator, repr(attrs), parts  # compared as text, since 0.0 == -0.0
        case Call():
            return "call", parts
        case Tuple():
            return "tuple", parts
        case TupleItem(index=index):
            return "item", index, parts
        case If(constraints=constraints) if not introduced_sizes(expr):
            return "if", constraints, parts
    return "itself", id(expr)


def _leaders(groups: list[list[Expr]], scopes: Scopes) -> dict[int, Expr]:
    """Map the id of each replaced expression to its replacement."""
    leaders: dict[int, Expr] = {}
    for group in groups:
        if isinstance(group[0], (Constant, GlobalVar)):
            leaders.update((id(expr), group[0]) for expr in group[1:])
            continue
        first_by_scope: dict[Scope, Expr] = {}
        for expr in group:
            first_by_scope.setdefault(scopes.expr_scopes[id(expr)], expr)
        for expr in group:
            scope: Scope | None = scopes.expr_scopes[id(expr)]
            leader = expr
            while scope is not None:
                leader = first_by_scope.get(scope, leader)
                scope = scope.parent
            if leader is not expr:
                leaders[id(expr)] = leader
    return leaders
