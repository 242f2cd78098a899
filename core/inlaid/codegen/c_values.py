"""Print value operations as C99 with the semantics of `inlaid.tensor.ir` under any compiler flags: signed arithmetic that may wrap
is done in unsigned types, and every conversion is explicit."""

from __future__ import annotations

import math
import re
import struct

from inlaid.codegen.c import C_TYPES, c_type
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, dtype

NATIVE = frozenset(C_TYPES)
"""Names of the element types with C arithmetic. Other element types are legalized to these before printing."""

ATOM, PRODUCT, SUM, OTHER = range(4)
"""Precedence levels of C expressions: names, literals, calls and parenthesized expressions; products and quotients; sums and
differences; all other expressions."""

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
REPEATS = ("min", "max", "isinf", "isnan")
"""Operations whose C text repeats operands."""


@dataclass(frozen=True)
class Text:
    """A C expression with its precedence level. `number`: it is a literal other than NaN."""

    code: str
    level: int = OTHER
    number: bool = False

    def within(self, level: int) -> str:
        """Print the expression as an operand at a precedence level, in parentheses if it binds less tightly."""
        return self.code if self.level <= level else f"({self.code})"

    @property
    def atom(self) -> str:
        """The expression, in parentheses unless it is an atom."""
        return self.within(ATOM)


def value_type(dtype: DType) -> str:
    """Return the C type of a variable for a value (bool is _Bool)."""
    return "_Bool" if dtype.kind == "bool" else c_type(dtype)


def literal(value: float | int | bool, dtype: DType) -> str:
    """Print a constant as a C literal."""
    if dtype.is_float:
        number = float(value)
        if math.isnan(number):
            return f"({c_type(dtype)})NAN"
        if math.isinf(number) or (dtype.bits == 32 and abs(number) > 3.4028235677973366e38):
            return f"({c_type(dtype)})INFINITY" if number > 0 else f"-({c_type(dtype)})INFINITY"
        number = struct.unpack("f", struct.pack("f", number))[0] if dtype.bits == 32 else number
        if number == int(number) and abs(number) <= 1 << 63:
            return f"{number:.1f}{_suffix(dtype)}"
        return re.sub(r"\.?0*p", "p", number.hex()) + _suffix(dtype)
    if dtype.kind == "bool":
        return str(int(value))
    number = int(value)
    if dtype.bits <= 16:
        return str(number)  # promoted to int
    if dtype.kind == "uint":
        return f"{number}u" if dtype.bits == 32 else f"UINT64_C({number})"
    if number == dtype.limits[0]:
        return f"INT{dtype.bits}_MIN"
    return f"INT64_C({number})" if dtype.bits == 64 else str(number)


def constant(value: float | int | bool, dtype: DType) -> Text:
    """Print a constant as a C literal with its precedence level."""
    text = literal(value, dtype)
    return Text(text, PRODUCT if text.startswith("-") else ATOM, not (dtype.is_float and math.isnan(value)))


def binary(op: str, a: Text, b: Text, dtype: DType, exact: bool = False, shift: bool = False) -> Text:
    """Print a binary operation on two values of one element type. `exact`: the sum, difference or product is proved not to wrap, or
    the divisor to be neither 0 nor -1; `shift`: the count is proved in [0, width). Operations in `REPEATS`, and unproved divisions
    and shifts, repeat their operands."""
    kind = value_type(dtype)
    if op in ("min", "max"):
        one, two = a.within(SUM), b.within(SUM)
        chosen = f"{one} {'<' if op == 'min' else '>'} {two} ? {one} : {two}"
        nans = "".join(f"{part} != {part} ? {part} : " for part, operand in ((one, a), (two, b)) if not operand.number)
        return Text(f"{nans}({chosen})" if dtype.is_float and nans else chosen)
    if dtype.is_float and op == "mod":
        return Text(f"fmod{_suffix(dtype)}({a.code}, {b.code})", ATOM)
    if op in ("div", "mod"):
        symbol = "/" if op == "div" else "%"
        plain = Text(f"{a.within(PRODUCT)} {symbol} {b.atom}", PRODUCT)
        if dtype.is_float:
            return plain
        if exact:
            return plain if dtype.bits >= 32 else Text(f"({kind}){plain.atom}", ATOM)
        special_cases = f"{b.atom} == 0 ? 0 : "
        if dtype.kind == "int":
            special_cases += f"{b.atom} == -1 ? {_negated(a, dtype) if op == 'div' else '0'} : "
        return Text(f"({kind})({special_cases}{plain.code})", ATOM)
    if op in ("shl", "shr"):
        shifted = f"({kind})({a.atom} >> {b.atom})" if op == "shr" else f"({kind})({_unsigned(a, dtype)} << {b.atom})"
        if shift:
            return Text(f"{a.atom} >> {b.atom}") if op == "shr" and dtype.bits >= 32 else Text(shifted, ATOM)
        out_of_range_value = f"{a.atom} < 0 ? -1 : 0" if op == "shr" and dtype.kind == "int" else "0"
        in_range = f"{b.atom} < {dtype.bits}" if dtype.kind == "uint" else f"{b.atom} >= 0 && {b.atom} < {dtype.bits}"
        return Text(f"{in_range} ? {shifted} : ({kind})({out_of_range_value})")
    symbol = _SYMBOLS[op]
    if op in ("lt", "le", "eq", "ne"):
        return Text(f"{a.within(SUM)} {symbol} {b.within(SUM)}")
    if op in ("and", "or", "xor"):
        # Clang warns about bitwise operators on two booleans.
        plain = Text(f"{'(int)' * (dtype.kind == 'bool')}{a.atom} {symbol} {b.atom}")
        return plain if dtype.bits >= 32 else Text(f"({kind}){plain.atom}", ATOM)
    if dtype.is_float or (exact and dtype.bits >= 32) or (dtype.kind == "uint" and dtype.bits >= 32):
        return _sum(op, a, b)
    if dtype.bits <= 16 and op != "mul":
        return Text(f"({kind}){_sum(op, a, b).atom}", ATOM)  # int holds every result
    wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
    return Text(f"({kind}){_sum(op, Text(f'({wide}){a.atom}', ATOM), Text(f'({wide}){b.atom}', ATOM)).atom}", ATOM)


