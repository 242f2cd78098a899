"""Sampling at coordinates found in data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops

from .harness import check, check_faults, normal, raises_for

SETTINGS = settings(deadline=None, max_examples=40)
LOOSE = {"rtol": 1e-3, "atol": 1e-3}


@SETTINGS
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(("zeros", "border", "reflection")),
    st.booleans(),
    st.sampled_from(("float64", "float32", "float16")),
)
def test_grid_sample(spatial: tuple[int, ...], mode: str, padding: str, align: bool, dtype: str) -> None:
    x = normal((2, 2, *spatial), dtype)
    grid = (normal((2, *(2,) * len(spatial), len(spatial)), dtype, 1) * 1.3).astype(x.dtype)
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype == "float16" else LOOSE
    check(ops.grid_sample, x, grid, mode=mode, padding=padding, align_corners=align, **loose)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_wild_coordinates_read_nothing_outside(mode: str, padding: str) -> None:
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3, -3], np.float32).reshape(1, 7, 1)
    check(ops.grid_sample, normal((1, 1, 3)), grid, mode=mode, padding=padding, **LOOSE)


def test_a_cubic_kernel_moves_each_neighbor_to_the_border() -> None:
    x = np.array([[[1, 2, 4]]], np.float32)
    places = np.array([[[-0.5], [2.5], [-1.5], [-9.5], [3e9]]], np.float32)
    samples = check(ops.grid_sample, x, places, mode="cubic", padding="border", elements=True)[0]
    # The weights of the neighbors of a half are -3/32, 19/32, 19/32, -3/32.
    np.testing.assert_allclose(samples[0, 0], [(32 - 3) / 32, (4 * 35 - 2 * 3) / 32, 1, 1, 4], rtol=1e-6)


def test_corners() -> None:
    x = np.array([[[1, 2, 4]]], np.float32)
    grid = np.array([[[-1], [0], [1], [0.5]]], np.float32)
    assert check(ops.grid_sample, x, grid, align_corners=True)[0].tolist() == [[[1, 2, 4, 3]]]
    assert check(ops.grid_sample, x, grid, align_corners=False)[0].tolist() == [[[0.5, 2, 2, 3.5]]]


def test_the_last_dimension_comes_first_in_the_grid() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    grid = np.array([1, -1], np.float32).reshape(1, 1, 1, 2)
    assert check(ops.grid_sample, x, grid, align_corners=True)[0].item() == 2


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_at_numbers_of_elements(mode: str, padding: str) -> None:
    x, places = normal((2, 3, 4, 5)), np.random.default_rng(1).uniform(-3, 8, (2, 6, 7, 2)).astype(np.float32)
    check(ops.grid_sample, x, places, mode=mode, padding=padding, elements=True, **LOOSE)
    inside = np.array([[[[3, 4], [0, 2]]]] * 2, np.float32)
    samples = check(ops.grid_sample, x, inside, mode=mode, padding=padding, elements=True, **LOOSE)[0]
    np.testing.assert_allclose(samples, x[:, :, None, [3, 0], [4, 2]], rtol=1e-5)


def test_grid_sample_refuses() -> None:
    x, grid = normal((1, 1, 3, 3)), normal((1, 2, 2, 2))
    raises_for(ops.grid_sample, "the last dimension of the grid must be 2, got 3", x, normal((1, 2, 2, 3)))
    raises_for(ops.grid_sample, "mode must be nearest, linear or cubic, padding zeros", x, grid, padding="mirror")
    raises_for(ops.grid_sample, "x must be float, or numeric with mode nearest, got int32 with mode", x.astype(np.int32), grid)
    raises_for(ops.grid_sample, "dimension 2 of the data must be >= 1, got 0", normal((1, 1, 0, 3)), grid)


ROIS = np.array([[0, 0, 3, 3], [1, 1, 6.5, 5], [-3, -2, 4, 9], [2, 2, 2, 2], [5, 5, 1, 1]], np.float32)
IMAGES = np.array([0, 1, 1, 0, 1])


@pytest.mark.parametrize("half_pixel", [False, True])
@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("sampling", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_roi_align(half_pixel: bool, maximum: bool, sampling: int, dtype: str) -> None:
    x = normal((2, 3, 6, 7), dtype)
    attrs = {"shape": (2, 3), "sampling": sampling, "half_pixel": half_pixel, "maximum": maximum, "scale": 0.75}
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype == "float16" else {"rtol": 1e-4, "atol": 1e-4}
    check(ops.roi_align, x, ROIS.astype(x.dtype), IMAGES, **attrs, **loose)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_roi_max_pool(dtype: str) -> None:
    x = normal((2, 3, 6, 7), dtype)
    rois = np.column_stack([IMAGES, ROIS]).astype(x.dtype)
    check(ops.roi_max_pool, x, rois, shape=(2, 3), scale=0.75)
    check_faults(ops.roi_max_pool, x, rois + x.dtype.type(1))


def test_a_constant_image_pools_to_itself() -> None:
    x = np.full((1, 1, 8, 8), 3, np.float32)
    inside = np.array([[1, 1, 6, 6]], np.float32)
    np.testing.assert_allclose(check(ops.roi_align, x, inside, [0], shape=(2, 2), rtol=1e-6)[0], 3, rtol=1e-6)


def test_regions_of_no_image_are_faults() -> None:
    check_faults(ops.roi_align, normal((2, 1, 4, 4)), ROIS[:1], np.array([2]))
    check_faults(ops.roi_align, normal((2, 1, 4, 4)), ROIS[:1], np.array([-1]))


def test_a_sample_on_the_border_of_an_image_is_inside() -> None:
    """The second of three samples, 1.5 + 1/3 + 1/6, is 2 in float32, as in ONNX Runtime, and more in float64."""
    x = np.ones((1, 1, 2, 2), np.float32)
    roi = np.array([[2, 0, 2, 0]], np.float32)
    result = check(ops.roi_align, x, roi, np.array([0]), shape=(1, 3), scale=0.75, half_pixel=False)[0]
    np.testing.assert_array_equal(result, np.array([1, 1, 0], np.float32).reshape(1, 1, 1, 3))


def test_samples_are_placed_in_the_order_of_the_reference() -> None:
    """(1/2 + k) * step / 3 is not ((1/2 + k) / 3) * step on the border of an image."""
    x = np.ones((1, 1, 7, 7), np.float32)
    roi = np.array([[-1.5, -1.5, 15.5, 15.5]], np.float32)
    check(ops.roi_align, x, roi, np.array([0]), shape=(5, 5), sampling=3, half_pixel=False)


def test_roi_align_refuses() -> None:
    x = normal((2, 1, 4, 4))
    raises_for(ops.roi_align, "dimension 1 of rois must be 4, got 3", x, ROIS[:, :3], IMAGES)
    raises_for(ops.roi_align, "dimension 0 of images must be 5, got 2", x, ROIS, IMAGES[:2])
    raises_for(ops.roi_align, "the operands must have one dtype, got float32, float64", x, ROIS.astype(np.float64), IMAGES)
