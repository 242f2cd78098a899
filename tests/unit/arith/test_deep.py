"""Canonical forms and bounds of deep expressions, which their nodes store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import Analyzer, Expr, SizeVar, Var

N, M = SizeVar("n", 1), SizeVar("m", 0, 7)


def chain(steps: list[tuple[int, int]], start: Expr) -> Expr:
    """A deep expression that is not simplified on the way."""
    expr = start
    for kind, number in steps:
        match kind:
            case 0:
                expr = (expr + number) // (number + 2) * (number + 2)
            case 1:
                expr = arith.maximum(expr - number, number * M + 1)
            case 2:
                expr = expr * 2 - expr % (number + 2)
            case _:
                expr = arith.select(arith.compare("<", expr, 1000), expr + M, expr // 2)
    return expr


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=15, max_size=60)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, n=st.integers(1, 40), m=st.integers(0, 7))
def test_values_and_bounds(steps, n, m) -> None:
    sizes = {N: n, M: m}
    expr = chain(steps, N)
    value = arith.evaluate(expr, sizes)
    simple = arith.simplify(expr)
    assert arith.evaluate(simple, sizes) == value
    # The stored forms give the same result to the next analyzer, in expressions that contain them, and under bounds.
    assert arith.simplify(simple) == simple
    assert arith.evaluate(arith.simplify((simple + 3) // 2 + M), sizes) == (value + 3) // 2 + m
    assert Analyzer().equal(simple + 1, arith.simplify(expr) + 1)
    i = Var("i")
    inside = Analyzer({i: (0, simple - 1)})
    assert arith.evaluate(inside.simplify(i * 2 + simple), {**sizes, i: 5}) == 10 + value
    for low, high in (arith.bounds(simple), inside.bounds(simple), arith.bounds(expr, {N: (n, n)})):
        assert (low is None or low <= value) and (high is None or value <= high)


def test_bounds_of_one_analyzer_are_not_stored() -> None:
    """What is true for small sizes alone is not kept in the nodes."""
    expr = chain([(0, number % 5) for number in range(40)], N)
    assert arith.levels(expr) > 100
    small = arith.simplify(arith.minimum(expr, 10_000), {N: (1, 4)})
    assert arith.bounds(small, {N: (1, 4)})[1] is not None
    assert arith.bounds(arith.minimum(expr, 10_000))[1] == 10_000
    assert not arith.prove(arith.compare("<", expr, 9_000))


@pytest.mark.parametrize("steps", [200, 3000])
def test_a_chain_is_analyzed_once(steps) -> None:
    """Each size contains the one before, as along a chain of operators."""
    size: Expr = N
    for number in range(steps):
        size = arith.simplify(arith.minimum(size // 2 + number, size + M) * (2 + number % 2))
    assert arith.levels(size) > steps
    assert arith.evaluate(size, {N: 3, M: 1}) >= 0
