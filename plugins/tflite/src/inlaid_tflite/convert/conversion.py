"""Quantization, dequantization and casts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_equal
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import join, slice_axis
from inlaid_runtime import arith
from inlaid_tflite.fixed import in_vectors, round_down_to_vectors, rounded_away
from inlaid_tflite.node import Converter, Node, tensor_type, typed

FLOATS = 8
"""Floats per iteration of LiteRT's vector code for quantization."""
VECTOR = 16
"""Elements per iteration of LiteRT's vector code for requantization."""


def _quantize(node: Node) -> Expr:
    """Convert QUANTIZE of floats. LiteRT's vector code multiplies by the reciprocal of the scale in float32 and rounds half to
    even; its remainder loop divides in float64 and rounds half away from 0."""
    if not node.tensor(0).dtype.is_float:
        return _requantize(node)
    result_scale, _ = node.pair(node.result)
    shape = node.shape(0)
    total = arith.product(shape)
    vectorized_count = round_down_to_vectors(total, FLOATS)
    flat = ops.reshape(node.input(0), shape=(total,))
    vector_part = ops.round(ops.mul(slice_axis(flat, 0, 0, vectorized_count), constant(np.float32(1) / result_scale)))
    remainder_part = ops.div(
        ops.cast(slice_axis(flat, 0, vectorized_count, total), dtype="float64"), constant(np.float64(result_scale))
    )
    parts = [_placed(node, vector_part)] * (vectorized_count != 0 or total == 0) + [_placed(node, rounded_away(remainder_part))] * (
        vectorized_count != total
    )
    return ops.reshape(join(parts, 0), shape=shape)


def _placed(node: Node, real: Expr) -> Expr:
    """Add the zero point to rounded real numbers and cast them to the result's dtype."""
    _, zero_point = node.pair(node.result)
    shifted = ops.add(real, constant(np.array(zero_point, tensor_type(real).dtype.numpy)))
    least, greatest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(shifted, minimum=least, maximum=greatest), dtype=node.result.dtype.name)


def _requantize(node: Node) -> Expr:
    """Convert QUANTIZE of integers. For 8 bits, LiteRT's vector code rounds half up, its remainder loop half away from 0."""
    (scale, _), (result_scale, _) = node.pair(node.tensor(0)), node.pair(node.result)
    factor, shape = [float(scale) / float(result_scale)], node.shape(0)
    if node.tensor(0).dtype.bits != 8 or node.result.dtype.bits != 8:
        return node.stored(node.wide(0), factor)
    flat = ops.reshape(node.wide(0), shape=(arith.product(shape),))
    return ops.reshape(node.placed(in_vectors(flat, factor, 0, VECTOR)), shape=shape)


def _dequantize(node: Node) -> Expr:
    node.require("float32")
    if node.tensor(0).dtype.is_float:
        return ops.cast(node.input(0), dtype="float32")
    scales = node.scales(node.tensor(0))
    if len(scales.scale) == 1:
        return ops.mul(ops.cast(node.wide(0), dtype="float32"), constant(scales.scale[0]))
    shape = [-1 if axis == scales.axis else 1 for axis in range(len(node.tensor(0).shape))]
    with node.relations():
        require_equal(len(scales.scale), node.shape(0)[scales.axis], f"the number of scales of dimension {scales.axis}")
    centered = ops.sub(ops.cast(node.input(0), dtype="int32"), constant(scales.zero_point.astype(np.int32).reshape(shape)))
    return ops.mul(ops.cast(centered, dtype="float32"), constant(scales.scale.reshape(shape)))


def _cast(node: Node) -> Expr:
    target_dtype = node.result.dtype
    if target_dtype is node.tensor(0).dtype:
        return node.input(0)
    return ops.cast(node.input(0), dtype=target_dtype.name)


def _fake_quant(node: Node) -> Expr:
    """Convert FAKE_QUANT: round real numbers to the quantization steps between two bounds; 0 is a step."""
    low, high, bits = np.float32(node.options.Min()), np.float32(node.options.Max()), node.options.NumBits()
    if node.options.NarrowRange():
        raise node.error("narrow_range must be False: LiteRT does not support it")
    if not (low <= 0 <= high and low < high and 2 <= bits <= 16):
        raise node.error(f"num_bits must be 2 to 16 and min <= 0 <= max, got {bits} bits from {low} to {high}")
    greatest = np.float32((1 << bits) - 1)
    scale = (high - low) / greatest
    zero_step = np.clip(np.floor(np.float32(0.5) - low / scale), np.float32(0), greatest)
    first, last = -zero_step * scale, (greatest - zero_step) * scale
    inverse = np.float32(1) / scale
    clamped = ops.clip(node.input(0), minimum=float(first), maximum=float(last))
    steps = ops.mul(ops.sub(clamped, constant(np.float32(first))), constant(np.float32(inverse)))
    rounded = ops.floor(ops.add(steps, constant(np.float32(0.5))))
    return ops.add(ops.mul(rounded, constant(np.float32(scale))), constant(np.float32(first)))


ELEMENTS = "float32 float16 bfloat16 float64 int8 uint8 int16 int32 uint32 int64 bool"

CONVERTERS: Mapping[str, Converter] = {
    "CAST": typed(_cast, ELEMENTS),
    "DENSIFY": lambda node: node.input(0),
    "DEQUANTIZE": typed(_dequantize, "float16 int4 int8 uint8 int16"),
    "FAKE_QUANT": typed(_fake_quant, "float32"),
    "QUANTIZE": typed(_quantize, "float32 int8 uint8 int16 int32"),
}
