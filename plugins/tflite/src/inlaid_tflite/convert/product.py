"""Convolutions, fully connected layers, matrix products."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.frontends.shapes import quotient
from inlaid.graph.conditions import require_equal, require_static
from inlaid.graph.ir import Constant, Expr, constant
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_tflite.convert.window import channels_last, channels_second, padded, read_strides, window_pads
from inlaid_tflite.fixed import in_vectors, rounded_away
from inlaid_tflite.node import Converter, Node, tensor_type, typed

ROUNDED_FACTORS = ("FULLY_CONNECTED", "BATCH_MATMUL")
"""Operators for which LiteRT multiplies the scales of data and weights in float32. For others, it does so only for uint8 data,
else in float64."""
VECTOR = 8
"""Channels per iteration of LiteRT's vector code that scales depthwise and transposed convolutions."""


def _convolution(node: Node, weights: Expr, groups: int, rounding: str) -> Expr:
    """Convert a convolution of input 0 by weights O I H W, plus the bias at input 2."""
    strides, dilations = read_strides(node), (node.options.DilationHFactor(), node.options.DilationWFactor())
    outputs, _, rows, columns = map(int, tensor_type(weights).shape)  # type: ignore[arg-type]
    pads = window_pads(node, (rows, columns), strides, dilations)
    data = channels_second(node.input(0))
    if node.is_float():
        total: Expr = ops.conv(data, weights, strides=strides, pads=pads, dilations=dilations, groups=groups)
        if node.has(2):
            total = ops.add(total, ops.reshape(node.input(2), shape=(outputs, 1, 1)))
        return channels_last(node.bounded(total))
    _, zero_point = node.pair(node.tensor(0))
    filled = padded(data, pads, np.array(zero_point, node.tensor(0).dtype.numpy))
    total = ops.conv(
        filled,
        weights,
        strides=strides,
        pads=(0, 0, 0, 0),
        dilations=dilations,
        groups=groups,
        out_dtype=_accumulator_dtype(node, 2),
    )
    total = _biased(node, total, weights, (1, 2, 3), zero_point, 1)
    factors = _factors(node, outputs)
    if rounding == "vectors":
        return channels_last(node.placed(in_vectors(total, factors, 1, VECTOR)))
    return channels_last(node.stored(total, factors, 1, rounding))


def _accumulator_dtype(node: Node, bias: int) -> str:
    """Return the dtype of integer accumulators: the dtype of the bias."""
    return "int64" if node.has(bias) and node.tensor(bias).dtype.name == "int64" else "int32"


def _biased(node: Node, total: Expr, weights: Expr, reduced: tuple[int, ...], zero_point: int, axis: int) -> Expr:
    """Add the bias at input 2 to integer sums, and subtract the contribution of the data's zero point."""
    dtype = tensor_type(total).dtype
    shape = tuple(-1 if position == axis else 1 for position in range(tensor_type(total).rank))
    if not isinstance(weights, Constant):
        weight_sums = ops.reduce_sum(ops.cast(weights, dtype=dtype.name), axes=reduced)
        outputs = tensor_type(weight_sums).shape[0]
        total = ops.sub(
            total,
            ops.reshape(ops.mul(weight_sums, constant(np.array(zero_point, dtype.numpy))), shape=_fill_extent(shape, outputs)),
        )
        if not node.has(2):
            return total
        bias = ops.reshape(ops.cast(node.input(2), dtype=dtype.name), shape=_fill_extent(shape, outputs))
        return ops.add(total, bias)
    static_bias = -np.array(zero_point, dtype.numpy) * weights.data.astype(dtype.numpy).sum(reduced, dtype=dtype.numpy)
    if node.has(2):
        static_bias = static_bias + node.array(2).astype(dtype.numpy)
    return ops.add(total, constant(static_bias.reshape(shape)))


def _fill_extent(shape: tuple[int, ...], size: Dim) -> tuple[Dim, ...]:
    return tuple(size if dim == -1 else dim for dim in shape)


def _factors(node: Node, outputs: int, weights: int = 1, data: int = 0) -> list[float]:
    """Return the real requantization factors of a product, one per output channel or one for all."""
    node.require("int8", "uint8", "int16")
    scale, _ = node.pair(node.tensor(data))
    scales = node.scales(node.tensor(weights))
    result_scale, _ = node.pair(node.result)
    if len(scales.scale) not in (1, outputs):
        raise node.error(f"weights must have one scale or one per output, {outputs}, got {len(scales.scale)}")
    in_float64 = node.name == "FULLY_CONNECTED" and _accumulator_dtype(node, 2) == "int64"
    if len(scales.scale) == 1 and not in_float64 and (node.name in ROUNDED_FACTORS or node.tensor(data).dtype.name == "uint8"):
        return [float(scale * scales.scale[0]) / float(result_scale)]
    return [float(scale) * float(each) / float(result_scale) for each in scales.scale]


