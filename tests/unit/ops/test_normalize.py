"""Softmax and normalizations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.operator import Operator
from inlaid_runtime.arith import SizeVar

from .harness import check, check_decomposition, normal, raises_for, tolerance
from .test_conv import FLOATS

SETTINGS = settings(deadline=None, max_examples=25)

shapes = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


@SETTINGS
@given(shapes, st.sampled_from(FLOATS), st.data())
def test_softmax(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = normal(shape, dtype)
    probabilities = check(ops.softmax, x, axis=axis, **tolerance(dtype))[0]
    logs = check(ops.log_softmax, x, axis=axis, **tolerance(dtype))[0]
    if probabilities.size:
        np.testing.assert_allclose(probabilities.astype(np.float64).sum(axis=axis), 1, atol=5e-2)
        np.testing.assert_allclose(np.exp(logs.astype(np.float64)), probabilities.astype(np.float64), atol=5e-2)


def test_softmax_of_great_and_infinite_numbers() -> None:
    x = np.array([[1e4, 0], [-np.inf, 0], [-np.inf, -np.inf], [np.nan, 0]], np.float32)
    result = check(ops.softmax, x, axis=1, rtol=1e-6)[0]
    np.testing.assert_array_equal(result, [[1, 0], [0, 1], [np.nan, np.nan], [np.nan, np.nan]])


def test_softmax_of_symbolic_sizes() -> None:
    n, m = SizeVar("n"), SizeVar("m")
    check(ops.softmax, normal((3, 4)), shapes=((n, m),), axis=1, **tolerance("float32"))


@SETTINGS
@given(st.lists(st.integers(0, 3), min_size=2, max_size=4).map(tuple), st.sampled_from(FLOATS))
def test_batch_norm(shape: tuple[int, ...], dtype: str) -> None:
    scale, bias, mean = (normal(shape[1:2], dtype, seed) for seed in range(3))
    check(ops.batch_norm, normal(shape, dtype, 9), scale, bias, mean, abs(mean) + 1, epsilon=1e-3, **tolerance(dtype))


@SETTINGS
@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from(FLOATS))
def test_lrn(size: int, channels: int, dtype: str) -> None:
    check(ops.lrn, normal((2, channels, 3), dtype), size=size, alpha=0.1, beta=0.6, bias=1.5, **tolerance(dtype))


def test_lrn_spans_channels_around() -> None:
    x = np.array([1, 2, 3], np.float32).reshape(1, 3, 1)
    result = check(ops.lrn, x, size=2, alpha=2.0, beta=1.0, bias=1.0, rtol=1e-6)[0]
    # One channel in two pairs: (size - 1) // 2 = 0 before, size // 2 = 1 after.
    np.testing.assert_allclose(result.reshape(-1), [1 / 6, 2 / 14, 3 / 10], rtol=1e-6)


@SETTINGS
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), st.sampled_from(FLOATS), st.booleans(), st.data())
def test_layer_and_rms_norm(shape: tuple[int, ...], dtype: str, biased: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x, scale, bias = normal(shape, dtype), normal(shape[axis:], dtype, 1), normal(shape[-1:], dtype, 2)
    rest = (scale, bias) if biased else (scale,)
    wide = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else tolerance(dtype)
    check_decomposition(ops.layer_norm, x, *rest, axis=axis, epsilon=1e-2, **wide)
    check_decomposition(ops.rms_norm, x, scale, axis=axis, epsilon=1e-2, **wide)


def test_layer_norm_of_symbolic_sizes() -> None:
    n, m = SizeVar("n"), SizeVar("m")
    x, scale = normal((3, 4)), normal((4,), seed=1)
    check_decomposition(ops.layer_norm, x, scale, shapes=((n, m), (m,)), axis=1, **tolerance("float32"))


def test_normalizations_refuse() -> None:
    x = normal((2, 3, 4))
    raises_for(ops.softmax, "out of range", x, axis=3)
    raises_for(ops.softmax, "kind float", x.astype(np.int32), axis=1)
    raises_for(ops.batch_norm, "dimension 0 of the scale must be 3, got 4", x, *(normal((4,)),) * 4)
    raises_for(ops.layer_norm, "broadcast", x, normal((3,)), axis=2)
    raises_for(ops.lrn, "x must have rank >= 2 and size must be >= 1, got 3 and 0", x, size=0)


@pytest.mark.parametrize("shape", [(3, 0), (0, 4)])
def test_normalizations_of_nothing(shape: tuple[int, int]) -> None:
    """Warnings are errors here: the mean of no elements gives none."""
    for operator in (ops.layer_norm, ops.rms_norm):
        assert check(operator, normal(shape), normal(shape[1:]), axis=1)[0].shape == shape


@pytest.mark.parametrize("operator", [ops.layer_norm, ops.rms_norm])
def test_scales_do_not_widen_the_result(operator: Operator) -> None:
    message = "dimension 0 of the scale must be 1 to broadcast, got 5"
    raises_for(operator, message, normal((3, 1)), normal((5,)), axis=1)
    raises_for(operator, "dimension 0 of the scale must be 1 to broadcast, got 2", normal((1, 5)), normal((2, 5)), axis=1)
