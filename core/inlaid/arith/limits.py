"""Symbolic bounds of expressions over variables with symbolic ranges."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.arith.analyzer import prove
from inlaid.arith.expr import (
    ONE,
    ZERO,
    Add,
    And,
    Compare,
    Dim,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    add,
    compare,
    floordiv,
    free_vars,
    maximum,
    minimum,
    mul,
    wrap,
)

Limits = tuple[Expr, Expr]


def limits(expr: Dim, ranges: Mapping[Expr, Limits]) -> Limits | None:
    """Return the lower and upper bound of an expression over the `ranges` of variables, inclusive but not necessarily attained. The
    bounds do not read these variables. None if no bound is found."""
    expr = wrap(expr)
    if expr in ranges:
        return ranges[expr]
    if ranges.keys().isdisjoint(free_vars(expr)):
        return expr, expr
    if isinstance(expr, (Compare, And, Or, Not)):
        return ZERO, ONE
    parts = [limits(operand, ranges) for operand in expr.operands[isinstance(expr, Select) :]]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    (low, high), (other_low, other_high) = parts[0], parts[1]
    match expr:
        case Add():
            return add(low, other_low), add(high, other_high)
        case Min():
            return minimum(low, other_low), minimum(high, other_high)
        case Max():
            return maximum(low, other_low), maximum(high, other_high)
        case Select():
            return minimum(low, other_low), maximum(high, other_high)
        case Mul() if other_low == other_high and prove(compare("<=", other_low, 0)):
            return mul(high, other_low), mul(low, other_low)
        case Mul() if other_low == other_high and prove(compare(">=", other_low, 0)):
            return mul(low, other_low), mul(high, other_low)
        case Mul() if prove(compare(">=", low, 0)) and prove(compare(">=", other_low, 0)):
            return mul(low, other_low), mul(high, other_high)
        case FloorDiv() if other_low == other_high and prove(compare(">", other_low, 0)):
            return floordiv(low, other_low), floordiv(high, other_low)
        case FloorMod() if prove(compare(">", other_low, 0)):
            return ZERO, add(other_high, -1)
    return None
