"""What code generators ask of quantized composites: windows and the numbers of layers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.pattern import explain_mismatch, is_op, match, wildcard
from inlaid.ops.composites import (
    Window,
    biased,
    decode_average_pool,
    decode_layer,
    matmul,
    quantized_average_pool,
    quantized_conv,
    quantized_matmul,
    quantized_mean,
    window,
)
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

X = ir.var("x", TensorType((1, 4, 9, 7), "int8"))
W = ir.constant(np.arange(-72, 72, dtype=np.int8).reshape(4, 4, 3, 3))


def scalar(value, dtype):
    return ir.constant(np.asarray(value, dtype))


def pad(pads):
    return ops.pad(X, scalar(-7, "int8"), pads=pads)


def stored(total, scale=0.5, axis=1):
    return ops.requantize(total, scalar(scale, "float32"), scalar(5, "int8"), dtype="int8", axis=axis)


def conv(x, **attrs):
    return ops.conv(x, W, out_dtype="int32", **attrs)


SPACE = (0, 0, 1, 2, 0, 0, 3, 0)
PADDED = {
    "not": (conv(X), Window((3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 0)),
    "by itself": (conv(X, pads=(1, 2, 3, 0), strides=(2, 3)), Window((3, 3), (2, 3), (1, 1), (1, 2), (3, 0), 0)),
    "before": (conv(pad(SPACE), dilations=(2, 1)), Window((3, 3), (1, 1), (2, 1), (1, 2), (3, 0), -7)),
    "twice": (conv(pad(SPACE), pads=(1, 1, 1, 1)), Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0)),
    "less than before": (conv(pad((0, 0, -1, 0, 0, 0, 0, 0))), Window((3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 0)),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_that_is_the_convolutions(name):
    product, expected = PADDED[name]
    pattern_match = match(quantized_conv(), stored(product))
    assert window(pattern_match.captures) == expected
    is_part = name == "before"
    assert ("pad" in pattern_match) == is_part
    assert pattern_match["x"] is (X if is_part else product.args[0])


def test_padding_of_channels_stays_outside():
    product = ops.conv(pad((0, 1, 0, 0, 0, 1, 0, 0)), ir.constant(np.ones((2, 6, 1, 1), np.int8)), out_dtype="int32")
    pattern_match = match(quantized_conv(), stored(product))
    assert pattern_match["x"] is product.args[0] and "pad" not in pattern_match


@pytest.mark.parametrize(("dtype", "least"), [("int8", -128), ("uint8", 0), ("float32", -math.inf)])
def test_the_window_of_a_pool(dtype, least):
    x = ir.var("x", TensorType((1, 4, 9, 7), dtype))
    pattern_match = match(
        is_op("max_pool")(wildcard()).named("pool"), ops.max_pool(x, kernel=(3, 2), pads=(0, 1, 1, 0), strides=(2, 1))
    )
    assert window(pattern_match.captures) == Window((3, 2), (2, 1), (1, 1), (0, 1), (1, 0), least)


def test_the_numbers_of_a_convolution():
    total = ops.add(conv(X), ir.constant(np.array([[[1]], [[-2]], [[3]], [[4]]], np.int32)))
    bounded = ops.minimum(ops.maximum(stored(total, [0.1, 0.2, 0.3, 0.4]), scalar(-3, "int8")), scalar(99, "int8"))
    layer = decode_layer(match(quantized_conv(), bounded).captures)
    assert layer.bias.dtype == np.int32 and layer.bias.tolist() == [1, -2, 3, 4]
    np.testing.assert_array_equal(layer.factor.scale.astype(np.float32), np.array([0.1, 0.2, 0.3, 0.4], np.float32), strict=True)
    assert layer.factor.rounding == "half_even" and layer.factor.per_channel
    assert (layer.output.zero_point, layer.output.least, layer.output.greatest) == (5, -3, 99)
    np.testing.assert_array_equal(layer.weights, W.data)


def test_one_scale_and_no_bias():
    layer = decode_layer(match(quantized_conv(), stored(conv(X))).captures)
    assert (layer.bias.tolist(), layer.factor.scale.tolist()) == ([0], [0.5])
    assert (layer.output.least, layer.output.greatest) == (-128, 127)


def test_one_scale_and_a_bias():
    x = ir.var("x", TensorType((3, 2), "int8"))
    product = ops.add(ops.matmul(x, ir.constant(np.ones((2, 2), np.int8)), out_dtype="int32"), scalar([7, 8], "int32"))
    layer = decode_layer(match(quantized_matmul(), stored(product)).captures)
    assert (layer.bias.tolist(), layer.factor.scale.tolist()) == ([7, 8], [0.5, 0.5])


@pytest.mark.parametrize("center", [0, -3])
def test_the_sum_of_a_mean_is_centered_by_its_bias(center):
    wide = ops.cast(X, dtype="int32")
    total = ops.reduce_sum(ops.sub(wide, scalar(center, "int32")) if center else wide, axes=(2, 3), keepdims=True)
    layer = decode_layer(match(quantized_mean(), stored(total)).captures)
    assert (layer.bias.tolist(), layer.factor.scale.tolist()) == ([-63 * center], [0.5])


@pytest.mark.parametrize(("dtype", "matches"), [("int32", True), ("uint8", False), ("int16", False)])
def test_a_mean_sums_in_a_wide_type(dtype, matches):
    x = ir.var("x", TensorType((1, 4, 40, 40), "int8"))
    wide = ops.sub(ops.cast(x, dtype=dtype), scalar(3, dtype))
    total = ops.shift_right(ops.reduce_sum(wide, axes=(2, 3), keepdims=True), scalar(4, dtype))
    pattern_match = match(quantized_mean(), ops.cast(ops.clip(total, minimum=-128, maximum=127), dtype="int8"))
    assert (pattern_match is not None) == matches
    if pattern_match is not None:
        assert decode_layer(pattern_match.captures).bias.tolist() == [-3 * 1600 - 8]


def test_a_bias_along_an_axis_that_a_product_lacks_does_not_match():
    row = ir.var("x", TensorType((2,), "int8"))
    product = ops.matmul(row, ir.constant(np.ones((2, 3), np.int8)), out_dtype="int32")
    total = ops.add(product, scalar([7, 8, 9], "int32"))
    assert match(biased(matmul(), 1), total) is None
    assert match(biased(matmul(), -1), total) is not None


def test_scales_by_another_axis_than_channels():
    assert match(quantized_conv(), stored(conv(X), [0.5] * 5, axis=3)) is None
    assert match(quantized_conv(), stored(conv(X), [0.5] * 4, axis=1)) is not None


def averaged(total, divisors, halves=None, sign=(-1, 1)):
    """The average of sums, as TensorFlow Lite rounds it."""
    divisors = np.asarray(divisors, np.int32)
    signs = ops.where(ops.less(total, scalar(0, "int32")), *(scalar(value, "int32") for value in sign))
    raised = ops.add(ops.mul(signs, total), ir.constant(divisors // 2 if halves is None else np.asarray(halves, np.int32)))
    quotient = ops.mul(signs, ops.div(raised, ir.constant(divisors)))
    return ops.cast(ops.clip(quotient, minimum=-100.0, maximum=90.0), dtype="int8")


def windows(weight=1, groups=4, x=X, **attrs):
    ones = np.full((4, 4 // groups, 2, 2), weight, np.int8)
    return ops.conv(x, ir.constant(ones), groups=groups, **attrs)


OPEN = ir.var("x", TensorType((1, 4, SizeVar("h", 2), SizeVar("w", 2)), "int8"))
IMAGE = ops.reduce_sum(ops.cast(X, dtype="int32"), axes=(2, 3), keepdims=True)
COUNTS = np.outer([1, 2, 2, 2, 2], [1, 2, 2, 2])
"""Elements of windows of 2 x 2 with strides of 2, padded by 1 before."""
EDGE = {"strides": (2, 2), "pads": (1, 1, 0, 0)}


def test_the_numbers_of_an_average_pool():
    layer = decode_average_pool(match(quantized_average_pool(), averaged(windows(**EDGE), COUNTS)).captures)
    assert layer.window == Window((2, 2), (2, 2), (1, 1), (1, 1), (0, 0), 0)
    assert layer.divisors.tolist() == COUNTS.tolist()
    assert (layer.output.least, layer.output.greatest) == (-100, 90)
    layer = decode_average_pool(match(quantized_average_pool(), averaged(IMAGE, 63)).captures)
    assert layer.window == Window((9, 7), (1, 1), (1, 1), (0, 0), (0, 0), 0)
    assert layer.divisors.tolist() == [[63]]
    layer = decode_average_pool(match(quantized_average_pool(), averaged(windows(x=OPEN), 4)).captures)
    assert layer.divisors.tolist() == [[4]]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (averaged(windows(2), 4), "expected weights of 1"),
        (averaged(windows(groups=1), 4), "expected one window per channel"),
        (averaged(windows(), 5), "expected half of the divisors|expected the number of elements"),
        (averaged(windows(**EDGE), 4), "expected half of the divisors"),
        (averaged(windows(**EDGE), COUNTS, halves=2), "expected half of the divisors"),
        (averaged(windows(), 4, halves=1), "expected half of the divisors"),
        (averaged(windows(), [[4], [4], [4], [4], [4], [4], [4], [5]]), "expected the number of elements in each window"),
        (averaged(windows(pads=(2, 2, 0, 0)), 4), "expected half of the divisors"),
        (averaged(windows(x=OPEN, pads=(1, 0, 0, 0)), 4), "expected half of the divisors"),
        (averaged(windows(x=OPEN, pads=(SizeVar("p"), 0, 0, 0)), 4), "expected one window per channel"),
        (averaged(ops.reduce_sum(ops.cast(OPEN, dtype="int32"), axes=(2, 3), keepdims=True), 7), "expected a sum over the spatial"),
        (averaged(windows(), 4, sign=(1, -1)), "expected the constant -1"),
        (averaged(ops.reduce_sum(ops.cast(X, dtype="int32"), axes=(3,), keepdims=True), 7), "expected a sum over the spatial axes"),
    ],
)
def test_other_averages_do_not_match(body, reason):
    assert match(quantized_average_pool(), body) is None
    assert re.search(reason, explain_mismatch(quantized_average_pool(), body))
