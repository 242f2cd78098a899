"""Quantization: real value = (stored value - zero point) * scale. In an integer dtype, NaN is stored as the zero point, which is
the real value 0.

Scale and zero point have the same shape: 0-d (per tensor); 1-d, one element per index of `axis` (per channel); or, with
`block_size` b > 0, the shape of the data with ceil(d / b) in place of the extent d of `axis`, one element per block of b elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.operator import Attrs, ErrorPropagation, FusionKind, Operator, Traits
from inlaid.ops.conversion import convert, convert_value
from inlaid.ops.define import (
    FLOAT,
    NUMERIC,
    Array,
    broadcast_read,
    check_axis,
    common_dtype,
    make_family,
    quiet,
    tensor_type,
    widen,
    widen_array,
)
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype


@dataclass(frozen=True)
class QuantizeAttrs(Attrs):
    """`dtype`: the dtype of the result, of at most 16 bits. `axis`: the axis of 1-d scales and of blocks. `block_size`: elements
    per block along `axis`; 0: no blocks. `saturate`: whether a float8 result saturates instead of becoming infinity or NaN."""

    dtype: str
    axis: int = 0
    block_size: int = 0
    saturate: bool = True


@dataclass(frozen=True)
class DequantizeAttrs(Attrs):
    """`dtype`: the float dtype of the result. `axis`: the axis of 1-d scales and of blocks. `block_size`: elements per block along
    `axis`; 0: no blocks."""

    dtype: str
    axis: int = 0
    block_size: int = 0


@dataclass(frozen=True)
class RequantizeAttrs(Attrs):
    """`dtype`: the integer dtype of the result. `axis`: the axis of 1-d scales.

    `rounding`: "half_even" multiplies in float32 and rounds to nearest, halves to even, as ONNX does.
    """

    dtype: str
    axis: int = 0
    rounding: str = "half_even"


# --- scale of an element ----------------------------------------------------------------------------------------------


def _check_granularity(x: TensorType, parameter: TensorType, axis: int, block_size: int, what: str) -> None:
    if parameter.rank == 0:
        return
    check_axis(axis, x.rank)
    if block_size < 0:
        raise ValueError(f"block_size must be >= 0, got {block_size}")
    if block_size == 0:
        require_shape(parameter.shape, (x.shape[axis],), what)
        return
    block_shape = list(x.shape)
    block_shape[axis] = arith.unwrap(arith.ceildiv(x.shape[axis], block_size))
    require_shape(parameter.shape, block_shape, what)


def _expand(parameter: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """Expand scales or zero points to one per element along `axis`, shaped to broadcast."""
    if parameter.ndim == 0:
        return parameter
    if block_size == 0:
        return parameter.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    return np.take(parameter, np.arange(shape[axis]) // block_size, axis)


def _read(parameter: te.Tensor, shape: Sequence[Dim], indices: tuple[arith.Var, ...], axis: int, block_size: int) -> ir.Expr:
    """Read the scale or zero point of an element."""
    if parameter.rank == 0:
        return parameter[()]
    if block_size == 0:
        return broadcast_read(parameter, (shape[axis],), (indices[axis],))
    return parameter[(*indices[:axis], arith.floordiv(indices[axis], block_size), *indices[axis + 1 :])]


# --- between real and stored values -----------------------------------------------------------------------------------


def _store(real: Array, zero_point: Array | None, to: DType, saturate: bool) -> Array:
    """Convert scaled real values to stored values."""
    if to.is_float:
        shifted = real if zero_point is None else real + widen_array(zero_point).astype(real.dtype)
        converted: Array = convert(shifted, to, saturate)
        return converted
    shifted = np.rint(real) if zero_point is None else np.rint(real) + zero_point.astype(real.dtype)
    nan_value = 0 if zero_point is None else zero_point
    stored: Array = convert(np.where(np.isnan(real), nan_value, np.clip(shifted, *map(real.dtype.type, to.limits))), to)
    return stored


def _store_value(real: ir.Expr, zero_point: ir.Expr | None, to: DType, saturate: bool) -> ir.Expr:
    if to.is_float:
        if zero_point is not None:
            real = real + te.cast(widen(zero_point), real.dtype)
        return convert_value(real, to, saturate)
    # Clamp first: then the rounded value fits int32, and code generators can round and convert with one instruction.
    limits: list[ir.Expr] = [te.const(limit, real.dtype) for limit in to.limits]
    if zero_point is not None:
        limits = [limit - te.cast(widen(zero_point), real.dtype) for limit in limits]
    integer = te.cast(te.unary("round", te.minimum(te.maximum(real, limits[0]), limits[1])), "int32")
    return convert_value(integer if zero_point is None else integer + te.cast(widen(zero_point), "int32"), to)


def _check_stored(to: DType) -> DType:
    if to.bits > 16 or to.kind not in ("int", "uint", "float"):
        raise ValueError(f"dtype must be an integer or float of at most 16 bits, got {to}")
    return to


def _quantize_infer(attrs: QuantizeAttrs, x: Type, scale: Type, zero_point: Type | None = None) -> Type:
    tensor, scales = tensor_type(x, FLOAT), tensor_type(scale, FLOAT, "the scale")
    common_dtype(tensor, scales)
    to = _check_stored(dtype(attrs.dtype))
    _check_granularity(tensor, scales, attrs.axis, attrs.block_size, "the scale")
    if zero_point is not None:
        zero_points = tensor_type(zero_point, NUMERIC, "the zero point")
        if zero_points.dtype is not to:
            raise ValueError(f"the zero point must be {to}, got {zero_points.dtype}")
        _check_granularity(tensor, zero_points, attrs.axis, attrs.block_size, "the zero point")
    return TensorType(tensor.shape, to)


@quiet
def _quantize_reference(attrs: QuantizeAttrs, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    def expand(parameter: Array) -> Array:
        return _expand(parameter, x.shape, attrs.axis, attrs.block_size)

    real = np.asarray(widen_array(x) / expand(widen_array(scale)))
    return _store(real, None if zero_point is None else expand(zero_point), dtype(attrs.dtype), attrs.saturate)


def _quantize_compute(attrs: QuantizeAttrs, x: te.Tensor, scale: te.Tensor, zero_point: te.Tensor | None = None) -> te.Tensor:
    def element(*indices: arith.Var) -> ir.Expr:
        def read(parameter: te.Tensor) -> ir.Expr:
            return _read(parameter, x.shape, indices, attrs.axis, attrs.block_size)

        real = widen(x[indices]) / widen(read(scale))
        return _store_value(real, None if zero_point is None else read(zero_point), dtype(attrs.dtype), attrs.saturate)

    result: te.Tensor = te.compute(x.shape, element, "quantize")
    return result


quantize = Operator(
    "quantize",
    _quantize_infer,
    QuantizeAttrs,
    reference=_quantize_reference,
    compute=_quantize_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    traits=Traits(errors=ErrorPropagation.AMPLIFIES),
    arity=(2, 3),
    inputs=("x", "scale", "zero_point"),
    doc="""Quantize: round(x / scale) + zero_point, rounded half to even, saturated. In an integer dtype, NaN is stored as the
