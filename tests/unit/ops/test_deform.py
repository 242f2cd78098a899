"""Deformable convolution and col2im."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from inlaid import ops
from inlaid_runtime.arith import SizeVar

from .harness import check, check_decomposition, normal, raises_for, tolerance
from .test_conv import windows

SETTINGS = settings(deadline=None, max_examples=25)
Window = tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]


def positions(spatial: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    rank = len(spatial)
    return tuple(
        (spatial[axis] + attrs["pads"][axis] + attrs["pads"][rank + axis] - (kernel[axis] - 1) * attrs["dilations"][axis] - 1)
        // attrs["strides"][axis]
        + 1
        for axis in range(rank)
    )


@SETTINGS
@given(windows())
def test_deform_conv_without_offsets_is_conv(window: Window) -> None:
    spatial, kernel, attrs = window
    x, w = normal((2, 4, *spatial)), normal((2, 2, *kernel), seed=1)
    taps, out = int(np.prod(kernel)), positions(spatial, kernel, attrs)
    still = np.zeros((2, taps * len(kernel), *out), np.float32)
    result = check_decomposition(ops.deform_conv, x, w, still, groups=2, **attrs, **tolerance("float32"))[0]
    np.testing.assert_allclose(result, check(ops.conv, x, w, groups=2, **attrs, **tolerance("float32"))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 2), (1, 2), (2, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_deform_conv(groups: int, offset_groups: int, dtype: str) -> None:
    x, w = normal((2, 4, 5, 6), dtype), normal((4, 4 // groups, 3, 2), dtype, 1)
    attrs = {"strides": (2, 1), "pads": (1, 0, 1, 1), "groups": groups, "offset_groups": offset_groups}
    offset, mask = normal((2, offset_groups * 12, 3, 6), dtype, 2), normal((2, offset_groups * 6, 3, 6), dtype, 3)
    loose = {"rtol": 1e-1, "atol": 1e-1} if dtype == "float16" else {"rtol": 1e-4, "atol": 1e-4}
    check_decomposition(ops.deform_conv, x, w, offset, **attrs, **loose)
    check_decomposition(ops.deform_conv, x, w, offset, mask, **attrs, **loose)


def test_deform_conv_of_symbolic_sizes() -> None:
    """Windows included, and places that are padded by a size."""
    n, h, w, k = (SizeVar(name) for name in "nhwk")
    arrays = normal((2, 4, 5, 6)), normal((2, 4, 3, 2), seed=1), normal((2, 12, 4, 6), seed=2)
    shapes = ((n, 4, h, w), (2, 4, 3, 2), (n, 12, h - 1, w))
    check_decomposition(ops.deform_conv, *arrays, shapes=shapes, pads=(0, 0, 1, 1), rtol=1e-4, atol=1e-4)
    arrays = normal((2, 4, 5, 6)), normal((2, 4, 3, 2), seed=1), normal((2, 12, 5, 6), seed=2)
    shapes = ((n, 4, h, w), (2, 4, k, 2), (n, 4 * k, h + 3 - k, w))
    check_decomposition(ops.deform_conv, *arrays, shapes=shapes, pads=(1, 0, 1, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 4), (4, 0), (0, 0)])
def test_deform_conv_without_channels(inputs: int, outputs: int) -> None:
    x, w, offset = normal((2, inputs, 5, 6)), normal((outputs, inputs // 2, 3, 2)), normal((2, 12, 3, 5))
    result = check_decomposition(ops.deform_conv, x, w, offset, groups=2, rtol=0, atol=0)[0]
    np.testing.assert_array_equal(result, np.zeros((2, outputs, 3, 5)))


def test_wild_offsets_read_nothing_outside() -> None:
    x, w = normal((1, 1, 3)), np.ones((1, 1, 1), np.float32)
    offset = np.array([1e30, -np.inf, -5], np.float32).reshape(1, 1, 3)
    result = check_decomposition(ops.deform_conv, x, w, offset, rtol=0, atol=0)[0]
    assert result[0, 0, 2] == 0


def test_deform_conv_refuses() -> None:
    x, w = normal((1, 4, 5, 5)), normal((2, 4, 3, 3))
    raises_for(ops.deform_conv, "dimension 1 of the offset must be 18, got 9", x, w, normal((1, 9, 3, 3)))
    raises_for(ops.deform_conv, "dimension 1 of the mask must be 9, got 18", x, w, normal((1, 18, 3, 3)), normal((1, 18, 3, 3)))
    raises_for(
        ops.deform_conv,
        "the number of input channels must be a multiple of 3, got 4",
        x,
        w,
        normal((1, 18, 3, 3)),
        offset_groups=3,
    )
    raises_for(ops.deform_conv, "dimension 2 of the data must be >= 1, got 0", normal((1, 4, 0, 5)), w, normal((1, 18, 1, 3)))
    raises_for(
        ops.deform_conv, "the number of input channels per group of w must be 2, got 4", x, w, normal((1, 18, 3, 3)), groups=2
    )


@SETTINGS
@given(windows())
def test_col2im_is_the_adjoint_of_windows(window: Window) -> None:
    spatial, kernel, attrs = window
    out = positions(spatial, kernel, attrs)
    columns = normal((2, 3 * int(np.prod(kernel)), int(np.prod(out))))
    image = check(ops.col2im, columns, shape=spatial, kernel=kernel, **attrs, **tolerance("float32"))[0]
    # conv_transpose with weights that pick tap after tap does the same.
    taps = int(np.prod(kernel))
    picks = np.eye(taps, dtype=np.float32).reshape(taps, 1, *kernel)
    data = columns.reshape(2 * 3, taps, *out)
    extra = tuple(
        spatial[axis] - ((out[axis] - 1) * attrs["strides"][axis] + (kernel[axis] - 1) * attrs["dilations"][axis] + 1)
        + attrs["pads"][axis] + attrs["pads"][len(kernel) + axis]
        for axis in range(len(kernel))
    )  # fmt: skip
    transposed_conv = check_decomposition(ops.conv_transpose, data, picks, output_padding=extra, **attrs, **tolerance("float32"))[0]
    np.testing.assert_allclose(image, transposed_conv.reshape(image.shape), rtol=1e-5, atol=1e-5)


def test_col2im_refuses() -> None:
    raises_for(
        ops.col2im, "dimension 2 of x, the number of windows, must be 9, got 5", normal((1, 4, 5)), shape=(4, 4), kernel=(2, 2)
    )
    raises_for(
        ops.col2im,
        "dimension 1 of x, of channels and taps, must be a multiple of 4, got 5",
        normal((1, 5, 9)),
        shape=(4, 4),
        kernel=(2, 2),
    )
    raises_for(ops.col2im, "shape and kernel of equal length, got Tensor", normal((1, 4)), shape=(4, 4), kernel=(2, 2))
