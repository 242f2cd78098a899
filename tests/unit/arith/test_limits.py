"""Symbolic bounds of expressions."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, SizeVar, evaluate, limits

K, N = SizeVar("?k"), SizeVar("n")


@st.composite
def expressions(draw: Any, depth: int = 3) -> Expr:
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from((K, N, arith.wrap(draw(st.integers(-4, 9))))))  # type: ignore[no-any-return]
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    divisors = st.one_of(st.integers(1, 5), st.sampled_from((K, N)))
    match draw(st.integers(0, 5)):
        case 0:
            return arith.add(a, b)
        case 1:
            return arith.mul(a, b)
        case 2:
            return arith.floordiv(a, draw(divisors))
        case 3:
            return arith.floormod(a, draw(divisors))
        case 4:
            return arith.minimum(a, b)
        case _:
            return arith.select(arith.compare("<", a, b), arith.maximum(a, b), a)


@given(expressions(), st.integers(0, 9), st.integers(0, 9), st.data())
def test_values_lie_within(expr: Expr, n: int, margin: int, data: st.DataObject) -> None:
    bounds = limits(expr, {K: (arith.ZERO, N + margin)})
    if bounds is None:
        return
    assert K not in arith.free_vars(bounds[0]) | arith.free_vars(bounds[1])
    k = data.draw(st.integers(0, n + margin))
    # Limits of what divides by n divide by n as well.
    assume(evaluate(arith.has_value(expr), {K: k, N: n}))
    low, high = (evaluate(bound, {N: n}) for bound in bounds)
    assert low <= evaluate(expr, {K: k, N: n}) <= high


def test_a_factor_that_may_be_negative() -> None:
    """An image that is smaller than a window has a negative extent."""
    ranges = {K: (arith.ZERO, arith.wrap(9)), N: (arith.ZERO, arith.wrap(4))}
    assert limits((K - 2) * N * 64, ranges) == (arith.wrap(-512), arith.wrap(1792))


def test_a_quotient_is_bounded_where_it_has_a_value() -> None:
    """The divisor may be 0, but has no quotient then."""
    ranges = {K: (arith.ZERO, arith.wrap(N))}
    assert limits(SizeVar("m") // K, ranges) == (arith.ZERO, SizeVar("m"))
    bounds = limits(SizeVar("m") % K, ranges)
    assert bounds is not None
    assert [evaluate(bounds[1], {N: n}) for n in (0, 1, 5)] == [0, 0, 4]


def test_what_falls_is_greatest_at_the_least() -> None:
    low, high = limits(100 - K * 2, {K: (arith.ZERO, arith.wrap(N))}) or (None, None)
    assert low is not None
    assert (arith.simplify(low), high) == (arith.simplify(100 - N * 2), arith.wrap(100))


def test_terms_that_share_a_variable() -> None:
    """The last three of k columns, of n rows."""
    columns = K - arith.maximum(K - 3, 0)
    ranges = {K: (arith.ONE, arith.wrap(1024)), N: (arith.ONE, arith.wrap(8))}
    assert limits(columns, ranges) == (arith.ONE, arith.wrap(3))
    assert limits(arith.mul(N, columns), ranges) == (arith.ONE, arith.wrap(24))


def test_a_product_of_both_signs_has_constant_limits() -> None:
    ranges = {K: (arith.ZERO, arith.wrap(4)), N: (arith.ONE, arith.wrap(8))}
    assert limits(arith.mul(K - 3, N), ranges) == (arith.wrap(-24), arith.wrap(8))
