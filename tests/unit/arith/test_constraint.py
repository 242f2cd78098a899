"""Constraints on symbolic sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlaid_runtime.arith import SizeVar, at_least, equals, suggested_size

N, M = SizeVar("n", 1), SizeVar("m")


def test_words() -> None:
    constraint = at_least((N - 5) // 2 + 1, 1, "dimension 2")
    assert constraint.holds({N: 5}) is True
    assert constraint.holds({N: 4}) is False
    assert constraint.holds({}) is None
    assert constraint.message({N: 4, M: 7}) == "dimension 2 must be >= 1, got 0 where n is 4"
    assert equals(N, M, "dimension n").message({N: 4, M: 7}) == "dimension n must be m, got 4 where m is 7, n is 4"
    assert equals(3, 4, "k").message({}) == "k must be 4, got 3"


def test_a_division_by_zero_is_no_size() -> None:
    constraint = at_least(8 // N, 1, "parts")
    assert constraint.holds({N: 0}) is False
    assert "parts must be >= 1" in constraint.message({N: 0})


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 12))
def test_suggested_sizes_hold(n: int, m: int, kernel: int) -> None:
    constraints = (at_least(N - kernel, 1, "one"), equals(M, N, "other"))
    sizes = {N: n, M: m}

    def hold(variable: SizeVar, size: int) -> bool:
        return all(item.holds({**sizes, variable: size}) for item in constraints)

    suggestion = suggested_size(constraints, sizes)
    if all(item.holds(sizes) for item in constraints):
        assert suggestion is None
    elif suggestion is not None and hold(*suggestion):
        variable, size = suggestion
        assert not any(hold(variable, less) for less in range(variable.lower, size))
    else:
        assert not any(hold(variable, size) for variable in (N, M) for size in range(variable.lower, 50))
        broken = next(item for item in constraints if not item.holds(sizes))
        assert suggestion is None or broken.holds({**sizes, suggestion[0]: suggestion[1]})


def test_a_size_that_mends_the_first_of_several_is_suggested() -> None:
    assert suggested_size((at_least(N // 2, 1, "one"), at_least(M // 3, 1, "other")), {N: 1, M: 1}) == (N, 2)


def test_a_size_that_divides_by_zero_is_not_suggested() -> None:
    assert suggested_size((at_least(N // M, 1, "parts"),), {N: 3, M: 0}) == (M, 1)
    assert suggested_size((at_least(4 // N, 3, "parts"),), {N: 0}) == (N, 1)
    assert suggested_size((at_least(N // M, 1, "parts"), at_least(N, 4, "n")), {N: 0, M: 0}) is None
