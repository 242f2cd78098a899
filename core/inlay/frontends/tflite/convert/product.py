"""Convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay import ops
from inlay.frontends.tflite.convert.window import channels_last, channels_second, padded, strides_of, window_pads
from inlay.frontends.tflite.node import Converter, Node, tensor_type
from inlay.graph.ir import Constant, Expr, constant


def _convolution(node: Node, weights: Expr, groups: int) -> Expr:
    """A convolution of input 0 with weights O I H W, plus the bias at input 2."""
    strides, dilations = strides_of(node), (node.options.DilationHFactor(), node.options.DilationWFactor())
    outputs, _, rows, columns = map(int, tensor_type(weights).shape)  # type: ignore[arg-type]
    pads = window_pads(node, (rows, columns), strides, dilations)
    data = channels_second(node.input(0))
    if node.is_float():
        total: Expr = ops.conv(data, weights, strides=strides, pads=pads, dilations=dilations, groups=groups)
        if node.has(2):
            total = ops.add(total, ops.reshape(node.input(2), shape=(node.tensor(2).shape[0], 1, 1)))
        return channels_last(node.bounded(total))
    _, zero_point = node.pair(node.tensor(0))
    filled = padded(data, pads, np.array(zero_point, node.tensor(0).dtype.numpy))
    total = ops.conv(filled, weights, strides=strides, pads=(0, 0, 0, 0), dilations=dilations, groups=groups)
    total = _biased(node, total, weights, (1, 2, 3), zero_point, 1)
    return channels_last(node.stored(total, _factors(node, outputs), 1, "up" if groups == 1 else "away"))


def _biased(node: Node, total: Expr, weights: Expr, reduced: tuple[int, ...], zero_point: int, axis: int) -> Expr:
    """Sums of integers plus the bias at input 2, less what the zero point of the data adds to them."""
    if not isinstance(weights, Constant):
        raise node.error("weights that the model computes are not supported for integers")
    bias = -np.int32(zero_point) * weights.data.astype(np.int32).sum(reduced, dtype=np.int32)
    if node.has(2):
        bias = bias + node.array(2).astype(np.int32)
    shape = tuple(-1 if at == axis else 1 for at in range(tensor_type(total).rank))
    return ops.add(total, constant(bias.reshape(shape)))


def _factors(node: Node, outputs: int) -> list[float]:
    """The real factors of a product's sums, one for each output channel or one for all."""
    node.require("int8")
    data, _ = node.pair(node.tensor(0))
    scales = node.scales(node.tensor(1))
    result, _ = node.pair(node.result)
    if np.any(scales.zero_point) or len(scales.scale) not in (1, outputs):
        raise node.error("weights have to have zero points of 0, and one scale in all or one for each output")
    return [float(data) * float(scale) / float(result) for scale in scales.scale]


def _conv_2d(node: Node) -> Expr:
    channels, depth = node.tensor(0).shape[3], node.tensor(1).shape[3]
    if depth == 0 or channels % depth:
        raise node.error(f"weights of {depth} channels do not fit data of {channels}")
    return _convolution(node, _moved(_weights(node), (0, 3, 1, 2)), channels // depth)


def _depthwise_conv_2d(node: Node) -> Expr:
    return _convolution(node, _moved(_weights(node), (3, 0, 1, 2)), node.tensor(0).shape[3])


def _weights(node: Node) -> Expr:
    """Input 1; as floats where they are stored as integers for data of floats."""
    found = node.input(1)
    if not node.is_float() or node.tensor(1).dtype.is_float:
        return found
    scales, stored = node.scales(node.tensor(1)), node.array(1)
    shape = [-1 if axis == scales.axis and len(scales.scale) > 1 else 1 for axis in range(stored.ndim)]
    real = (stored.astype(np.float32) - scales.zero_point.reshape(shape).astype(np.float32)) * scales.scale.reshape(shape)
    return constant(real.astype(np.float32))


def _moved(weights: Expr, perm: tuple[int, ...]) -> Expr:
    """Weights with their axes in another order, at once where they are constant."""
    if isinstance(weights, Constant):
        return constant(np.ascontiguousarray(weights.data.transpose(perm)))
    return ops.transpose(weights, perm=perm)


def _fully_connected(node: Node) -> Expr:
    outputs, depth = node.tensor(1).shape
    if node.options.WeightsFormat():
        raise node.error("shuffled weights are not supported")
    rows = ops.reshape(node.input(0), shape=(int(np.prod(node.tensor(0).shape)) // max(depth, 1), depth))
    weights = _moved(_weights(node), (1, 0))
    total: Expr = ops.matmul(rows, weights)
    if node.is_float():
        total = node.bounded(ops.add(total, node.input(2)) if node.has(2) else total)
    else:
        _, zero_point = node.pair(node.tensor(0))
        total = _biased(node, total, weights, (0,), zero_point, 1)
        total = node.stored(total, _factors(node, outputs), 1, "up")
    return ops.reshape(total, shape=node.result.shape)


CONVERTERS: Mapping[str, Converter] = {
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
}
