"""Integer sets: the values of an expression over ranges of some variables, in terms of the other variables."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid_runtime.arith.analyzer import Analyzer
from inlaid_runtime.arith.expr import (
    ONE,
    ZERO,
    And,
    Compare,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Not,
    Opaque,
    Or,
    Select,
    free_vars,
    maximum,
    minimum,
)
from inlaid_runtime.arith.forms import Linear

Span = tuple[Expr, Expr]


def span(expr: Expr, ranges: Mapping[Expr, Span], analyzer: Analyzer | None = None) -> Span | None:
    """Return the smallest and largest value of an expression, inclusive, over the `ranges` of variables. A range may depend on
    other variables in `ranges`. None if no bound is known. The expression need not take every value in between.

    `analyzer` holds the bounds of all variables. Without it, only `ranges` are used.
    """
    if isinstance(expr, Const) or ranges.keys().isdisjoint(free_vars(expr)):
        return expr, expr
    analyzer = analyzer or Analyzer(ranges)
    return _form_span(analyzer.linear(expr), ranges, analyzer)


def _form_span(form: Linear, ranges: Mapping[Expr, Span], analyzer: Analyzer) -> Span | None:
    low: Expr = ZERO
    high: Expr = ZERO
    for atom, count in form.terms.items():
        ends = _atom_span(atom, ranges, analyzer)
        if ends is None:
            return None
        least, greatest = ends if count > 0 else (ends[1], ends[0])
        low, high = low + least * count, high + greatest * count
    return analyzer.simplify(low + form.constant), analyzer.simplify(high + form.constant)


def _atom_span(atom: Expr, ranges: Mapping[Expr, Span], analyzer: Analyzer) -> Span | None:
    limits = ranges.get(atom)
    if limits is not None:
        low, high = (span(limit, ranges, analyzer) for limit in limits)
        return None if low is None or high is None else (low[0], high[1])
    if ranges.keys().isdisjoint(free_vars(atom)):
        return atom, atom
    match atom:
        case Opaque(lower=lower, upper=upper):
            low, high = span(lower, ranges, analyzer), span(upper, ranges, analyzer)
            return None if low is None or high is None else (low[0], high[1])
        case Compare() | And() | Or() | Not():
            return ZERO, ONE
        case FloorDiv(operands=(a, Const(value=divisor))) if divisor > 0:
            inner = span(a, ranges, analyzer)
            return None if inner is None else (inner[0] // divisor, inner[1] // divisor)
        case FloorMod(operands=(_, Const(value=divisor))) if divisor > 0:
            return ZERO, Const(divisor - 1)
        case Min(operands=(a, b)) | Max(operands=(a, b)):
            first, second = span(a, ranges, analyzer), span(b, ranges, analyzer)
            choose = minimum if isinstance(atom, Min) else maximum
            return None if first is None or second is None else (choose(first[0], second[0]), choose(first[1], second[1]))
        case Select(operands=(_, a, b)):
            first, second = span(a, ranges, analyzer), span(b, ranges, analyzer)
            return None if first is None or second is None else (minimum(first[0], second[0]), maximum(first[1], second[1]))
        case Mul(operands=(a, b)):
            for factor, other in ((a, b), (b, a)):
                least = analyzer.bounds(factor)[0]
                if ranges.keys().isdisjoint(free_vars(factor)) and least is not None and least >= 0:
                    inner = span(other, ranges, analyzer)
                    return None if inner is None else (inner[0] * factor, inner[1] * factor)
    least, greatest = analyzer.bounds(atom)
    return None if least is None or greatest is None else (Const(least), Const(greatest))
