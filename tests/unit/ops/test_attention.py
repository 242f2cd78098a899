"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.arith import SizeVar

from .harness import Array, check_decomposition, normal, raises_for, tolerance

SETTINGS = settings(deadline=None, max_examples=30)


def heads(batch: int, queries: int, keys: int, length: int, context: int, dtype: str = "float32") -> list[Array]:
    """Queries, keys and values with heads of 3 and 2 elements."""
    return [
        normal((batch, queries, length, 3), dtype),
        normal((batch, keys, context, 3), dtype, 1),
        normal((batch, keys, context, 2), dtype, 2),
    ]


@SETTINGS
@given(
    st.sampled_from([(2, 2), (4, 2), (3, 1)]),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(("none", "bool", "float")),
    st.booleans(),
    st.integers(-1, 2),
    st.integers(-1, 2),
    st.sampled_from(("float64", "float32", "float16")),
)
def test_attention(
    counts: tuple[int, int], length: int, context: int, mask: str, padded: bool, left: int, right: int, dtype: str
) -> None:
    args = heads(2, *counts, length, context, dtype)
    if mask != "none":
        drawn = normal((2, 1, length, context), dtype, 3)
        args.append(drawn > -0.5 if mask == "bool" else drawn)
    if padded:
        args.append(np.array([context, context // 2]))
    attrs: dict[str, Any] = {"left": left, "right": right, "offset": 1, "masked": mask != "none", "padded": padded}
    check_decomposition(ops.attention, *args, scale=0.6, softcap=2.0, **attrs, **tolerance(dtype))


def test_causal_attention_of_one_key_is_its_value() -> None:
    q, k, v = heads(1, 1, 1, 3, 3)
    result = check_decomposition(ops.attention, q, k, v, scale=1.0, right=0, **tolerance("float32"))[0]
    np.testing.assert_allclose(result[0, 0, 0], v[0, 0, 0], rtol=1e-6)


def test_a_query_that_sees_nothing_gets_nothing() -> None:
    q, k, v = heads(1, 1, 1, 2, 3)
    mask = np.array([[True, False, True], [False, False, False]])
    result = check_decomposition(ops.attention, q, k, v, mask, scale=1.0, masked=True, **tolerance("float32"))[0]
    assert np.isfinite(result).all()
    assert (result[0, 0, 1] == 0).all()


def test_symbolic_lengths() -> None:
    b, n, m = SizeVar("b"), SizeVar("n"), SizeVar("m")
    q, k, v = heads(2, 4, 2, 3, 5)
    shapes = ((b, 4, n, 3), (b, 2, m, 3), (b, 2, m, 2))
    check_decomposition(ops.attention, q, k, v, shapes=shapes, scale=1.0, right=0, offset=m - n, **tolerance("float32"))


def test_attention_refuses() -> None:
    q, k, v = heads(1, 4, 3, 2, 2)
    raises_for(ops.attention, "the number of query heads must be a multiple of 3, got 4", q, k, v, scale=1.0)
    raises_for(ops.attention, "dimension 2 of the values must be 2, got 1", q[:, :3], k, v[:, :, :1], scale=1.0)
    raises_for(
        ops.attention,
        "dimension 0 of the mask must be 1 or 2 to broadcast, got 5",
        q[:, :3],
        k,
        v,
        normal((5, 2)),
        scale=1.0,
        masked=True,
    )
    raises_for(
        ops.attention,
        "dimension 0 of the mask must be 1 to broadcast, got 5",
        q[:, :3],
        k,
        v,
        normal((5, 1, 1, 1)),
        scale=1.0,
        masked=True,
    )
    raises_for(ops.attention, "masked and padded require 4 operands, got 3", q[:, :3], k, v, scale=1.0, masked=True)
