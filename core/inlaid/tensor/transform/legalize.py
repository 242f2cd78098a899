"""Lowers narrow element types that a processor lacks to types that every processor has.

A narrow type is represented by its carrier, the unsigned integer of the same storage size (int8 for signed narrow integers).
`legalize` replaces buffers of narrow types by buffers of carriers, and conversions, the main operation on narrow values besides
moves, by bit arithmetic. Any other arithmetic on narrow types is done in float32 (int8 for integers) and rounded once.

Conversions round half to even. A value above the largest finite value becomes infinity if the type has infinity, else NaN if the
type has NaN, else the largest value, as in `ml_dtypes`.
"""

from __future__ import annotations

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, binary, bitcast, cast, const, select
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType
from inlaid_runtime.types import dtype as as_dtype

FLOAT32, FLOAT64 = as_dtype("float32"), as_dtype("float64")
UINT32, INT32, INT8, UINT8 = as_dtype("uint32"), as_dtype("int32"), as_dtype("int8"), as_dtype("uint8")


@dataclass(frozen=True)
class NarrowFormat:
    """A narrow binary format: exponent bits, significand bits (`digits`), bias, and special codes.

    `top` is the code of the largest finite magnitude, `over` the code of values beyond it (infinity, NaN, or `top` itself), and
    `nan` the code of NaN (None: NaN becomes 0). With `unsigned_zero`, the code of negative zero is NaN.
    """

    exponent: int
    digits: int
    bias: int
    top: int
    over: int
    nan: int | None
    unsigned_zero: bool = False


