"""Conversions between dtypes.

An integer converted to another integer dtype keeps its low bits. A float converted to an integer is truncated and saturated; if the
integer has fewer than 8 bits, it is saturated to int32 and keeps the low bits. NaN becomes 0. Conversion to bool computes x != 0.
Conversion to a float rounds to nearest even; a value out of range becomes infinity, or NaN if the dtype has no infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid.graph.operator import Attrs, FusionKind, Operator, Traits
from inlaid.ops.define import ANY, Array, make_family, quiet, tensor_type, widen, widen_array, working_dtype
from inlaid.tensor import ir, te
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype, from_numpy

_EXPONENT_NAN = 0xFF  # the only float8e8m0 code that is not a power of two


@dataclass(frozen=True)
class CastAttrs(Attrs):
    """`dtype`: the dtype to convert to.

    `saturate`: for 8-bit floats, a value out of range becomes the largest finite value instead of infinity or NaN.
    `round_mode`: "up", "down" or "nearest"; only for float8e8m0.
    `denormals`: False allows flushing denormal operands to zeros of the same sign.
    """

    dtype: str
    saturate: bool = True
    round_mode: str = "up"
    denormals: bool = True


def _is_float8(element_dtype: DType) -> bool:
    return element_dtype.is_float and element_dtype.bits == 8


def greatest(element_dtype: DType) -> float:
    """Return the largest finite value of a float dtype."""
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    return float(finfo(element_dtype.numpy).max)


# --- numpy ------------------------------------------------------------------------------------------------------------


def _float_to_integer(x: Array, to: DType) -> Array:
    lowest, highest = to.limits
    wide = np.trunc(x.astype(np.float64))
    # highest + 1 is a power of two and so exact in float64, while highest may not be.
    too_low, too_high = wide < lowest, wide >= highest + 1
    in_range = np.where(too_low | too_high | np.isnan(wide), 0, wide).astype(np.uint64 if to.kind == "uint" else np.int64)
    return np.where(too_low, lowest, np.where(too_high, highest, in_range)).astype(in_range.dtype).astype(to.numpy)


def _to_exponent(x: Array, saturate: bool, round_mode: str) -> Array:
    """Convert float32 to float8e8m0, which has only an exponent: round to a power of two."""
    bits = np.ascontiguousarray(x.astype(np.float32)).view(np.uint32).reshape(x.shape)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "up":
        exponent = exponent + (fraction != 0)
    elif round_mode == "nearest":
        exponent = exponent + (fraction >= np.where(exponent == 0, 0x400001, 0x400000))
    if saturate:
        exponent = np.minimum(exponent, _EXPONENT_NAN - 1)
    exponent = np.where(np.isnan(x), _EXPONENT_NAN, np.minimum(exponent, _EXPONENT_NAN))
    return exponent.astype(np.uint8).view(dtype("float8e8m0").numpy)


@quiet
def convert(x: Array, to: DType, saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert an array to another dtype."""
    source_dtype = from_numpy(x.dtype)
    if source_dtype is to:
        return x
    if to.kind == "bool":
        return np.asarray(widen_array(x) != 0)
    if source_dtype.is_float and to.is_int:
        # Sub-byte dtypes keep the low bits of a wider integer, as in ONNX.
        return _float_to_integer(x, to) if to.bits >= 8 else _float_to_integer(x, dtype("int32")).astype(to.numpy)
    wide = widen_array(x)
    if to.name == "float8e8m0":
        return _to_exponent(wide, saturate, round_mode)
    if saturate and _is_float8(to):
        wide = np.clip(wide.astype(working_dtype(source_dtype if source_dtype.is_float else to).numpy), -greatest(to), greatest(to))
    elif to.is_float and not source_dtype.is_float:
        wide = wide.astype(working_dtype(to).numpy)
    return wide.astype(to.numpy)


# --- tensor expression ------------------------------------------------------------------------------------------------


def _exponent_value(x: ir.Expr, saturate: bool, round_mode: str) -> ir.Expr:
    """Convert a float32 value to float8e8m0, which has only an exponent: round to a power of two."""
    x = te.cast(x, "float32")
    bits = te.bitcast(x, "uint32")
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "up":
        exponent = exponent + te.cast(fraction.not_equal(0), "uint32")
    elif round_mode == "nearest":
        half = te.select(exponent.equal(0), te.const(0x400001, "uint32"), 0x400000)
        exponent = exponent + te.cast(fraction >= half, "uint32")
    exponent = te.minimum(exponent, _EXPONENT_NAN - 1 if saturate else _EXPONENT_NAN)
    exponent = te.select(te.unary("isnan", x), te.const(_EXPONENT_NAN, "uint32"), exponent)
    return te.bitcast(te.cast(exponent, "uint8"), "float8e8m0")


