"""Dimensions of types are in canonical form."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.ir import constant, var
from inlaid_runtime.arith import SizeVar, evaluate, walk
from inlaid_runtime.arith.expr import wrap
from inlaid_runtime.types import TensorType

N, M = SizeVar("n"), SizeVar("m")


def test_equal_extents_are_equal_types() -> None:
    assert TensorType(((N + 1) + 1 + -2, N - N + 3), "float32") == TensorType((N, 3), "float32")
    assert TensorType((N + (M - N),), "float32").shape == (M,)


def test_an_extent_may_be_an_integer_of_numpy() -> None:
    assert [type(dim) for dim in TensorType((np.int64(2), np.uint8(3)), "float32").shape] == [int, int]


def test_extents_stay_short_along_a_chain_of_windows() -> None:
    """Each convolution computes its extents from those of its input; written out, sixty would have millions of nodes."""
    x = var("x", TensorType((1, 2, N, M), "float32"))
    weights = constant([[[[0.0] * 3] * 3] * 2] * 2, "float32")
    for number in range(60):
        y = ops.conv(x, weights, pads=(1, 1, 1, 1), strides=(1 + (number % 20 == 0), 1))
        x = ops.add(y, ops.relu(y))
    assert isinstance(x.type, TensorType)
    assert all(len(list(walk(wrap(dim)))) <= 12 for dim in x.type.shape)


@given(st.lists(st.sampled_from(["+1", "-1", "*2", "//2", "+m", "-m", "%7"]), max_size=8), st.integers(0, 40), st.integers(0, 40))
def test_canonical_extents_have_the_same_value(steps: list[str], n: int, m: int) -> None:
    dim = wrap(N)
    for step in steps:
        dim = eval(f"dim {step}", {"dim": dim, "m": M})
    (extent,) = TensorType((dim,), "float32").shape
    assert evaluate(extent, {N: n, M: m}) == evaluate(dim, {N: n, M: m})
