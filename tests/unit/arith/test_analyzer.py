"""Simplification and bounds against brute-force evaluation, and the foldings that schedules rely on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import Analyzer, Const, Expr, SizeVar, Var, affine, bounds, linear, prove, simplify, span

X, Y, Z = Var("x"), Var("y"), Var("z")
N = SizeVar("n", 1)

leaves = st.one_of(st.sampled_from([X, Y, Z]), st.integers(-20, 20).map(Const))
divisors = st.integers(1, 12)


def conditions(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    compared = st.builds(arith.compare, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), inner, inner)
    return st.one_of(
        compared,
        st.builds(arith.logical_and, compared, compared),
        st.builds(arith.logical_or, compared, compared),
        st.builds(arith.logical_not, compared),
    )


def deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(arith.add, inner, inner),
        st.builds(arith.add, inner, inner),
        st.builds(arith.mul, inner, st.integers(-9, 9)),
        st.builds(arith.mul, inner, inner),
        st.builds(arith.floordiv, inner, divisors),
        st.builds(arith.floormod, inner, divisors),
        st.builds(arith.minimum, inner, inner),
        st.builds(arith.maximum, inner, inner),
        st.builds(arith.select, conditions(inner), inner, inner),
        conditions(inner),
    )


exprs = st.recursive(leaves, deeper, max_leaves=8)
ranges = st.tuples(st.integers(-6, 6), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=300, deadline=None)
@given(exprs, ranges, ranges, ranges)
def test_simplified_expression_and_bounds_agree_with_evaluation(
    expr: Expr, i: tuple[int, int], j: tuple[int, int], k: tuple[int, int]
) -> None:
    analyzer = Analyzer({X: i, Y: j, Z: k})
    simple = analyzer.simplify(expr)
    low, high = analyzer.bounds(expr)
    free = simplify(expr)
    for values in itertools.product(*(range(low_, high_ + 1) for low_, high_ in (i, j, k))):
        env: dict[Expr, int] = dict(zip((X, Y, Z), values, strict=True))
        expected = arith.evaluate(expr, env)
        assert arith.evaluate(simple, env) == expected
        assert arith.evaluate(free, env) == expected
        assert low is None or low <= expected
        assert high is None or expected <= high


@settings(max_examples=100, deadline=None)
@given(exprs, ranges, ranges)
def test_inner_bounds_replace_outer_ones(expr: Expr, i: tuple[int, int], j: tuple[int, int]) -> None:
    """What an analyzer around has worked out holds inside, but for variables that have other bounds there."""
    around = Analyzer({X: (0, 1), Y: (0, 1), Z: (-2, 3)})
    around.simplify(expr)
    inside = around.inside({X: i}).inside({Y: j})
    alone = Analyzer({X: i, Y: j, Z: (-2, 3)})
    assert inside.bounds(expr) == alone.bounds(expr)
    simple = inside.simplify(expr)
    for x, y, z in itertools.product(range(i[0], i[1] + 1), range(j[0], j[1] + 1), range(-2, 4)):
        env: dict[Expr, int] = {X: x, Y: y, Z: z}
        assert arith.evaluate(simple, env) == arith.evaluate(expr, env)


def test_what_inner_bounds_do_not_change_is_worked_out_once() -> None:
    around = Analyzer({X: (0, 3)})
    expr = (X + N * 4) // 4
    assert around.inside({Y: (0, 1)}).linear(expr) is around.linear(expr)
    assert around.inside({X: (0, 7)}).linear(expr) is not around.linear(expr)


@settings(max_examples=50, deadline=None)
@given(exprs)
def test_bounds_of_bounded_variables_are_finite(expr: Expr) -> None:
    low, high = bounds(expr, {X: (0, 3), Y: (-2, 2), Z: (1, 9)})
    assert low is not None and high is not None


@settings(max_examples=50, deadline=None)
@given(exprs)
def test_simplify_is_stable(expr: Expr) -> None:
    analyzer = Analyzer({X: (0, 3), Y: (-2, 2), Z: (1, 9)})
    once = analyzer.simplify(expr)
    assert analyzer.equal(once, expr)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ((X * 4 + Y) // 4, X),
        ((X * 4 + Y) % 4, Y),
        ((X * 4 + Y) // 8, X // 2),
        ((X * 4 + Y) % 8, Y + X % 2 * 4),
        (Z // 16 * 16 + Z % 16, Z),
        (Z // 4 % 8 * 4 + Z % 4, Z % 32),
        (Z // 4 // 8, Z // 32),
        (X - X, Const(0)),
        (arith.compare("<", X * 4 + Y, 40), Const(1)),
        (arith.compare("<", X * 4, 10), arith.compare("<", X, 3)),
        (arith.compare("==", X * 4, 10), Const(0)),
        (arith.minimum(X * 4 + 4, 44), X * 4 + 4),
        (arith.minimum(X, X + 3) - X, Const(0)),
        ((X + 1) * N - X * N, N),
        ((X * N + N) // N, X + 1),
        ((X * N) % N, Const(0)),
    ],
)
def test_folding(expr: Expr, expected: Expr) -> None:
    simple = simplify(expr, {X: (0, 9), Y: (0, 3), Z: (0, 999)})
    assert simple == expected, f"{simple!r}"


@settings(max_examples=100, deadline=None)
@given(exprs, st.integers(-3, 3), st.integers(0, 4), st.integers(1, 4))
def test_span_holds_every_value(expr: Expr, start: int, length: int, other: int) -> None:
    interval = span(expr, {Y: (X + start, X + (start + length)), Z: (Const(0), Const(other))})
    if interval is None:
        return
    for x in range(-2, 3):
        low, high = (arith.evaluate(end, {X: x}) for end in interval)
        for y, z in itertools.product(range(x + start, x + start + length + 1), range(other + 1)):
            assert low <= arith.evaluate(expr, {X: x, Y: y, Z: z}) <= high


def test_span_of_a_tile() -> None:
    interval = span(X * 8 + Y * 2 + Z, {Y: (Const(0), Const(3)), Z: (Const(0), Const(2))})
    assert interval == (X * 8, X * 8 + 8)


def test_symbolic_bounds_cancel() -> None:
    bounds = {X: (0, N - 1), Y: (0, 3)}
    assert prove(arith.compare("<", X, N), bounds)
    assert prove(arith.compare("<", X * 4 + Y, N * 4), bounds)
    assert not prove(arith.compare("<", X * 4 + Y, N * 4 - 1), bounds)
    assert simplify((X + Y * N) // N, bounds) == Y
    assert simplify((X + Y * N) % N, bounds) == X


def test_rounding_up_covers() -> None:
    tiles = arith.ceildiv(N, 4)
    assert prove(arith.compare("<=", N, tiles * 4))
    assert prove(arith.compare("<", tiles * 4, N + 4))
    assert not prove(arith.compare("<", tiles * 4, N + 3))


def test_the_rest_of_a_tile_is_at_most_the_tile() -> None:
    assert bounds(arith.minimum(X * 4 + 4, N) - X * 4)[1] == 4
    assert bounds(arith.minimum(X * 4 + 4, 37) - X * 4, {X: (0, 9)}) == (1, 4)


def test_one_trip_loops_fold() -> None:
    assert simplify(X * 8 + Y, {X: (0, 0)}) == Y


def test_linear_collects_terms() -> None:
    form = linear(X * 3 + Y - X + 5 + (Z // 2) * 7)
    assert dict(form.terms) == {X: 2, Y: 1, Z // 2: 7}
    assert form.constant == 5


def test_affine_gives_strides() -> None:
    assert affine(X * 8 + Y, X) == (Const(8), Y)
    assert affine(X * N + Y * N * 2, Y) == (N * 2, X * N)
    assert affine(X // 2 + Y, X) is None
    assert affine(X * X, X) is None
    assert affine(Y, X) == (Const(0), Y)


def test_long_sums_take_linear_time() -> None:
    total: Expr = Const(0)
    for _ in range(5000):
        total = total + X * 2 - Y
    assert simplify(total) == X * 10000 + Y * -5000


def test_many_minima_take_bounded_time() -> None:
    variables = [Var(f"v{index}") for index in range(40)]
    total: Expr = Const(0)
    for a, b in itertools.pairwise(variables):
        total = total + arith.minimum(a, b) - arith.maximum(a, b)
    assert bounds(total, dict.fromkeys(variables, (0, 1))) == (-39, 38)


def test_comparison_forgets_what_is_too_small_to_matter():
    a, b = Var("a"), Var("b")
    ranges = {a: (0, 9), b: (0, 15)}
    assert simplify(arith.compare("<", a * 16 + b, 64), ranges) == arith.compare("<", a, 4)
    assert simplify(arith.compare("<", a * 16 + b, 65), ranges) != arith.compare("<", a, 4)
    assert simplify(arith.compare("<=", 64, a * 16 + b), ranges) == arith.compare("<", 3, a)


def test_choices_that_a_value_of_a_variable_makes_needless() -> None:
    assert simplify(arith.select(arith.compare("==", X, 1), arith.minimum(X, 512), X)) == X
    assert simplify(arith.select(arith.compare("==", X, 1), X * Y, Y)) == Y
    choice = arith.select(arith.compare("==", X, 2), X * Y, Y)
    assert simplify(choice) == choice


def test_digits_join_to_a_remainder() -> None:
    """As quotients of a remainder or as remainders of a quotient."""
    n = arith.Var("n")
    remainder = arith.simplify((n % 6) * 16)
    assert arith.simplify((n % 6 // 3) * 48 + (n % 3) * 16) == remainder
    assert arith.simplify((n // 3 % 2) * 48 + (n % 3) * 16) == remainder
    apart = (n % 7 // 3) * 3 + n % 3
    for value in range(30):
        assert arith.evaluate(arith.simplify(apart), {n: value}) == arith.evaluate(apart, {n: value})
