"""The sizes that cost models take symbolic dimensions to have."""

import pytest

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var, size_hint
from inlaid_runtime.arith.hints import LARGEST_SIZE, UNKNOWN_SIZE


def test_an_integer_is_its_own_hint():
    assert size_hint(7) == 7


def test_an_unbounded_size_has_one_hint_in_every_expression():
    n = SizeVar("n")
    assert size_hint(n) == UNKNOWN_SIZE
    assert size_hint(arith.unwrap(arith.ceildiv(n, 32) * 3)) == -(-UNKNOWN_SIZE // 32) * 3
    assert size_hint(arith.unwrap(arith.ceildiv(n, 32) * 3), arith.IMAGE_SIDE) == 7 * 3


@pytest.mark.parametrize(
    ("lower", "upper", "hint"), [(0, 16, 8), (0, 1, 1), (5, 6, 5), (0, 0, 0), (200, None, 200), (0, 1 << 20, LARGEST_SIZE)]
)
def test_a_bounded_size_is_taken_at_half_its_bound_and_within_it(lower, upper, hint):
    assert size_hint(SizeVar("n", lower, upper)) == hint


def test_a_size_that_another_bounds_follows_its_hint():
    assert size_hint(SizeVar("?count", 0, arith.unwrap(SizeVar("n") * 2))) == UNKNOWN_SIZE


def test_a_difference_that_cancels_has_an_element():
    n = SizeVar("n")
    assert size_hint(arith.unwrap(arith.minimum(n + 64, 64) - arith.minimum(n, 64))) == 1
    assert size_hint(arith.ZERO) == 0


def test_a_loop_variable_has_no_size():
    with pytest.raises(AssertionError, match="expected a symbolic dimension"):
        size_hint(Var("i"))