def _sum(op: str, a: Text, b: Text) -> Text:
    """Print a sum, difference or product with minimal parentheses."""
    if op == "mul":
        return Text(f"{a.within(PRODUCT)} * {b.atom}", PRODUCT)
    if b.number and b.code.startswith("-"):
        return Text(f"{a.within(SUM)} {'-' if op == 'add' else '+'} {b.code[1:]}", SUM)
    return Text(f"{a.within(SUM)} {_SYMBOLS[op]} {b.within(PRODUCT)}", SUM)


def fma(a: Text, b: Text, c: Text, dtype: DType) -> Text:
    """Print a * b + c, rounded once."""
    if dtype.is_float:
        return Text(f"fma{_suffix(dtype)}({a.code}, {b.code}, {c.code})", ATOM)
    return binary("add", binary("mul", a, b, dtype), c, dtype)


def unary(op: str, a: Text, dtype: DType) -> Text:
    """Print a unary operation."""
    kind = value_type(dtype)
    match op:
        case "isnan":
            return Text(f"{a.atom} != {a.atom}")
        case "isinf":
            return Text(f"fabs{_suffix(dtype)}({a.code}) == INFINITY")
        case "neg" if dtype.is_float:
            return Text(f"-{a.atom}")
        case "neg":
            return Text(_negated(a, dtype), ATOM)
        case "abs" if dtype.is_float:
            return Text(f"fabs{_suffix(dtype)}({a.code})", ATOM)
        case "abs":
            return Text(f"{a.atom} < 0 ? {_negated(a, dtype)} : {a.atom}") if dtype.kind == "int" else a
        case "not":
            return Text(f"!{a.atom}") if dtype.kind == "bool" else Text(f"({kind})~{a.atom}", ATOM)
        case "popcount":
            return Text(f"({kind})__builtin_popcountll({_unsigned(a, dtype)})", ATOM)
        case "clz":
            leading_zeros = f"__builtin_clzll({_unsigned(a, dtype)}) - {64 - dtype.bits}"
            return Text(f"({kind})({a.atom} == 0 ? {dtype.bits} : {leading_zeros})", ATOM)
    return Text(f"{_FUNCTIONS[op]}{_suffix(dtype)}({a.code})", ATOM) if dtype.is_float else a


def convert(a: Text, source: DType, target: DType, inside: bool = False) -> Text:
    """Print a conversion between element types; float to integer saturates. `inside`: the value is proved to be in the target's
    range."""
    if target.kind == "bool":
        return Text(f"{a.atom} != 0")
    kind = c_type(target)
    if not source.is_float or target.is_float or inside:
        return Text(f"({kind}){a.atom}", ATOM)
    low, high = (literal(float(limit), source) for limit in target.limits)
    least, greatest = (literal(limit, target) for limit in target.limits)
    return Text(f"{a.atom} != {a.atom} ? 0 : {a.atom} <= {low} ? {least} : {a.atom} >= {high} ? {greatest} : ({kind}){a.atom}")


def _negated(a: Text, dtype: DType) -> str:
    """Print a wrapping integer negation, which maps the minimum to itself."""
    if dtype.bits < 32:
        return f"({c_type(dtype)})-{a.atom}"
    return f"({c_type(dtype)})(0u - {_cast_unsigned(a, dtype)})"


def _suffix(dtype: DType) -> str:
    return "f" if dtype.bits == 32 else ""


def _cast_unsigned(a: Text, element_type: DType) -> str:
    """Print a cast of a value to the unsigned integer of equal width."""
    return f"({c_type(dtype(f'uint{element_type.bits}'))}){a.atom}"


def _unsigned(a: Text, dtype: DType) -> str:
    """Print the zero extension of a value to an unsigned integer of at least 32 bits, for shifts and bit counts."""
    bits = _cast_unsigned(a, dtype)
    return bits if dtype.bits >= 32 else f"(uint32_t){bits}"
