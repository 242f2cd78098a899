"""Symbolic bounds of expressions over variables with symbolic ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from inlaid_runtime.arith.analyzer import Analyzer
from inlaid_runtime.arith.expr import (
    ONE,
    ZERO,
    Add,
    And,
    Compare,
    Const,
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
    post_order,
    unwrap,
    wrap,
)
from inlaid_runtime.arith.interval import Interval

Limits = tuple[Expr, Expr]


def limits(expr: Dim, ranges: Mapping[Expr, Limits]) -> Limits | None:
    """Return the lower and upper bound of an expression over the `ranges` of variables, inclusive but not necessarily attained. The
    bounds do not read these variables, and hold where the expression has a value. None if no bound is found."""
    expr = wrap(expr)
    variables = ranges.keys()

    def below(node: Expr) -> tuple[Expr, ...]:
        return () if node in ranges or variables.isdisjoint(free_vars(node)) else node.operands[isinstance(node, Select) :]

    analyzer, bounded = Analyzer(), Analyzer(ranges)
    limits_by_node: dict[int, Limits | None] = {}
    for node in post_order(expr, below=below):
        if node in ranges:
            limits_by_node[id(node)] = ranges[node]
        elif variables.isdisjoint(free_vars(node)):
            limits_by_node[id(node)] = node, node
        else:
            result = _limits(node, [limits_by_node[id(operand)] for operand in below(node)], analyzer)
            if result is None or isinstance(node, Add):
                result = _intersected(result, bounded.bounds(node))
            limits_by_node[id(node)] = result
    return limits_by_node[id(expr)]


def _intersected(symbolic: Limits | None, interval: Interval) -> Limits | None:
    """Return limits that also respect an interval. The limits of a sum ignore that its terms share variables: n - max(n - 3, 0) is
    at most 3, but gets the upper bound of n. Symbolic limits are kept, since they may be tighter."""
    lower, upper = interval
    if symbolic is None:
        return None if lower is None or upper is None else (Const(lower), Const(upper))
    low, high = symbolic
    if lower is not None and isinstance(low, Const):
        low = maximum(low, lower)
    if upper is not None and isinstance(high, Const):
        high = minimum(high, upper)
    return low, high


def _limits(node: Expr, parts: Sequence[Limits | None], analyzer: Analyzer) -> Limits | None:
    """Return the limits of a node, given those of its operands (without the condition of a `Select`)."""
    if isinstance(node, (Compare, And, Or, Not)):
        return ZERO, ONE
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    prove = analyzer.prove
    (low, high), (other_low, other_high) = parts[0], parts[1]
    match node:
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
        case Mul():
            ends = [unwrap(end) for end in (low, high, other_low, other_high)]
            if all(isinstance(end, int) for end in ends):
                corners = [mul(end, other) for end in (low, high) for other in (other_low, other_high)]
                return reduce(minimum, corners), reduce(maximum, corners)
        case FloorDiv() if other_low == other_high and prove(compare(">", other_low, 0)):
            return floordiv(low, other_low), floordiv(high, other_low)
        case FloorDiv() if prove(compare(">=", low, 0)) and prove(compare(">=", other_low, 0)):
            return ZERO, floordiv(high, maximum(other_low, 1))
        case FloorMod() if prove(compare(">=", other_low, 0)):
            return ZERO, maximum(add(other_high, -1), 0)
    return None
