"""Linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.arith import SizeVar

from .harness import check, normal, raises_for, tolerance
from .test_conv import FLOATS

SETTINGS = settings(deadline=None, max_examples=30)

sizes = st.integers(0, 4)


@SETTINGS
@given(
    sizes,
    sizes,
    sizes,
    st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((1,), (2,)), ((0,), (1,))]),
    st.sampled_from((*FLOATS, "int32", "int64", "uint8")),
)
def test_matmul(m: int, k: int, n: int, batch: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    a, b = normal((*batch[0], m, k), dtype), normal((*batch[1], k, n), dtype, 1)
    result = check(ops.matmul, a, b, **tolerance(dtype))[0]
    np.testing.assert_allclose(
        result.astype(np.float64), np.matmul(a.astype(np.float64), b.astype(np.float64)), rtol=5e-2, atol=5e-2
    )


@pytest.mark.parametrize(("a", "b"), [((3,), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((0,), (0,))])
def test_vectors(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = normal(a), normal(b, seed=1)
    np.testing.assert_allclose(check(ops.matmul, left, right, **tolerance("float32"))[0], left @ right, rtol=1e-5, atol=1e-6)


def test_integers_of_different_types_sum_in_int32() -> None:
    a, b = normal((3, 4), "uint8"), normal((4, 2), "int8", 1)
    result = check(ops.matmul, a, b)[0]
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, a.astype(np.int32) @ b.astype(np.int32))


def test_symbolic_sizes() -> None:
    n, m, k = SizeVar("n"), SizeVar("m"), SizeVar("k")
    a, b = normal((2, 3, 4)), normal((4, 5), seed=1)
    check(ops.matmul, a, b, shapes=((n, m, k), (k, 5)), **tolerance("float32"))


def test_matmul_refuses() -> None:
    raises_for(ops.matmul, "the inner dimension of a must be 2, got 3", normal((2, 3)), normal((2, 3)))
    raises_for(ops.matmul, "a and b must have rank >= 1, got shapes", normal(()), normal((3,)))
    raises_for(ops.matmul, "broadcast", normal((2, 1, 1)), normal((3, 1, 1)))
    raises_for(
        ops.matmul, "the operands must have one float dtype or integer dtypes, got float32", normal((2, 2)), normal((2, 2), "int32")
    )


@SETTINGS
@given(st.integers(0, 5), st.sampled_from([(), (2,), (2, 0), (1, 2)]), st.integers(0, 99))
def test_det(size: int, batch: tuple[int, ...], seed: int) -> None:
    check(ops.det, normal((*batch, size, size), "float64", seed), rtol=1e-9, atol=1e-9)


def test_det_of_singular_and_permuted() -> None:
    assert check(ops.det, np.zeros((3, 3), np.float32))[0] == 0
    assert check(ops.det, np.eye(4, dtype=np.float32)[[1, 0, 2, 3]])[0] == -1
    check(ops.det, normal((4, 4), "float16"), rtol=1e-2, atol=1e-2)
    raises_for(ops.det, "square", normal((2, 3)))
