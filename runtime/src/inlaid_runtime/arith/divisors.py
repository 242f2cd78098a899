"""Conditions that divisors are not 0.

`Evaluation` raises ZeroDivisionError for x // 0, so a condition with such a term does not hold. Generated code computes some number
for x // 0, so the same condition might hold there. These conditions make both agree.
"""

from __future__ import annotations

from inlaid_runtime.arith.analyzer import prove
from inlaid_runtime.arith.expr import (
    ONE,
    And,
    Dim,
    Expr,
    FloorDiv,
    FloorMod,
    Or,
    Select,
    compare,
    logical_and,
    logical_not,
    logical_or,
    post_order,
    select,
    wrap,
)


def has_value(expr: Dim) -> Expr:
    """Return the condition that an expression has a value: each divisor that its evaluation needs is not 0 (see `Evaluation`)."""
    order = post_order(wrap(expr))
    if not any(isinstance(node, (FloorDiv, FloorMod)) for node in order):
        return ONE
    conditions: dict[int, Expr] = {}
    for node in order:
        parts = [conditions[id(operand)] for operand in node.operands]
        if all(part is ONE for part in parts) and not isinstance(node, (FloorDiv, FloorMod)):
            conditions[id(node)] = ONE
            continue
        match node:
            case FloorDiv(operands=(_, divisor)) | FloorMod(operands=(_, divisor)):
                nonzero = compare("!=", divisor, 0)
                parts.append(ONE if prove(nonzero) else nonzero)
                conditions[id(node)] = _conjunction(parts)
            case And(operands=(first, _)):
                conditions[id(node)] = _conjunction([parts[0], _if(first, parts[1])])
            case Or(operands=(first, _)):
                conditions[id(node)] = _conjunction([parts[0], logical_or(first, parts[1])])
            case Select(operands=(condition, _, _)):
                conditions[id(node)] = _conjunction([parts[0], select(condition, parts[1], parts[2])])
            case _:
                conditions[id(node)] = _conjunction(parts)
    return conditions[id(order[-1])]


def with_value(condition: Dim) -> Dim:
    """Return a condition that is false, instead of undefined, where a divisor is 0."""
    if isinstance(condition, int):
        return condition
    defined = has_value(condition)
    return condition if defined is ONE else logical_and(defined, condition)


def _if(condition: Expr, conclusion: Expr) -> Expr:
    """Return the condition that one condition implies another."""
    if _conjuncts(conclusion) <= _conjuncts(condition):
        return ONE
    return logical_or(logical_not(condition), conclusion)


def _conjuncts(condition: Expr) -> frozenset[Expr]:
    return frozenset(node for node in post_order(condition, below=_and_operands) if not isinstance(node, And))


def _and_operands(node: Expr) -> tuple[Expr, ...]:
    return node.operands if isinstance(node, And) else ()


def _conjunction(conditions: list[Expr]) -> Expr:
    result: Expr = ONE
    for condition in conditions:
        if not _conjuncts(condition) <= _conjuncts(result):
            result = logical_and(result, condition)
    return result
