"""Pooling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.ops.pool import MaxPoolIndicesAttrs
from inlaid.tensor import ir, te
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.lower import lower
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import dtype

from .harness import check, normal, raises_for, tolerance
from .test_conv import FLOATS, windows

SETTINGS = settings(deadline=None, max_examples=30)
Window = tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]


@SETTINGS
@given(windows(), st.sampled_from((*FLOATS, "int8", "uint8")), st.booleans())
def test_max_pool(window: Window, dtype_name: str, column_major: bool) -> None:
    spatial, kernel, attrs = window
    x = normal((2, 2, *spatial), dtype_name)
    plain = check(ops.max_pool, x, kernel=kernel, **attrs)[0]
    values, places = check(ops.max_pool_indices, x, kernel=kernel, column_major=column_major, **attrs)
    np.testing.assert_array_equal(plain, values)
    order = (0, 1, *(reversed(range(2, x.ndim)) if column_major else range(2, x.ndim)))
    flat = x.transpose(order).reshape(-1)
    inside = places < x.size
    np.testing.assert_array_equal(flat[places[inside]], values[inside])


def test_max_pool_prefers_nan_and_the_first_of_equals() -> None:
    x = np.array([[[1, 3, 3, np.nan, 0, 0]]], np.float32)
    values, places = check(ops.max_pool_indices, x, kernel=(3,), strides=(3,))
    np.testing.assert_array_equal(values, [[[3, np.nan]]])
    np.testing.assert_array_equal(places, [[[1, 3]]])
    check(ops.max_pool, x, kernel=(2,), pads=(1, 1))


def test_of_equals_the_first_by_rows_counts_however_places_are_counted() -> None:
    x = np.array([[[[0, 1], [1, 0]]]], np.uint8)
    assert check(ops.max_pool_indices, x, kernel=(2, 2))[1].item() == 1
    assert check(ops.max_pool_indices, x, kernel=(2, 2), column_major=True)[1].item() == 2
    repeats = np.random.default_rng(0).integers(0, 3, (2, 3, 6, 7)).astype(np.uint8)
    check(ops.max_pool_indices, repeats, kernel=(3, 3), pads=(1, 1, 1, 1), column_major=True)


def test_padding_never_wins() -> None:
    x = np.full((1, 1, 2), -np.inf, np.float32)
    assert check(ops.max_pool_indices, x, kernel=(2,), pads=(1, 0))[1].tolist() == [[[0, 0]]]
    assert check(ops.max_pool, np.full((1, 1, 2), -128, np.int8), kernel=(2,), pads=(1, 0))[0].tolist() == [[[-128, -128]]]


@SETTINGS
@given(windows(), st.sampled_from((*FLOATS, "int8", "uint8")), st.booleans(), st.integers(0, 99))
def test_places_among_equal_least_and_nan_elements(window: Window, dtype_name: str, column_major: bool, seed: int) -> None:
    spatial, kernel, attrs = window
    choices = [0, 1, np.nan, -np.inf, -np.inf] if dtype_name in FLOATS else [dtype(dtype_name).limits[0]] * 3 + [1]
    x = np.random.default_rng(seed).choice(choices, (2, 2, *spatial)).astype(dtype(dtype_name).numpy)
    check(ops.max_pool_indices, x, kernel=kernel, column_major=column_major, **attrs)


@pytest.mark.parametrize("dtype_name", ["float32", "float16", "int8"])
def test_max_pool_with_places_reduces_one_value_at_a_time(dtype_name: str) -> None:
    # Of reductions of pairs no schedule makes vectors.
    attrs = MaxPoolIndicesAttrs(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    x = te.placeholder((1, 4, 8, 8), dtype_name)
    program = lower(ops.max_pool_indices.compute(attrs, x), (x,), "pool")
    reductions = [block for block in collect_blocks(program) if block.init is not None]
    assert len(reductions) == 2
    assert all(isinstance(block.body, ir.Store) for block in reductions)


@SETTINGS
@given(windows(), st.sampled_from(FLOATS), st.booleans())
def test_avg_pool(window: Window, dtype_name: str, include: bool) -> None:
    spatial, kernel, attrs = window
    check(
        ops.avg_pool,
        normal((2, 1, *spatial), dtype_name),
        kernel=kernel,
        count_include_pad=include,
        **attrs,
        **tolerance(dtype_name),
    )


def test_avg_pool_counts() -> None:
    ones = np.ones((1, 1, 3), np.float32)
    assert check(ops.avg_pool, ones, kernel=(3,), pads=(1, 1))[0].tolist() == [[[1, 1, 1]]]
    np.testing.assert_allclose(
        check(ops.avg_pool, ones, kernel=(3,), pads=(1, 1), count_include_pad=True)[0], [[[2 / 3, 1, 2 / 3]]], rtol=1e-6
    )


def test_windows_over_symbolic_sizes() -> None:
    h, w = SizeVar("h", 1), SizeVar("w", 1)
    x = normal((1, 2, 5, 4))
    shapes = ((1, 2, h, w),)
    check(ops.avg_pool, x, shapes=shapes, kernel=(h, w), **tolerance("float32"))
    check(ops.max_pool, x, shapes=shapes, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 1, 1))


def test_pooling_refuses() -> None:
    x = normal((1, 1, 4, 4))
    raises_for(ops.max_pool, "kernel must have 2 elements for x of rank 4, got 1", x, kernel=(2,))
    raises_for(ops.avg_pool, "dimension 0 of the window must be >= 1, got 0", x, kernel=(0, 2))
    raises_for(ops.max_pool, "must be >= 1, got", x, kernel=(5, 5))
    raises_for(ops.avg_pool, "kind float", x.astype(np.int32), kernel=(2, 2))
