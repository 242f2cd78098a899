"""Formulas give what walking an expression gives, and bounds hold for all sizes that are unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.sizes import Evaluated, Formula, evaluate_size

A, B = SizeVar("a"), SizeVar("b")
BINARY = (arith.add, arith.mul, arith.floordiv, arith.floormod, arith.minimum, arith.maximum)
EXPRESSIONS = st.recursive(
    st.sampled_from([A, B]) | st.integers(-3, 70).map(arith.Const),
    lambda inner: (
        st.builds(lambda operation, a, b: operation(a, b), st.sampled_from(BINARY), inner, inner)
        | st.builds(lambda a, b: arith.compare("<", a, b), inner, inner)
    ),
    max_leaves=12,
)


def outcome(function, *args):
    try:
        return function(*args)
    except InlaidError as error:
        return str(error)


@given(EXPRESSIONS, st.integers(0, 9), st.sampled_from([0, 1, 1 << 30]))
def test_formulas(expr, a, b):
    for sizes in ({A: a, B: b}, {A: a}, {}):
        assert outcome(Formula(expr).evaluate_size, sizes) == outcome(evaluate_size, expr, sizes)


@pytest.mark.parametrize("dim", [7, 0, A, A * B - 5])
def test_edges(dim):
    for sizes in ({A: 3, B: 4}, {A: 0, B: 4}, {B: 1}):
        assert outcome(Formula(dim).evaluate_size, sizes) == outcome(evaluate_size, dim, sizes)


COUNT = SizeVar("?count", 0, A)


@pytest.mark.parametrize(
    ("dim", "upper_bound"),
    [
        (COUNT * 2 + B, 14),
        (B - COUNT, 4),
        (B // COUNT, 4),
        (arith.select(arith.compare("==", COUNT, 1), B * 2, COUNT), 8),
        (arith.floormod(B, arith.maximum(COUNT, 1)), 4),
        (SizeVar("?pair", 0, COUNT + 1), 6),
        (SizeVar("?free"), None),
        (A + B, 9),
    ],
)
def test_bounds_of_sizes_that_a_kernel_computes(dim: Dim, upper_bound: int | None) -> None:
    """An expression may be greatest where its sizes are not."""
    assert Evaluated({A: 5, B: 4}).bounded(dim) == upper_bound