def _conv_2d(node: Node) -> Expr:
    channels, depth = _channels(node), node.tensor(1).shape[3]
    if depth == 0 or channels % depth:
        raise node.error(f"the number of data channels must be a multiple of the weights' {depth} channels, got {channels}")
    if node.tensor(0).dtype.name == "int16" and _accumulator_dtype(node, 2) == "int32":
        raise node.error("int16 data must have an int64 bias: LiteRT's int32 sums overflow")
    rounding = "up" if channels == depth and node.tensor(0).dtype.bits == 8 else "away"
    return _convolution(node, _transposed(_weights(node), (0, 3, 1, 2)), channels // depth, rounding)


def _depthwise_conv_2d(node: Node) -> Expr:
    dtype = node.tensor(0).dtype.name
    if dtype == "int16" and node.tensor(1).dtype.bits < 8:
        raise node.error("4-bit weights for int16 data are not supported: store them as int8")
    rounding = "vectors" if dtype == "int8" else "away"
    return _convolution(node, _transposed(_weights(node), (3, 0, 1, 2)), _channels(node), rounding)


def _channels(node: Node) -> int:
    """Return the number of channels of the data, which with the weights determines the number of groups."""
    return require_static(node.tensor(0).shape[3], "the number of data channels")


def _weights(node: Node, index: int = 1) -> Expr:
    """Return an input as weights: dequantized if the data is float, otherwise with the zero points subtracted."""
    weights, tensor = node.input(index), node.tensor(index)
    if tensor.dtype.is_float:
        return weights
    scales = node.scales(tensor)
    if not node.is_float():
        if np.any(scales.zero_point):
            return _centered(node, index)
        return constant(node.array(index).astype(np.int8)) if tensor.dtype.bits < 8 else weights
    stored = node.array(index)
    shape = [-1 if axis == scales.axis and len(scales.scale) > 1 else 1 for axis in range(stored.ndim)]
    real = (stored.astype(np.float32) - scales.zero_point.reshape(shape).astype(np.float32)) * scales.scale.reshape(shape)
    return constant(real.astype(np.float32))


def _centered(node: Node, index: int) -> Expr:
    """Subtract the zero point of 8-bit integers; the result has 16 bits if the zero point is not 0."""
    _, zero_point = node.pair(node.tensor(index))
    data = node.input(index)
    if not zero_point:
        return data
    if isinstance(data, Constant):
        return constant(data.data.astype(np.int16) - np.int16(zero_point))
    return ops.sub(ops.cast(data, dtype="int16"), constant(np.int16(zero_point)))


def _transposed(weights: Expr, perm: tuple[int, ...]) -> Expr:
    """Transpose weights. Constant weights are transposed at import."""
    if isinstance(weights, Constant):
        return constant(np.ascontiguousarray(weights.data.transpose(perm)))
    return ops.transpose(weights, perm=perm)


def _fully_connected(node: Node) -> Expr:
    outputs, depth = node.tensor(1).shape
    if node.options is not None and node.options.WeightsFormat():
        raise node.error("shuffled weights are not supported: LiteRT supports them only for old files")
    count = quotient(node.shape(0), [depth])
    rows = ops.reshape(node.input(0), shape=(count, depth))
    weights = _transposed(_weights(node), (1, 0))
    if node.is_float():
        total: Expr = ops.matmul(rows, weights)
        total = node.bounded(ops.add(total, ops.reshape(node.input(2), shape=(outputs,))) if node.has(2) else total)
    else:
        _, zero_point = node.pair(node.tensor(0))
        total = ops.matmul(rows, weights, out_dtype=_accumulator_dtype(node, 2))
        total = _biased(node, total, weights, (0,), zero_point, 1)
        total = _stored_rows(node, total, outputs)
    outer = node.shape(0)[:-1] if node.option("KeepNumDims", False) else (count,)
    return ops.reshape(total, shape=(*outer, outputs))


def _stored_rows(node: Node, total: Expr, outputs: int) -> Expr:
    """Requantize the sums of a fully connected layer. LiteRT scales int64 sums in float64."""
    factors = _factors(node, outputs)
    if tensor_type(total).dtype.name == "int32":
        return node.stored(total, factors, 1, "up")
    real = ops.mul(ops.cast(total, dtype="float64"), constant(np.array(factors)))
    return node.placed(ops.cast(rounded_away(real), dtype="int32"))


def _batch_matmul(node: Node) -> Expr:
    """Convert BATCH_MATMUL. The options adj_x and adj_y transpose an operand."""
    sides = []
    for index, transposed in ((0, node.option("AdjX")), (1, node.option("AdjY"))):
        side = _weights(node, index) if node.is_float() else _centered(node, index)
        rank = tensor_type(side).rank
        sides.append(_transposed(side, (*range(rank - 2), rank - 1, rank - 2)) if transposed else side)
    if node.is_float():
        return ops.matmul(*sides)
    wide = node.tensor(0).dtype.bits == 16
    total = ops.matmul(*sides, out_dtype="int64" if wide else "int32")
    return node.stored(total, _factors(node, 1), rounding="away")


# --- transposed and 3-d convolutions -------------------------------------------------------------------------------


def _crops(node: Node, kernel: tuple[int, ...], strides: tuple[int, ...], channels: int) -> tuple[int, ...]:
    """Return the number of elements to crop before and after each spatial axis of a transposed convolution. Input 0 is the shape of
    the result, input 2 the data; both are N, the spatial sizes, C."""
    batch, *outputs, result_channels = node.dims(0)
    data_batch, *sizes, _ = node.shape(2)
    with node.relations():
        require_equal(batch, data_batch, "the batch in the shape of the result")
        require_equal(result_channels, channels, "the number of channels in the shape of the result")
    keeps_extent = node.options.Padding() == 0
    before, after = [], []
    for size, taps, stride, output in zip(sizes, kernel, strides, outputs, strict=True):
        size, output = require_static(size, "the image sizes"), require_static(output, "the image sizes of the result")
        missing = max((-(-output // stride) - 1) * stride + taps - output, 0) if keeps_extent else 0
        before.append(missing // 2)
        after.append((size - 1) * stride + taps - before[-1] - output)
    return (*before, *after)


def _transpose_conv(node: Node) -> Expr:
    strides = read_strides(node)
    data = _centered(node, 2) if not node.is_float() else node.input(2)
    weights = _transposed(_weights(node), (3, 0, 1, 2))
    outputs, rows, columns, _ = node.tensor(1).shape
    pads = _crops(node, (rows, columns), strides, outputs)
    if node.is_float():
        total: Expr = ops.conv_transpose(channels_second(data), weights, strides=strides, pads=pads)
        if node.has(3):
            total = ops.add(total, ops.reshape(node.input(3), shape=(outputs, 1, 1)))
        return channels_last(node.bounded(total))
    sum_dtype = "int64" if node.tensor(2).dtype.bits == 16 else "int32"
    total = ops.conv_transpose(channels_second(data), weights, strides=strides, pads=pads, out_dtype=sum_dtype)
    if node.has(3):
        total = ops.add(total, constant(node.array(3).astype(sum_dtype).reshape(outputs, 1, 1)))
    factors = _factors(node, outputs, data=2)
    match node.tensor(2).dtype.name:
        case "int8":
            return channels_last(node.placed(in_vectors(total, factors, 1, VECTOR)))
        case "uint8":  # a single factor for all channels
            pixels = channels_last(total)
            shape = tensor_type(pixels).shape
            flat = ops.reshape(pixels, shape=(arith.product(shape),))
            return ops.reshape(node.placed(in_vectors(flat, factors, 0, 2 * VECTOR)), shape=shape)
    return channels_last(node.stored(total, factors, 1))


def _strides_and_dilations_3d(node: Node) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return 3-d strides and dilations. Raises `ModelImportError` if one is not positive."""
    options = node.options
    strides = (options.StrideD(), options.StrideH(), options.StrideW())
    dilations = (options.DilationDFactor(), options.DilationHFactor(), options.DilationWFactor())
    if min(*strides, *dilations) < 1:
        raise node.error(f"strides and dilations must be >= 1, got {strides} and {dilations}")
    return strides, dilations


def _conv_3d(node: Node) -> Expr:
    strides, dilations = _strides_and_dilations_3d(node)
    kernel = node.tensor(1).shape[:3]
    pads = window_pads(node, kernel, strides, dilations)
    total: Expr = ops.conv(
        channels_second(node.input(0)), _transposed(node.input(1), (4, 3, 0, 1, 2)), strides=strides, pads=pads, dilations=dilations
    )
    return _add_channel_bias(node, total, 2)


def _conv_3d_transpose(node: Node) -> Expr:
    strides, dilations = _strides_and_dilations_3d(node)
    if dilations != (1, 1, 1):
        raise node.error(f"dilations must be 1, the only value that LiteRT supports, got {dilations}")
    pads = _crops(node, node.tensor(1).shape[:3], strides, node.tensor(1).shape[3])
    weights = _transposed(node.input(1), (4, 3, 0, 1, 2))
    return _add_channel_bias(node, ops.conv_transpose(channels_second(node.input(2)), weights, strides=strides, pads=pads), 3)


def _add_channel_bias(node: Node, total: Expr, bias: int) -> Expr:
    if node.has(bias):
        total = ops.add(total, ops.reshape(node.input(bias), shape=(tensor_type(total).shape[1], 1, 1, 1)))
    return channels_last(node.bounded(total))


CONVERTERS: Mapping[str, Converter] = {
    "BATCH_MATMUL": typed(_batch_matmul, "float32 int8 int16"),
    "CONV_2D": typed(_conv_2d, "float32 int8 uint8 int16"),
    "CONV_3D": typed(_conv_3d, "float32"),
    "CONV_3D_TRANSPOSE": typed(_conv_3d_transpose, "float32", 2),
    "DEPTHWISE_CONV_2D": typed(_depthwise_conv_2d, "float32 int8 uint8 int16"),
    "FULLY_CONNECTED": typed(_fully_connected, "float32 int8 uint8 int16"),
    "TRANSPOSE_CONV": typed(_transpose_conv, "float32 int8 uint8 int16", 2),
}
