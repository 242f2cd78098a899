"""Convolution and its transpose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .harness import Array, call, check, check_decomposition, normal, raises_for, tolerance

SETTINGS = settings(deadline=None, max_examples=30)
FLOATS = ("float64", "float32", "float16", "bfloat16")


def naive(x: Array, w: Array, strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Array:
    """Convolution by its definition, one output element after another."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    extents = [
        (padded.shape[2 + axis] - (w.shape[2 + axis] - 1) * dilations[axis] - 1) // strides[axis] + 1 for axis in range(rank)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *extents))
    share = w.shape[0] // groups
    for n, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        for at in np.ndindex(*extents):
            for c in range(w.shape[1]):
                for k in np.ndindex(*w.shape[2:]):
                    source = tuple(at[axis] * strides[axis] + k[axis] * dilations[axis] for axis in range(rank))
                    result[(n, o, *at)] += padded[(n, o // share * w.shape[1] + c, *source)] * w[(o, c, *k)]
    return result


@st.composite
def windows(draw: st.DrawFn, max_rank: int = 2) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]:
    """(spatial shape, kernel, attributes) of a window that fits at least once."""
    rank = draw(st.integers(1, max_rank))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    kernel, dilations, strides = each(1, 3), each(1, 2), each(1, 3)
    before, after = each(0, 2), each(0, 2)
    spatial = tuple(
        max((size - 1) * dilation + 1 - low - high, 1) + more
        for size, dilation, low, high, more in zip(kernel, dilations, before, after, each(0, 3), strict=True)
    )
    return spatial, kernel, {"strides": strides, "pads": before + after, "dilations": dilations}


@SETTINGS
@given(windows(), st.sampled_from([(1, 2, 3), (2, 1, 1), (2, 2, 1), (3, 1, 2)]), st.sampled_from(FLOATS), st.integers(0, 2))
def test_conv(
    window: tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]], channels: tuple[int, ...], dtype: str, batch: int
) -> None:
    spatial, kernel, attrs = window
    groups, per_group_in, per_group_out = channels
    x = normal((batch, groups * per_group_in, *spatial), dtype)
    w = normal((groups * per_group_out, per_group_in, *kernel), dtype, 1)
    result = check(ops.conv, x, w, groups=groups, **attrs, **tolerance(dtype))[0]
    expected = naive(x.astype(np.float64), w.astype(np.float64), attrs["strides"], attrs["pads"], attrs["dilations"], groups)
    wide = tolerance("bfloat16" if dtype == "bfloat16" else "float16")
    np.testing.assert_allclose(result.astype(np.float64), expected, **wide)


@pytest.mark.parametrize(("data", "weights"), [("uint8", "int8"), ("int8", "int8"), ("int16", "int16"), ("uint8", "uint8")])
def test_integers_sum_in_int32(data: str, weights: str) -> None:
    x, w = normal((1, 2, 5), data), normal((3, 2, 2), weights, 1)
    result = check(ops.conv, x, w, pads=(1, 1))[0]
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, naive(x.astype(int), w.astype(int), (1,), (1, 1), (1,), 1))


def test_conv_of_half_precision_may_stay_wide() -> None:
    x, w = normal((1, 2, 5), "float16"), normal((3, 2, 2), "float16", 1)
    assert check(ops.conv, x, w, out_dtype="float32", **tolerance("float32"))[0].dtype == np.float32


def test_conv_in_three_dimensions() -> None:
    check(ops.conv, normal((1, 2, 3, 4, 3)), normal((2, 2, 2, 2, 2), seed=1), pads=(1,) * 6, **tolerance("float32"))


def test_conv_of_symbolic_sizes() -> None:
    n, h = SizeVar("n"), SizeVar("h", 1)
    x, w = normal((2, 3, 5, 4)), normal((2, 3, 3, 3), seed=1)
    shapes = ((n, 3, h, 4), (2, 3, 3, 3))
    check(ops.conv, x, w, shapes=shapes, pads=(1, 1, 1, 1), strides=(2, 1), **tolerance("float32"))
    conv_call = call(ops.conv, x, w, shapes=shapes, pads=(1, 1, 1, 1))
    assert isinstance(conv_call.type, TensorType)
    assert conv_call.type.shape[0] == n


def test_conv_refuses() -> None:
    x, w = normal((1, 4, 5, 5)), normal((4, 2, 3, 3))
    raises_for(ops.conv, "the number of input channels per group of w must be 4, got 2", x, w)
    raises_for(ops.conv, "the number of input channels must be a multiple of 3, got 4", x, w, groups=3)
    raises_for(ops.conv, "must be >= 1, got", normal((1, 2, 2, 2)), w)
    raises_for(ops.conv, "strides", x, w, groups=2, strides=(1,))
    raises_for(ops.conv, "the operands must have one float dtype or integer dtypes, got float32", x, w.astype(np.float16), groups=2)
    raises_for(ops.conv, "rank", x, w[0])


