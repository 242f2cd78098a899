"""Printing of value arithmetic as LLVM instructions, with the semantics of `inlaid.tensor.ir`. Operands are scalars or vectors."""

from __future__ import annotations

import re
import struct

from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import DType
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.values import Value, scalar_type, splat, vector_type

_FLOAT = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv", "mod": "frem"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_FLOAT_BITS = re.compile("0x([0-9A-F]{16})")
_MAGNITUDE, _INFINITY = (1 << 63) - 1, 0x7FF << 52
"""Bit patterns of a double: the mask of all bits but the sign, and infinity. Float constants are printed as doubles."""
_UNARY_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc"}


def binary(p: FunctionPrinter, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """Print a binary `op` on two values of equal element type and number of lanes."""
    if op in _FLOAT_COMPARE:
        return compare(p, op, a, b, dtype)
    if dtype.is_float:
        if op in ("min", "max"):
            return _float_extreme(p, op, a, b)
        return p.op(f"{_FLOAT[op]} {a}, {b.ref}", a.scalar, a.lanes)
    if op in _INT:
        return p.op(f"{_INT[op]} {a}, {b.ref}", a.scalar, a.lanes)
    if op in ("min", "max"):
        return p.intrinsic(("u" if dtype.kind != "int" else "s") + op, a.scalar, [a, b])
    if op in ("shl", "shr"):
        return _shift(p, op, a, b, dtype)
    return _int_divide(p, op, a, b, dtype)


def compare(p: FunctionPrinter, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """Print a comparison with result i1."""
    if dtype.is_float:
        return p.op(f"fcmp {_FLOAT_COMPARE[op]} {a}, {b.ref}", "i1", a.lanes)
    name = op if op in ("eq", "ne") else ("s" if dtype.kind == "int" else "u") + op
    return p.op(f"icmp {name} {a}, {b.ref}", "i1", a.lanes)


def fma(p: FunctionPrinter, dtype: DType, a: Value, b: Value, c: Value) -> Value:
    """Print a * b + c with one rounding."""
    if dtype.is_float:
        return p.intrinsic("fma", a.scalar, [a, b, c])
    return binary(p, "add", binary(p, "mul", a, b, dtype), c, dtype)


def _is_constant(value: Value) -> bool:
    return not value.ref.startswith("%")


def _is_number(value: Value) -> bool:
    """Test whether a float is a constant other than NaN."""
    bits = _FLOAT_BITS.search(value.ref) if _is_constant(value) else None
    return bits is not None and int(bits[1], 16) & _MAGNITUDE <= _INFINITY


def _float_extreme(p: FunctionPrinter, op: str, a: Value, b: Value) -> Value:
    """Print a NaN-propagating min or max: one instruction if an operand is a constant other than NaN, else three. For operands +0
    and -0, the sign of the result is not specified."""
    if _is_number(a):
        a, b = b, a
    if _is_number(b):
        return limited(p, op, a, b)
    # The call tests its first operand for NaN. That is b: reductions accumulate in a, and its test would lengthen the dependences.
    return p.intrinsic("maximum" if op == "max" else "minimum", a.scalar, [b, a], flag="nsz")


def limited(p: FunctionPrinter, op: str, a: Value, limit: Value) -> Value:
    """Print min or max of a float and a limit that is not NaN."""
    wins = p.op(f"fcmp {'ogt' if op == 'max' else 'olt'} {limit}, {a.ref}", "i1", a.lanes)
    return p.op(f"select {wins}, {limit}, {a}", a.scalar, a.lanes)


def _shift(p: FunctionPrinter, op: str, a: Value, b: Value, dtype: DType) -> Value:
    opcode = "shl" if op == "shl" else "ashr" if dtype.kind == "int" else "lshr"
    width = dtype.bits
    if _is_constant(b) and b.ref.isdigit() and int(b.ref) < width:
        return p.op(f"{opcode} {a}, {b.ref}", a.scalar, a.lanes)
    fits = p.op(f"icmp ult {b}, {splat(str(width), a.scalar, a.lanes)}", "i1", a.lanes)
    zero = Value(splat("0", a.scalar, a.lanes), a.scalar, a.lanes)
    last = Value(splat(str(width - 1), a.scalar, a.lanes), a.scalar, a.lanes)
    count = p.op(f"select {fits}, {b}, {last if opcode == 'ashr' else zero}", a.scalar, a.lanes)
    shifted = p.op(f"{opcode} {a}, {count.ref}", a.scalar, a.lanes)
    return shifted if opcode == "ashr" else p.op(f"select {fits}, {shifted}, {zero}", a.scalar, a.lanes)


def _int_divide(p: FunctionPrinter, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """Print a truncating division or remainder that never traps: division by zero gives 0, the minimum by -1 wraps.

    Integers of up to 32 bits are divided in float64, since vectors have instructions for this. The result is exact: a quotient that
    is not an integer differs from the nearest integer by a relative 2^-31 or more.
    """
    signed = dtype.kind == "int"
    opcode = ("s" if signed else "u") + ("div" if op == "div" else "rem")
    digits = b.ref.lstrip("-")
    if digits.isdigit() and b.ref not in ("0", "-1"):
        return p.op(f"{opcode} {a}, {b.ref}", a.scalar, a.lanes)
    zero = Value(splat("0", a.scalar, a.lanes), a.scalar, a.lanes)
    one = Value(splat("1", a.scalar, a.lanes), a.scalar, a.lanes)
    by_zero = p.op(f"icmp eq {b}, {zero.ref}", "i1", a.lanes)
    safe = p.op(f"select {by_zero}, {one}, {b}", a.scalar, a.lanes)
    if not signed:
        result = _quotient(p, op, a, safe, dtype)
        return p.op(f"select {by_zero}, {zero}, {result}", a.scalar, a.lanes)
    by_minus_one = p.op(f"icmp eq {b}, {splat('-1', a.scalar, a.lanes)}", "i1", a.lanes)
    safe = p.op(f"select {by_minus_one}, {one}, {safe}", a.scalar, a.lanes)
    result = _quotient(p, op, a, safe, dtype)
    if op == "div":
        negated = p.op(f"sub {zero}, {a.ref}", a.scalar, a.lanes)
        result = p.op(f"select {by_minus_one}, {negated}, {result}", a.scalar, a.lanes)
    return p.op(f"select {by_zero}, {zero}, {result}", a.scalar, a.lanes)


def _quotient(p: FunctionPrinter, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """Print a truncating division or remainder; requires a divisor that is not 0 and a result that does not wrap."""
    sign = "s" if dtype.kind == "int" else "u"
    if dtype.bits > 32:
        return p.op(f"{sign}{'div' if op == 'div' else 'rem'} {a}, {b.ref}", a.scalar, a.lanes)
    real = vector_type("double", a.lanes)
    left, right = (p.op(f"{sign}itofp {value} to {real}", "double", a.lanes) for value in (a, b))
    ratio = p.op(f"fdiv {left}, {right.ref}", "double", a.lanes)
    quotient = p.op(f"fpto{sign}i {ratio} to {vector_type(a.scalar, a.lanes)}", a.scalar, a.lanes)
    if op == "div":
        return quotient
    product = p.op(f"mul {quotient}, {b.ref}", a.scalar, a.lanes)
    return p.op(f"sub {a}, {product.ref}", a.scalar, a.lanes)


def unary(p: FunctionPrinter, op: str, a: Value, dtype: DType) -> Value:
    """Print a unary `op` on a value of an element type."""
    match op:
        case "neg":
            zero = splat("0", a.scalar, a.lanes)
            return p.op(f"fneg {a}" if dtype.is_float else f"sub {a.type} {zero}, {a.ref}", a.scalar, a.lanes)
        case "abs":
            if dtype.is_float:
                return p.intrinsic("fabs", a.scalar, [a])
            return p.intrinsic("abs", a.scalar, [a], extra="i1 false") if dtype.kind == "int" else a
        case "not":
            return p.op(f"xor {a}, {splat('true' if dtype.kind == 'bool' else '-1', a.scalar, a.lanes)}", a.scalar, a.lanes)
        case "isnan":
            return p.op(f"fcmp uno {a}, {a.ref}", "i1", a.lanes)
        case "isinf":
            magnitude = p.intrinsic("fabs", a.scalar, [a])
            return p.op(f"fcmp oeq {magnitude}, {splat('0x7FF0000000000000', a.scalar, a.lanes)}", "i1", a.lanes)
        case "popcount":
            return p.intrinsic("ctpop", a.scalar, [a])
        case "clz":
            return p.intrinsic("ctlz", a.scalar, [a], extra="i1 false")
    if not dtype.is_float:
        return a
    return p.intrinsic(_UNARY_INTRINSICS[op], a.scalar, [a])


def convert(p: FunctionPrinter, a: Value, source: DType, target: DType) -> Value:
    """Print a conversion between element types."""
    to, lanes = scalar_type(target), a.lanes
    kind = vector_type(to, lanes)
    if target.kind == "bool":
        if source.is_float:
            return p.op(f"fcmp une {a}, {splat('0x0000000000000000', a.scalar, lanes)}", "i1", lanes)
        return a if source.kind == "bool" else p.op(f"icmp ne {a}, {splat('0', a.scalar, lanes)}", "i1", lanes)
    if source.is_float and target.is_float:
        return a if a.scalar == to else p.op(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {a} to {kind}", to, lanes)
    if source.is_float:
        if target.name not in ("uint32", "uint64"):
            return _saturated(p, a, target)
        return p.intrinsic("fptosi.sat" if target.kind == "int" else "fptoui.sat", a.scalar, [a], result=to)
    if target.is_float:
        return p.op(f"{'sitofp' if source.kind == 'int' else 'uitofp'} {a} to {kind}", to, lanes)
    if a.scalar == to:
        return a
    if target.bits < source.bits:
        return p.op(f"trunc {a} to {kind}", to, lanes)
    return p.op(f"{'sext' if source.kind == 'int' else 'zext'} {a} to {kind}", to, lanes)


def _saturated(p: FunctionPrinter, a: Value, target: DType) -> Value:
    """Print a saturating conversion of floats to signed integers, or to unsigned integers of less than 32 bits. NaN becomes 0.
    LLVM's own saturating conversion is scalarized and prevents vectorization of loops."""
    lanes, (low, high) = a.lanes, target.limits

    def number(value: float) -> Value:
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return Value(splat(f"0x{bits:016X}", a.scalar, lanes), a.scalar, lanes)

    def select_if(condition: str, then: Value, other: Value) -> Value:
        flag = p.op(f"fcmp {condition}", "i1", lanes)
        return p.op(f"select {flag}, {then}, {other}", then.scalar, lanes)

    if target.kind == "int":
        a = select_if(f"ord {a}, {a.ref}", a, number(0.0))
    bottom = number(float(low))
    a = select_if(f"ogt {a}, {bottom.ref}", a, bottom)
    int_type = f"i{max(target.bits, 32)}"
    wide = vector_type(int_type, lanes)
    if target.bits < 32:
        top = number(float(high))
        a = select_if(f"olt {a}, {top.ref}", a, top)
        integer = p.op(f"fptosi {a} to {wide}", "i32", lanes)
        return p.op(f"trunc {integer} to {vector_type(scalar_type(target), lanes)}", scalar_type(target), lanes)
    beyond = number(float(high + 1))
    inside = select_if(f"olt {a}, {beyond.ref}", a, bottom)
    integer = p.op(f"fptosi {inside} to {wide}", int_type, lanes)
    max_value = Value(splat(str(high), int_type, lanes), int_type, lanes)
    return select_if(f"olt {a}, {beyond.ref}", integer, max_value)


def reinterpret(p: FunctionPrinter, a: Value, target: DType) -> Value:
    """Print a bitcast to another element type. Raises `Unsupported` for bool, whose representation is not defined."""
    if "i1" in (a.scalar, scalar_type(target)):
        raise Unsupported("expected a bitcast between numbers, found bool", remedy="cast to uint8 first")
    to = scalar_type(target)
    return a if to == a.scalar else p.op(f"bitcast {a} to {vector_type(to, a.lanes)}", to, a.lanes)


def select(p: FunctionPrinter, flag: Value, a: Value, b: Value) -> Value:
    """Print the choice between two values by a flag; all are widened to the same lanes."""
    lanes = max(flag.lanes, a.lanes, b.lanes)
    if lanes:
        a, b = p.widen(a, lanes), p.widen(b, lanes)
    return p.op(f"select {flag}, {a}, {b}", a.scalar, lanes)
