"""Products with real factors in integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.ops.fixed_point import ROUNDINGS, fixed_point, fixed_points, reduced

from .generate import agree

INT32 = np.iinfo(np.int32)


def exact(x: int, multiplier: int, shift: int, rounding: str) -> int:
    """The definition, in fractions."""
    if rounding == "once":
        quotient = math.floor(Fraction(x * multiplier, 2 ** (31 - shift)) + Fraction(1, 2))
        return (quotient + 2**31) % 2**32 - 2**31
    if rounding == "once_away":
        real = Fraction(x * multiplier, 2 ** (31 - shift))
        quotient = math.floor(abs(real) + Fraction(1, 2)) * (-1 if real < 0 else 1)
        return (quotient + 2**31) % 2**32 - 2**31
    wrapped = (x * 2 ** max(shift, 0) + 2**31) % 2**32 - 2**31
    high = math.floor(Fraction(wrapped * multiplier, 2**31) + Fraction(1, 2))
    last = Fraction(high, 2 ** max(-shift, 0))
    if rounding == "up":
        return math.floor(last + Fraction(1, 2))
    return int(math.copysign(1, last)) * math.floor(abs(last) + Fraction(1, 2))


@settings(max_examples=200, deadline=None)
@given(st.integers(INT32.min, INT32.max), st.floats(2.0**-30, 2.0**8), st.sampled_from(ROUNDINGS))
def test_one_product(x: int, factor: float, rounding: str) -> None:
    multiplier, shift = fixed_point(factor)
    attrs = ops.multiply_fixed.attrs(rounding=rounding)
    (actual,) = ops.multiply_fixed.reference(attrs, *(np.array([v], np.int32) for v in (x, multiplier, shift)))
    assert actual == exact(x, multiplier, shift, rounding)


@settings(max_examples=100, deadline=None)
@given(st.floats(2.0**-28, 2.0**20))
def test_a_factor_is_kept_to_31_bits(factor: float) -> None:
    multiplier, shift = fixed_point(factor)
    assert 2**30 <= multiplier < 2**31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) / Fraction(factor) - 1) <= Fraction(1, 2**31)


def test_factors_that_are_no_more_than_nothing() -> None:
    assert fixed_point(0.0) == (0, 0) and fixed_point(2.0**-40) == (0, 0)
    assert fixed_point(1 - 2.0**-40) == (2**30, 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.sampled_from([(), (5,), (2, 3), (3, 0), (2, 3, 4)]), st.booleans(), st.sampled_from(ROUNDINGS))
def test_the_operator(seed: int, shape: tuple[int, ...], several: bool, rounding: str) -> None:
    generator = np.random.default_rng(seed)
    x = generator.integers(INT32.min, INT32.max, shape, np.int32, endpoint=True)
    axis = int(generator.integers(0, len(shape))) if shape else 0
    count = shape[axis] if several and shape else None
    factors = np.exp2(generator.uniform(-20, 3, count or 1))
    multiplier, shift = fixed_points([float(factor) for factor in factors]) if count != 0 else (np.zeros(0, np.int32),) * 2
    if count is None:
        multiplier, shift = multiplier.reshape(()), shift.reshape(())
    agree(ops.multiply_fixed, x, multiplier, shift, axis=axis, rounding=rounding)


@pytest.mark.parametrize(
    ("rounding", "results"), [("once", [-2, -1, -1, 0, 1, 2, 2, 3]), ("once_away", [-3, -2, -1, 0, 1, 2, 2, 3])]
)
def test_single_roundings_differ_at_negative_ties(rounding: str, results: list[int]) -> None:
    x = np.array([-5, -3, -2, 0, 1, 3, 4, 5], np.int32)  # times 1/2
    for dtype in (np.int32, np.int64):
        actual = agree(ops.multiply_fixed, x.astype(dtype), np.array(1 << 30, np.int32), np.array(0, np.int32), rounding=rounding)
        assert actual.tolist() == results


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((2, 3), np.int32)
    with pytest.raises(Exception, match="dimension 0 of the multiplier must be 3, got 2"):
        agree(ops.multiply_fixed, x, np.zeros(2, np.int32), np.zeros(2, np.int32), axis=1)
    with pytest.raises(Exception, match="x must be int32, or int64 with rounding once or once_away, got int64 with rounding"):
        agree(ops.multiply_fixed, x.astype(np.int64), np.zeros((), np.int32), np.zeros((), np.int32))
    with pytest.raises(Exception, match="the shift must be int32"):
        agree(ops.multiply_fixed, x, np.zeros((), np.int32), np.zeros((), np.int64))


def test_wide_sums_take_reduced_multipliers() -> None:
    x = np.array([[-(2**46), 2**46 - 1, 3, -3]], np.int64)
    (multiplier,), (shift,) = reduced(*fixed_points([0.7 * 2.0**-20]))
    actual = agree(ops.multiply_fixed, x, np.array(multiplier), np.array(shift), rounding="once")
    assert multiplier < 2**15 and reduced(*fixed_points([1 - 2.0**-20]))[0] == 2**15 - 1
    expected = [math.floor(Fraction(int(value) * int(multiplier), 2 ** (31 - int(shift))) + Fraction(1, 2)) for value in x[0]]
    np.testing.assert_array_equal(actual[0], expected)