def convert_value(x: ir.Expr, to: DType, saturate: bool = True, round_mode: str = "up") -> ir.Expr:
    """Convert a value to another dtype, using only conversions to and from working dtypes."""
    source_dtype = x.dtype
    if source_dtype is to:
        return x
    wide = widen(x)
    if to.kind == "bool":
        return wide.not_equal(0)
    if to.is_int:
        if source_dtype.is_float and to.bits < 8:
            wide = te.cast(wide, "int32")
        return te.cast(te.cast(wide, working_dtype(to)), to)
    if not source_dtype.is_float:
        wide = te.cast(wide, working_dtype(to))
    if to.name == "float8e8m0":
        return _exponent_value(wide, saturate, round_mode)
    if saturate and _is_float8(to):
        wide = te.minimum(te.maximum(wide, -greatest(to)), greatest(to))
    return te.cast(wide, to)


# --- operators --------------------------------------------------------------------------------------------------------


def _cast_infer(attrs: CastAttrs, x: Type) -> Type:
    if dtype(attrs.dtype).kind == "string":
        raise ValueError("expected a numeric dtype or bool, got string: use string_cast")
    if attrs.round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode must be up, down or nearest, got {attrs.round_mode!r}")
    return TensorType(tensor_type(x, ANY).shape, attrs.dtype)


def _cast_reference(attrs: CastAttrs, x: Array) -> Array:
    result: Array = convert(x, dtype(attrs.dtype), attrs.saturate, attrs.round_mode)
    return result


def _cast_compute(attrs: CastAttrs, x: te.Tensor) -> te.Tensor:
    to = dtype(attrs.dtype)
    flushes = not attrs.denormals and x.dtype.name == "float32" and to.is_float

    def element(*index: Any) -> ir.Expr:
        value = te.math("flush", x[index]) if flushes else x[index]
        return convert_value(value, to, attrs.saturate, attrs.round_mode)

    result: te.Tensor = te.compute(x.shape, element, "cast")
    return result


cast = Operator(
    "cast",
    _cast_infer,
    CastAttrs,
    reference=_cast_reference,
    compute=_cast_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    traits=Traits(interval=lambda x: x),
    inputs=("x",),
    doc="""Convert to another dtype.
To an integer dtype, an integer keeps its low bits; a float is truncated and saturated, and NaN becomes 0. To bool, the result is
x != 0. To a float dtype, x is rounded half to even; an overflow becomes infinity, or NaN if the dtype has no infinity.
Operand: x, numeric or bool, any shape. Result: dtype `dtype`, shape of x.""",
)


@dataclass(frozen=True)
class BitcastAttrs(Attrs):
    """`dtype`: the dtype of the result, of the same width as the operand's."""

    dtype: str


def _bit_width(element_dtype: DType) -> int:
    """Return the width in bits for a bit cast: a bool is a byte that is 0 or 1."""
    return 8 if element_dtype.kind == "bool" else element_dtype.bits


def _bitcast_infer(attrs: BitcastAttrs, x: Type) -> Type:
    tensor, to = tensor_type(x, ANY), dtype(attrs.dtype)
    if _bit_width(to) != _bit_width(tensor.dtype):
        raise ValueError(
            f"the dtype must have the {_bit_width(tensor.dtype)} bits of {tensor.dtype}, got {to} with {_bit_width(to)} bits"
        )
    return TensorType(tensor.shape, to)


def _bitcast_reference(attrs: BitcastAttrs, x: Array) -> Array:
    to = dtype(attrs.dtype)
    if to.kind == "bool":
        return np.asarray(_bitcast_reference(BitcastAttrs("uint8"), x) != 0)
    if _bit_width(to) == 8 * to.bytes:
        return np.ascontiguousarray(x).view(to.numpy).reshape(x.shape)
    # The storage of a sub-byte dtype has more bits than the value.
    low = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) & ((1 << to.bits) - 1)
    return low.astype(np.int8).astype(to.numpy) if to.is_int else np.asarray(low, np.uint8).view(to.numpy)


def _bitcast_value(x: ir.Expr, to: DType) -> ir.Expr:
    if x.dtype is to:
        return x
    if x.dtype.kind == "bool":
        return te.bitcast(te.cast(x, "uint8"), to)
    if to.kind == "bool":
        return te.bitcast(x, "uint8").not_equal(0)
    if _bit_width(to) == 8 * to.bytes:
        return te.bitcast(x, to)
    low = te.bitcast(widen(x), "uint8") if x.dtype.is_int else te.bitcast(x, "uint8")
    if to.is_int:
        return te.cast(te.bitcast(low, working_dtype(to)), to)
    return te.bitcast(low & ((1 << to.bits) - 1), to)


def _bitcast_compute(attrs: BitcastAttrs, x: te.Tensor) -> te.Tensor:
    to = dtype(attrs.dtype)
    result: te.Tensor = te.compute(x.shape, lambda *i: _bitcast_value(x[i], to), "bitcast")
    return result


bitcast = Operator(
    "bitcast",
    _bitcast_infer,
    BitcastAttrs,
    reference=_bitcast_reference,
    compute=_bitcast_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    inputs=("x",),
    doc="""Reinterpret the bits of each element as another dtype of the same width.
Operand: x, numeric or bool, any shape.""",
)

OPERATORS = make_family(cast, bitcast)
