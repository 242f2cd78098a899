"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.window import WindowAxis, inner_taps
from inlaid_tflite.convert.window import channels_last, channels_second, read_strides, window_pads
from inlaid_tflite.model import Array
from inlaid_tflite.node import Converter, Node, typed

LARGEST = 1 << 26
"""Maximum number of elements of a window over all channels: a sum has one weight per element."""


def _window(node: Node) -> tuple[tuple[int, int], tuple[int, int], tuple[int, ...]]:
    kernel, strides = (node.options.FilterHeight(), node.options.FilterWidth()), read_strides(node)
    channels = node.tensor(0).shape[3]
    if not isinstance(channels, int):
        raise node.error(f"the number of channels must be static, got {channels}: set it")
    if min(kernel) < 1 or math.prod(kernel) * channels > LARGEST:
        raise node.error(f"the window must be >= 1 x 1 with at most {LARGEST} elements in all channels, got {kernel}")
    return kernel, strides, window_pads(node, kernel, strides, (1, 1))


def _average(node: Node) -> Expr:
    kernel, strides, pads = _window(node)
    data = channels_second(node.input(0))
    if node.is_float():
        return channels_last(node.bounded(ops.avg_pool(data, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1))))
    if kernel == (1, 1):
        return _max(node)  # each window is one element, which needs no division
    channels = node.tensor(0).shape[3]
    if kernel == tuple(node.tensor(0).shape[1:3]) and not any(pads):
        total: Expr = ops.reduce_sum(ops.cast(data, dtype="int32"), axes=(2, 3), keepdims=True)
    else:
        ones = constant(np.ones((channels, 1, *kernel), np.int8))
        total = ops.conv(data, ones, strides=strides, pads=pads, dilations=(1, 1), groups=channels)
    counts = constant(_counts(node, kernel, strides, pads))
    # Round half away from zero; the division truncates.
    half = ops.div(counts, constant(np.int32(2)))
    sign = ops.where(ops.less(total, constant(np.int32(0))), constant(np.int32(-1)), constant(np.int32(1)))
    rounded = ops.mul(sign, ops.div(ops.add(ops.mul(sign, total), half), counts))
    least, greatest = node.limits()
    return channels_last(ops.cast(ops.clip(rounded, minimum=float(least), maximum=float(greatest)), dtype=node.result.dtype.name))


def _counts(node: Node, kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...]) -> Array:
    """Count the elements of each window that are not padding; one number if there is no padding."""
    if not any(pads):
        return np.full((1, 1), math.prod(kernel), np.int32)
    sizes = node.tensor(0).shape[1:3]
    if math.prod(sizes) > LARGEST:
        raise node.error(f"a padded image must have at most {LARGEST} pixels, got {sizes[0]} by {sizes[1]}")
    axes = [WindowAxis(*each) for each in zip(kernel, strides, (1, 1), pads[:2], pads[2:], strict=True)]
    return inner_taps(axes, sizes)


def _max(node: Node) -> Expr:
    kernel, strides, pads = _window(node)
    pooled = ops.max_pool(channels_second(node.input(0)), kernel=kernel, strides=strides, pads=pads, dilations=(1, 1))
    if node.is_float():
        return channels_last(node.bounded(pooled))
    least, greatest = node.limits()
    return channels_last(ops.clip(pooled, minimum=float(least), maximum=float(greatest)))


def _root_mean_square(node: Node) -> Expr:
    kernel, strides, pads = _window(node)
    data = channels_second(node.input(0))
    squares = ops.avg_pool(ops.mul(data, data), kernel=kernel, strides=strides, pads=pads, dilations=(1, 1))
    return channels_last(node.bounded(ops.sqrt(squares)))


CONVERTERS: Mapping[str, Converter] = {
    "AVERAGE_POOL_2D": typed(_average, "float32 int8 uint8 int16"),
    "L2_POOL_2D": typed(_root_mean_square, "float32"),
    "MAX_POOL_2D": typed(_max, "float32 int8 uint8 int16"),
}