FORMATS = {
    "float16": NarrowFormat(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bfloat16": NarrowFormat(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8e4m3fn": NarrowFormat(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8e4m3fnuz": NarrowFormat(4, 3, 8, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "float8e5m2": NarrowFormat(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8e5m2fnuz": NarrowFormat(5, 2, 16, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "float4e2m1": NarrowFormat(2, 1, 1, 0x7, 0x7, None),
}
EXPONENT_ONLY = "float8e8m0"
"""Powers of two from 2 ** -127 to 2 ** 127, encoded by their biased exponent; 255 is NaN."""
NARROW_INTEGERS = ("int2", "int4", "uint2", "uint4")


def carrier(dtype: DType) -> DType:
    """Return the carrier that represents a narrow type's values: int8 for signed narrow integers, else the unsigned integer of the
    same storage size."""
    if dtype.name in NARROW_INTEGERS:
        return INT8 if dtype.kind == "int" else UINT8
    return as_dtype(f"uint{dtype.bytes * 8}")


def legalize(
    program: ir.LoopProgram,
    native: frozenset[str],
    converted: frozenset[str] = frozenset(),
    flushed: frozenset[str] = frozenset(),
    *,
    wide: bool = True,
) -> ir.LoopProgram:
    """Rewrite a program to the element types in `native`, which must include float32, float64, bool and the integers of 8 to 64
    bits. `wide`: whether conversions of integers may compute in float64.

    For the floats in `converted`, the processor has instructions to convert from and to float32: these conversions are kept, with
    bitcasts from and to the carrier. For those in `flushed`, it converts from float32 with denormals as zeros: conversions of
    `flush(x)` are kept. Returns the same object if nothing changes. Mathematical functions of narrow types must already be
    expanded, except `flush`.
    """
    local = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    narrow = {
        buffer: ir.Buffer(buffer.name, buffer.shape, carrier(buffer.dtype), buffer.scope)
        for buffer in (*program.params, *local)
        if buffer.dtype.name not in native
    }
    if not narrow and all(node.dtype.name in native for node in ir.values_in(program.body)):
        return program
    return _Legalizer(narrow, native, converted, flushed, wide).program(program)


class _Legalizer(Rewriter):
    """Rebuilds programs with narrow values represented by their carriers."""

    def __init__(
        self,
        buffers: dict[ir.Buffer, ir.Buffer],
        native: frozenset[str],
        converted: frozenset[str],
        flushed: frozenset[str],
        wide: bool,
    ) -> None:
        super().__init__(buffers=buffers)
        self._wide = wide
        self._flushed = flushed
        self._converted = converted
        self._carriers = buffers
        self._native = native
        self._cache: dict[ir.Expr, ir.Expr] = {}

    def expr(self, expr: Expr) -> Expr:
        """Rebuild a value expression."""
        result = self._cache.get(expr)
        if result is None:
            result = self._cache[expr] = self._rebuilt(expr)
        return result

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rebuild a statement. Stores of 2- and 4-bit integers keep only the low bits, as `ml_dtypes` does."""
        new = super().stmt(stmt)
        if isinstance(stmt, ir.Store) and isinstance(new, ir.Store) and stmt.buffer.dtype.name in NARROW_INTEGERS:
            return ir.Store(new.buffer, new.indices, new.value & ((1 << stmt.buffer.dtype.bits) - 1))
        return new

    def _is_narrow(self, dtype: DType) -> bool:
        return dtype.name not in self._native

    def _rebuilt(self, expr: Expr) -> Expr:
        dtype = expr.dtype
        match expr:
            case ir.Load(buffer=buffer, indices=indices):
                load = ir.load(self._carriers.get(buffer, buffer), tuple(map(self.index, indices)))
                return _wrapped(load, dtype) if dtype.name in NARROW_INTEGERS else load
            case ir.Const(value=value):
                return const(encode_constant(value, dtype), carrier(dtype)) if self._is_narrow(dtype) else expr
            case ir.Index(index=index):
                index_value = ir.Index(carrier(dtype) if self._is_narrow(dtype) else dtype, self.index(index))
                return _wrapped(index_value, dtype) if self._is_narrow(dtype) else index_value
            case ir.Cast(a=ir.CallMath(name="flush", args=(a,))) if dtype.name in self._flushed and a.dtype is FLOAT32:
                return bitcast(cast(self.expr(a), dtype), carrier(dtype))
            case ir.CallMath(name="flush", args=(a,)):
                return self.expr(a)
            case ir.Cast(a=a):
                return self._cast(self.expr(a), a.dtype, dtype)
            case ir.Bitcast(a=a):
                return bitcast(self.expr(a), carrier(dtype) if self._is_narrow(dtype) else dtype)
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return select(self.expr(condition), self.expr(then), self.expr(otherwise))
        old = ir.operands(expr)
        if not any(self._is_narrow(arg.dtype) for arg in old):
            return ir.with_operands(expr, tuple(map(self.expr, old)))
        working = INT8 if dtype.kind == "int" else UINT8 if dtype.kind == "uint" else FLOAT32
        args = tuple(
            self._cast(self.expr(arg), arg.dtype, working) if self._is_narrow(arg.dtype) else self.expr(arg) for arg in old
        )
        return self._cast(_on_operands(expr, args), working, dtype) if self._is_narrow(dtype) else _on_operands(expr, args)

    def _cast(self, value: Expr, source: DType, target: DType) -> Expr:
        """Convert a rebuilt value from one type to another; either may be narrow."""
        if self._is_narrow(source):
            if source.name in self._converted:
                value, source = cast(bitcast(value, source), FLOAT32), FLOAT32
            elif source.is_float:
                value, source = decode(value, source), FLOAT32
            else:
                source = value.dtype
        if not self._is_narrow(target):
            return cast(value, target)
        if not target.is_float:
            return _narrow_integer(value, source, target)
        if source.is_int and source.bits > 16:
            value, source = (cast(value, FLOAT64), FLOAT64) if self._wide else (integer_to_odd(value), FLOAT32)
        if source is FLOAT64:
            value = round_to_odd(value)
        if target.name in self._converted:
            return bitcast(cast(cast(value, FLOAT32), target), carrier(target))
        return encode(cast(value, FLOAT32), target)


def _on_operands(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """Rebuild an operation on operands of another type."""
    match expr:
        case ir.Binary(op=op):
            return binary(op, *args)
        case ir.Unary(op=op):
            return ir.unary(op, *args)
        case ir.Fma():
            return ir.fma(*args)
    raise AssertionError(f"{type(expr).__name__} of a narrow type must be expanded before legalize")


def encode_constant(value: float | int | bool, dtype: DType) -> int:
    """Return the carrier's value that encodes a constant of a narrow type."""
    if not dtype.is_float:
        return int(value)
    with np.errstate(all="ignore"):
        element = np.asarray(value, np.float64).astype(dtype.numpy)
    return int(element.view(carrier(dtype).numpy))


def _uint32(value: int) -> Expr:
    return const(value, UINT32)


def decode(code: Expr, dtype: DType) -> Expr:
    """Decode a code of a narrow float type to its float32 value, exactly."""
    wide = cast(code, UINT32)
    if dtype.name == EXPONENT_ONLY:
        normal = select(wide.equal(0), _uint32(1 << 22), wide << 23)
        return bitcast(select(wide.equal(255), _uint32(0x7FC00000), normal), FLOAT32)
    form = FORMATS[dtype.name]
    if dtype.name == "bfloat16":
        return bitcast(wide << 16, FLOAT32)
    width = form.exponent + form.digits
    magnitude = wide & ((1 << width) - 1)
    # Read as a float32 with this exponent field, the number is too small by a power of two; this includes denormals.
    value = bitcast(magnitude << (23 - form.digits), FLOAT32) * (2.0 ** (127 - form.bias))
    bits = bitcast(value, UINT32)
    if form.over not in (form.top, form.nan):
        bits = select(magnitude.equal(form.over), _uint32(0x7F800000), bits)
    if form.nan is not None and not form.unsigned_zero:
        bits = select(
            _uint32(max(form.top, form.over if form.over != form.nan else form.top)) < magnitude, _uint32(0x7FC00000), bits
        )
    bits = bits | ((wide >> width) << 31)
    if form.unsigned_zero:
        bits = select(wide.equal(form.nan or 0), _uint32(0x7FC00000), bits)
    return bitcast(bits, FLOAT32)


def encode(value: Expr, dtype: DType) -> Expr:
    """Encode a float32 value in a narrow float type, rounding half to even."""
    raw_bits = bitcast(value, UINT32)
    bits = raw_bits & 0x7FFFFFFF
    is_nan = ir.unary("isnan", value)
    code_type = carrier(dtype)
    if dtype.name == EXPONENT_ONLY:
        return _encode_exponent(bits, (raw_bits >> 31).equal(1), is_nan, code_type)
    form = FORMATS[dtype.name]
    shift = 23 - form.digits
    if dtype.name == "bfloat16":
        # The exponent field is that of float32: carries give infinity, and the sign needs no care.
        high = raw_bits >> shift
        code = (raw_bits + (high & 1) + ((1 << (shift - 1)) - 1)) >> shift
        return cast(select(is_nan, high & 0x8000 | 0x7FC0, code), code_type)
    rounded_bits = (bits + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift
    code = rounded_bits - ((127 - form.bias) << form.digits)
    if form.bias != 127:
        # Below the smallest normal number the spacing is constant: adding a number with that spacing rounds to it.
        magic = 2.0 ** (23 + 1 - form.bias - form.digits)
        small = bitcast(bitcast(bits, FLOAT32) + magic, UINT32) - bitcast(const(magic, FLOAT32), UINT32)
        code = select(bits < _uint32((128 - form.bias) << 23), small, code)
    code = select(_uint32(form.top) < code, _uint32(form.over), code)
    sign = (raw_bits >> 31) << (form.exponent + form.digits)
    if form.unsigned_zero:
        sign = select(code.equal(0), _uint32(0), sign)
        code = select(is_nan, _uint32(form.over), code | sign)
    else:
        code = select(is_nan, _uint32(0 if form.nan is None else form.nan), code) | sign
    return cast(code, code_type)


def _encode_exponent(bits: Expr, negative: Expr, is_nan: Expr, code_type: DType) -> Expr:
    """Encode a float32 as the nearest power of two. Ties from 2 ** -127 on round up, as in ml_dtypes. Values <= 0 become NaN."""
    code = (bits + 0x400000) >> 23
    code = select(bits < _uint32(1 << 23), select(bits < _uint32(0x400001), _uint32(0), _uint32(1)), code)
    becomes_nan = is_nan | negative | bits.equal(0) | (_uint32(254) < code)
    return cast(select(becomes_nan, _uint32(255), code), code_type)


def round_to_odd(value: Expr) -> Expr:
    """Round a float64 to float32 such that rounding the result to fewer digits equals rounding the float64: an inexact result is
    truncated and its last bit set (Boldo and Melquiond, "When double rounding is odd", 2005)."""
    nearest = cast(value, FLOAT32)
    back = cast(nearest, FLOAT64)
    bits = bitcast(nearest, UINT32)
    is_rounded_up = ir.unary("abs", value) < ir.unary("abs", back)
    odd_bits = select(is_rounded_up, bits - 1, bits) | 1
    is_exact = back.equal(value) | ir.unary("isnan", value)
    return bitcast(select(is_exact, bits, odd_bits), FLOAT32)


def integer_to_odd(value: Expr) -> Expr:
    """Convert an integer to float32 with the rounding of `round_to_odd`, without float64."""
    nearest = cast(value, FLOAT32)
    # Saturates only for the integers that round to a power of two beyond the type, whose rounding to fewer digits is the same.
    back = cast(nearest, value.dtype)
    bits = bitcast(nearest, UINT32)
    is_rounded_up = value < back
    if value.dtype.kind == "int":
        is_rounded_up = select(value < 0, back < value, is_rounded_up)
    return bitcast(select(back.equal(value), bits, select(is_rounded_up, bits - 1, bits) | 1), FLOAT32)


def _wrapped(value: Expr, dtype: DType) -> Expr:
    """Keep only the narrow type's bits of an integer carrier, sign-extended."""
    if dtype.kind == "uint":
        return value & ((1 << dtype.bits) - 1)
    return (value << (8 - dtype.bits)) >> (8 - dtype.bits)


def _narrow_integer(value: Expr, source: DType, target: DType) -> Expr:
    """Convert to a 2- or 4-bit integer: floats truncate and saturate, integers wrap."""
    code_type = carrier(target)
    if source.is_float:
        low, high = target.limits
        integer = cast(value, INT32)
        limited = ir.minimum(ir.maximum(integer, const(low, INT32)), const(high, INT32))
        return cast(limited, code_type)
    return _wrapped(cast(value, code_type), target)
