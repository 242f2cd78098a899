"""Quantized operators, converted to the canonical form: integer operators with int32 results, then `requantize`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from inlaid.graph.conditions import require_broadcast_to
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expr_type, scalar
from inlaid.ops.conversion import cast
from inlaid.ops.elementwise import clip, div, equal, maximum, minimum, mul, neg, round, sub, where
from inlaid.ops.linear import matmul
from inlaid.ops.quantized import dequantize, quantize, requantize
from inlaid.ops.reduce import reduce_max, reduce_min
from inlaid.ops.shape import reshape
from inlaid_onnx.convert.conv import convolution
from inlaid_onnx.convert.shape import scalar as one_element
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.proto import decode_dtype
from inlaid_runtime.types import DType, dtype

# --- quantize, dequantize ---------------------------------------------------------------------------------------------


def _is_per_tensor(node: Node, index: int) -> bool:
    """Test whether the scale or zero point at `index` is per tensor: a scalar, or a vector of one element."""
    shape = node.tensor(index).shape
    if shape != (1,) or node.attrs.get("block_size", 0):
        return shape == ()
    data, axis = node.tensor(0).shape, node.attrs.get("axis", 1)
    return not -len(data) <= axis < len(data) or data[axis] != 1


def _parameters(node: Node, scale: Expr) -> tuple[Expr, ...]:
    """Return the scale and, if present, the zero point at input 2. Per-tensor parameters are reshaped to 0-d."""
    parameters = (scale,) if node.optional(2) is None else (scale, node.input(2))
    return tuple(reshape(item, shape=()) if _is_per_tensor(node, index) else item for index, item in enumerate(parameters, 1))


def _granularity(node: Node) -> tuple[int, int]:
    """Return (axis, block size) of the scales. For per-tensor scales, the axis is 0."""
    if _is_per_tensor(node, 1):
        return 0, 0
    rank = node.rank(0)
    axis = node.attrs.get("axis", 1)
    return (0 if rank == 1 and axis == 1 else node.axis(axis, rank)), node.attrs.get("block_size", 0)


def _precision(node: Node) -> DType:
    """Return the dtype of x / scale: the attribute `precision`, else the scale's dtype, or float32 if that has fewer than 16
    bits."""
    code = node.attrs.get("precision", 0)
    return decode_dtype(code) if code else node.dtype(1) if node.dtype(1).bits >= 16 else dtype("float32")


def _quantize(node: Node) -> Expr:
    code = node.attrs.get("output_dtype", 0)
    to = decode_dtype(code) if code else dtype("uint8") if node.optional(2) is None else node.dtype(2)
    precision, (axis, block_size) = _precision(node), _granularity(node)
    parameters = _parameters(node, cast_to(node.input(1), precision))
    saturate = bool(node.attrs.get("saturate", 1))
    x = cast_to(node.input(0), precision)
    return quantize(x, *parameters, dtype=to.name, axis=axis, block_size=block_size, saturate=saturate)


def _dequantize(node: Node) -> Expr:
    code, (axis, block_size) = node.attrs.get("output_dtype", 0), _granularity(node)
    to = decode_dtype(code) if code else node.dtype(1)
    return dequantize(node.input(0), *_parameters(node, node.input(1)), dtype=to.name, axis=axis, block_size=block_size)


def _dynamic_quantize(node: Node) -> tuple[Expr, ...]:
    """Convert DynamicQuantizeLinear to (uint8 data, scale, zero point), for the range of the data extended to include 0."""
    x, x_dtype = node.input(0), node.dtype(0)
    axes, zero, uint8_max = tuple(range(node.rank(0))), scalar(0, x_dtype), scalar(255, x_dtype)
    greatest = maximum(reduce_max(x, axes=axes), zero)
    least = minimum(reduce_min(x, axes=axes), zero)
    # All-zero data has an empty range; any scale is valid.
    step = div(sub(greatest, least), uint8_max)
    scale = where(equal(step, zero), scalar(1, x_dtype), step)
    zero_point = cast(round(clip(neg(div(least, scale)), minimum=0.0, maximum=255.0)), dtype="uint8")
    return quantize(x, scale, zero_point, dtype="uint8"), scale, zero_point


# --- integer products -------------------------------------------------------------------------------------------------


def _followed(value: Expr, trailing: int) -> Expr:
    """Append `trailing` dimensions of extent 1 to a vector, so that it broadcasts along an axis. A vector of one element becomes
    0-d."""
    type_ = expr_type(value)
    if type_.rank != 1:
        return value
    return reshape(value, shape=() if type_.shape == (1,) else (*type_.shape, *(1,) * trailing))


def _parameter(node: Node, index: int, trailing: int = 0) -> Expr | None:
    """Return an optional scale or zero point. A vector is reshaped to apply to the axis before the last `trailing` axes."""
    value = node.optional(index)
    return None if value is None else _followed(value, trailing)


def _scale(node: Node, index: int, trailing: int = 0) -> Expr:
    """Return a required scale in float32."""
    return cast_to(_followed(node.input(index), trailing), "float32")


def _per_tensor(node: Node, index: int) -> Expr | None:
    """Return an optional scale or zero point of a whole tensor, as 0-d."""
    value = node.optional(index)
    return None if value is None else one_element(node, value)


def _integers(node: Node, index: int, zero_point: Expr | None) -> Expr:
    """Cast an operand to int32 and subtract its zero point."""
    x = cast_to(node.input(index), "int32")
    if zero_point is None:
        return x
    with node.relations():
        require_broadcast_to(expr_type(zero_point).shape, expr_type(x).shape, f"the zero point of input {index}")
    return sub(x, cast_to(zero_point, "int32"))


def _convolution(node: Node, x: Expr, w: Expr, bias: Expr | None = None) -> Expr:
    return convolution(dataclasses.replace(node, inputs=(x, w, bias)))


def _conv_integer(node: Node) -> Expr:
    """Convert ConvInteger. Inputs: data, weights, zero point of the data, zero point of the weights (may be per output channel)."""
    x, w = _integers(node, 0, _per_tensor(node, 2)), _integers(node, 1, _parameter(node, 3, node.rank(1) - 1))
    return _convolution(node, x, w)


def _axes_after_rows(node: Node) -> int:
    """Return the number of axes after the row axis of the left operand."""
    return 1 if node.rank(0) > 1 else 0


def _matmul_integer(node: Node) -> Expr:
    """Convert MatMulInteger. Inputs: a, b, zero point of a (may be per row), zero point of b (may be per column)."""
    return matmul(_integers(node, 0, _parameter(node, 2, _axes_after_rows(node))), _integers(node, 1, _parameter(node, 3)))


def _qlinear_conv(node: Node) -> Expr:
    """Convert QLinearConv. Inputs: x, scale, zero point; w, scale, zero point; scale, zero point of the result; int32 bias."""
    x, w = _integers(node, 0, _per_tensor(node, 2)), _integers(node, 3, _parameter(node, 5, node.rank(3) - 1))
    total = _convolution(node, x, w, node.optional(8))
    data_scale, result_scale = (cast_to(one_element(node, node.input(index)), "float32") for index in (1, 6))
    factor = div(mul(data_scale, _scale(node, 4)), result_scale)
    return requantize(total, factor, one_element(node, node.input(7)), dtype=node.dtype(7).name, axis=1)


def _qlinear_matmul(node: Node) -> Expr:
    """Convert QLinearMatMul. Inputs: a, scale, zero point; b, scale, zero point; scale, zero point of the result.

    The scale and zero point of a may be per row, the scale and zero point of b per column.
    """
    to, zero_point = node.dtype(7), one_element(node, node.input(7))
    result_scale = cast_to(one_element(node, node.input(6)), "float32")
    trailing = _axes_after_rows(node)
    scales = [_scale(node, 1, trailing), _scale(node, 4)]
    with node.relations():
        for index, scale in zip((0, 3), scales, strict=True):
            require_broadcast_to(expr_type(scale).shape, node.tensor(index).shape, f"the scale of input {index}")
    scale = mul(*scales)
    if not node.dtype(0).is_int:
        float_product = matmul(cast_to(node.input(0), "float32"), cast_to(node.input(3), "float32"))
        return quantize(mul(float_product, scale), result_scale, zero_point, dtype=to.name)
    total = matmul(_integers(node, 0, _parameter(node, 2, trailing)), _integers(node, 3, _parameter(node, 5)))
    if expr_type(scale).rank < 2:
        last = max(expr_type(total).rank - 1, 0)
        return requantize(total, div(scale, result_scale), zero_point, dtype=to.name, axis=last)
    # Scales per row and per column are not a requantization along one axis, so the product is scaled in float32.
    return quantize(mul(cast_to(total, "float32"), scale), result_scale, zero_point, dtype=to.name)


CONVERTERS: Mapping[str, Converter] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}