zero point.
Operands: x, float, any shape; scale, dtype of x; zero_point?, dtype `dtype`. Scale and zero point are 0-d (per tensor), one element
per index of `axis` (per channel), or one per block (see `block_size`). Result: dtype `dtype`, shape of x.""",
)


def _dequantize_infer(attrs: DequantizeAttrs, x: Type, scale: Type, zero_point: Type | None = None) -> Type:
    tensor, scales = tensor_type(x, NUMERIC), tensor_type(scale, FLOAT, "the scale")
    if not dtype(attrs.dtype).is_float:
        raise ValueError(f"dtype must be a float, got {attrs.dtype}")
    _check_granularity(tensor, scales, attrs.axis, attrs.block_size, "the scale")
    if zero_point is not None:
        zero_points = tensor_type(zero_point, NUMERIC, "the zero point")
        common_dtype(tensor, zero_points)
        _check_granularity(tensor, zero_points, attrs.axis, attrs.block_size, "the zero point")
    return TensorType(tensor.shape, attrs.dtype)


def _dequantization_dtype(to: DType) -> DType:
    return dtype("float64" if to.name == "float64" else "float32")


@quiet
def _dequantize_reference(attrs: DequantizeAttrs, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    def expand(parameter: Array) -> Array:
        return _expand(parameter, x.shape, attrs.axis, attrs.block_size)

    to = dtype(attrs.dtype)
    working = _dequantization_dtype(to).numpy
    wide = widen_array(x)
    if wide.dtype.kind in "iu":
        wide = wide.astype(np.int32)
    if zero_point is not None:
        wide = wide - expand(zero_point).astype(wide.dtype)
    return np.asarray(wide.astype(working) * expand(scale).astype(working)).astype(to.numpy)


def _dequantize_compute(attrs: DequantizeAttrs, x: te.Tensor, scale: te.Tensor, zero_point: te.Tensor | None = None) -> te.Tensor:
    to = dtype(attrs.dtype)

    def element(*indices: arith.Var) -> ir.Expr:
        def read(parameter: te.Tensor) -> ir.Expr:
            return _read(parameter, x.shape, indices, attrs.axis, attrs.block_size)

        wide = widen(x[indices])
        if wide.dtype.is_int:
            wide = te.cast(wide, "int32")
        if zero_point is not None:
            wide = wide - te.cast(widen(read(zero_point)), wide.dtype)
        return te.cast(te.cast(wide, _dequantization_dtype(to)) * te.cast(widen(read(scale)), _dequantization_dtype(to)), to)

    result: te.Tensor = te.compute(x.shape, element, "dequantize")
    return result


dequantize = Operator(
    "dequantize",
    _dequantize_infer,
    DequantizeAttrs,
    reference=_dequantize_reference,
    compute=_dequantize_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    arity=(2, 3),
    inputs=("x", "scale", "zero_point"),
    doc="""Dequantize: (x - zero_point) * scale.
