"""Conditions that divisors are not 0."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import ONE, Expr, SizeVar

N, M, POSITIVE = SizeVar("n"), SizeVar("m"), SizeVar("positive", 1)
SIZES = (N, M)


def conditions(numbers: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    compared = st.builds(arith.compare, st.sampled_from(["<", "<=", "==", "!="]), numbers, numbers)
    return st.one_of(
        compared,
        *(st.builds(combine, compared, compared) for combine in (arith.logical_and, arith.logical_or)),
        st.builds(arith.logical_not, compared),
    )


def combined(numbers: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = (arith.add, arith.mul, arith.floordiv, arith.floormod, arith.minimum, arith.maximum)
    return st.one_of(
        *(st.builds(pair, numbers, numbers) for pair in pairs),
        st.builds(arith.select, conditions(numbers), numbers, numbers),
    )


LEAVES = st.one_of(st.sampled_from(SIZES), st.integers(1, 3).map(arith.Const))
NUMBERS = st.recursive(LEAVES, combined, max_leaves=8)


def divides_by_zero(expr: Expr, sizes: dict[Expr, int]) -> bool:
    try:
        arith.evaluate(expr, sizes)
    except ZeroDivisionError:
        return True
    return False


@given(NUMBERS | conditions(NUMBERS))
def test_has_value_where_no_divisor_is_zero(expr: Expr) -> None:
    condition = arith.has_value(expr)
    for values in itertools.product(range(4), repeat=2):
        sizes = dict(zip(SIZES, values, strict=True))
        assert arith.evaluate(condition, sizes) == (not divides_by_zero(expr, sizes))


@given(conditions(NUMBERS))
def test_a_condition_with_a_value_is_false_where_it_was_undefined(condition: Expr) -> None:
    changed = arith.with_value(condition)
    for values in itertools.product(range(4), repeat=2):
        sizes = dict(zip(SIZES, values, strict=True))
        expected = 0 if divides_by_zero(condition, sizes) else arith.evaluate(condition, sizes)
        assert arith.evaluate(changed, sizes) == expected


@pytest.mark.parametrize("expr", [N + M, N // 4, N % POSITIVE, arith.select(arith.compare("<", 0, M), N, 3)])
def test_always_has_a_value(expr: Expr) -> None:
    assert arith.has_value(expr) is ONE


def test_a_condition_for_a_divisor_is_stated_once() -> None:
    least = arith.compare("<=", 2, N // M)
    once = arith.with_value(least)
    assert repr(once) == "((m != 0) and (2 <= (n // m)))"
    assert arith.with_value(once) is once