@SETTINGS
@given(windows(3), st.sampled_from([(1, 2, 3), (2, 1, 1), (2, 2, 1)]), st.sampled_from((*FLOATS, "int8")), st.data())
def test_conv_transpose(
    window: tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]],
    channels: tuple[int, ...],
    dtype: str,
    data: st.DataObject,
) -> None:
    spatial, kernel, attrs = window
    groups, per_group_in, per_group_out = channels
    rank = len(kernel)
    pads = (*attrs["pads"][:rank], *(pad - data.draw(st.integers(0, 3)) for pad in attrs["pads"][rank:]))
    extra = tuple(data.draw(st.integers(0, stride - 1)) for stride in attrs["strides"])
    x = normal((2, groups * per_group_in, *spatial), dtype)
    w = normal((groups * per_group_in, per_group_out, *kernel), dtype, 1)
    rest = {"strides": attrs["strides"], "dilations": attrs["dilations"], "pads": pads, "output_padding": extra, "groups": groups}
    full = tuple(
        (extent - 1) * stride + (size - 1) * dilation + 1 + more - low - high
        for extent, stride, size, dilation, more, low, high in zip(
            spatial, attrs["strides"], kernel, attrs["dilations"], extra, pads[:rank], pads[rank:], strict=True
        )
    )
    if min(full) < 1:
        raises_for(ops.conv_transpose, "of the output must be >= 1", x, w, **rest)
        return
    free = tuple(SizeVar(f"h{axis}", 1) for axis in range(rank))
    taps = data.draw(st.sampled_from((kernel, tuple(SizeVar(f"k{axis}", 1) for axis in range(rank)))))
    symbolic = ((SizeVar("n"), x.shape[1], *free), (*w.shape[:2], *taps))
    shapes = data.draw(st.sampled_from((None, symbolic)))
    bounds = {"rtol": 0.0, "atol": 0.0} if dtype == "int8" else tolerance(dtype)
    result = check_decomposition(ops.conv_transpose, x, w, shapes=shapes, **rest, **bounds)[0]
    assert result.shape == (2, groups * per_group_out, *full)


@pytest.mark.parametrize("extent", [1, 4])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pads"), [(4, 2, 1, (1, 1)), (5, 3, 2, (2, 1)), (4, 4, 2, (3, -1)), (3, 2, 1, (1, 0))]
)
def test_conv_transpose_computes_phases_apart(extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> None:
    """Few elements of many channels, where phases that share a convolution compute more than is kept."""
    x, w = normal((1, 2, extent, 3), "int8"), normal((2, 64, kernel, 2), "int8", 1)
    attrs = {"strides": (stride, 2), "dilations": (dilation, 1), "pads": (pads[0], 0, pads[1], 1)}
    check_decomposition(ops.conv_transpose, x, w, **attrs, output_padding=(1, 0), rtol=0.0, atol=0.0)


def test_conv_transpose_is_the_adjoint_of_conv() -> None:
    """<conv(x, w), y> = <x, conv_transpose(y, w)>."""
    attrs = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 2), "groups": 2}
    x, w = normal((1, 4, 6, 7), "float64"), normal((6, 2, 3, 2), "float64", 1)
    y = normal(check(ops.conv, x, w, **attrs, **tolerance("float64"))[0].shape, "float64", 2)
    forward = check(ops.conv, x, w, **attrs, **tolerance("float64"))[0]
    backward = check_decomposition(ops.conv_transpose, y, w, **attrs, output_padding=(0, 0), **tolerance("float64"))[0]
    short = tuple(slice(0, min(a, b)) for a, b in zip(x.shape, backward.shape, strict=True))
    missing = np.zeros(x.shape)
    missing[short] = backward[short]
    np.testing.assert_allclose((forward * y).sum(), (x * missing).sum(), rtol=1e-10)


@pytest.mark.parametrize("symbolic", [False, True])
def test_conv_transpose_of_an_empty_axis(symbolic: bool) -> None:
    """The output is as large as padding and window make it, and zero."""
    x, w = normal((1, 2, 0, 3)), normal((2, 4, 5, 2), seed=1)
    shapes = ((1, 2, SizeVar("h"), 3), w.shape) if symbolic else None
    result = check_decomposition(
        ops.conv_transpose, x, w, shapes=shapes, strides=(3, 1), output_padding=(2, 0), rtol=0.0, atol=0.0
    )[0]
    np.testing.assert_array_equal(result, np.zeros((1, 4, 4, 4)))