Operands: x, numeric, any shape; scale, float; zero_point?, dtype of x. Scale and zero point are 0-d (per tensor), one element per
index of `axis` (per channel), or one per block (see `block_size`). Result: dtype `dtype`, shape of x. The difference is int32 for
integers.""",
)


def _requantize_infer(attrs: RequantizeAttrs, x: Type, scale: Type, zero_point: Type) -> Type:
    tensor = tensor_type(x)
    scales, zero_points = tensor_type(scale, what="the scale"), tensor_type(zero_point, what="the zero point")
    if tensor.dtype.name != "int32" or scales.dtype.name != "float32":
        raise ValueError(f"x must be int32 and scale float32, got {tensor.dtype} and {scales.dtype}")
    to = _check_stored(dtype(attrs.dtype))
    if to.is_float or zero_points.dtype is not to:
        raise ValueError(f"dtype must be an integer and equal the dtype of the zero point, got {to} and {zero_points.dtype}")
    if attrs.rounding != "half_even":
        raise ValueError(f"rounding must be half_even, got {attrs.rounding!r}")
    _check_granularity(tensor, scales, attrs.axis, 0, "the scale")
    _check_granularity(tensor, zero_points, attrs.axis, 0, "the zero point")
    return TensorType(tensor.shape, to)


@quiet
def _requantize_reference(attrs: RequantizeAttrs, x: Array, scale: Array, zero_point: Array) -> Array:
    real = np.asarray(x.astype(np.float32) * _expand(scale, x.shape, attrs.axis, 0))
    return _store(real, _expand(zero_point, x.shape, attrs.axis, 0), dtype(attrs.dtype), True)


def _requantize_compute(attrs: RequantizeAttrs, x: te.Tensor, scale: te.Tensor, zero_point: te.Tensor) -> te.Tensor:
    def element(*indices: arith.Var) -> ir.Expr:
        real = te.cast(x[indices], "float32") * _read(scale, x.shape, indices, attrs.axis, 0)
        return _store_value(real, _read(zero_point, x.shape, indices, attrs.axis, 0), dtype(attrs.dtype), True)

    result: te.Tensor = te.compute(x.shape, element, "requantize")
    return result


requantize = Operator(
    "requantize",
    _requantize_infer,
    RequantizeAttrs,
    reference=_requantize_reference,
    compute=_requantize_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    traits=Traits(monotone=True),
    arity=(3, 3),
    inputs=("x", "scale", "zero_point"),
    doc="""Requantize an int32 accumulator: round(x * scale) + zero_point, saturated.
Operands: x, int32, any shape; scale, float32 (product of the input scales / output scale); zero_point, dtype `dtype`; both 0-d or
one element per index of `axis`. Result: dtype `dtype`, an integer of at most 16 bits, shape of x.""",
)

OPERATORS = make_family(quantize, dequantize, requantize)
