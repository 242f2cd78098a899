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


def value_type(of: DType) -> str:
    """Return the C type of a variable for a value (bool is _Bool)."""
    return "_Bool" if of.kind == "bool" else c_type(of)


def literal(value: float | int | bool, of: DType) -> str:
    """Print a constant as a C literal."""
    if of.is_float:
        number = float(value)
        if math.isnan(number):
            return f"({c_type(of)})NAN"
        if math.isinf(number) or (of.bits == 32 and abs(number) > 3.4028235677973366e38):
            return f"({c_type(of)})INFINITY" if number > 0 else f"-({c_type(of)})INFINITY"
        number = struct.unpack("f", struct.pack("f", number))[0] if of.bits == 32 else number
        if number == int(number) and abs(number) <= 1 << 63:
            return f"{number:.1f}{_suffix(of)}"
        return re.sub(r"\.?0*p", "p", number.hex()) + _suffix(of)
    if of.kind == "bool":
        return str(int(value))
    number = int(value)
    if of.bits <= 16:
        return str(number)  # promoted to int
    if of.kind == "uint":
        return f"{number}u" if of.bits == 32 else f"UINT64_C({number})"
    if number == of.limits[0]:
        return f"INT{of.bits}_MIN"
    return f"INT64_C({number})" if of.bits == 64 else str(number)


def constant(value: float | int | bool, of: DType) -> Text:
    """Print a constant as a C literal with its precedence level."""
    text = literal(value, of)
    return Text(text, PRODUCT if text.startswith("-") else ATOM, not (of.is_float and math.isnan(value)))


def binary(op: str, a: Text, b: Text, of: DType, exact: bool = False, shift: bool = False) -> Text:
    """Print a binary operation on two values of one element type. `exact`: the sum, difference or product is proved not to wrap, or
    the divisor to be neither 0 nor -1; `shift`: the count is proved in [0, width). Operations in `REPEATS`, and unproved divisions
    and shifts, repeat their operands."""
    kind = value_type(of)
    if op in ("min", "max"):
        one, two = a.within(SUM), b.within(SUM)
        chosen = f"{one} {'<' if op == 'min' else '>'} {two} ? {one} : {two}"
        nans = "".join(f"{part} != {part} ? {part} : " for part, known in ((one, a), (two, b)) if not known.number)
        return Text(f"{nans}({chosen})" if of.is_float and nans else chosen)
    if of.is_float and op == "mod":
        return Text(f"fmod{_suffix(of)}({a.code}, {b.code})", ATOM)
    if op in ("div", "mod"):
        symbol = "/" if op == "div" else "%"
        plain = Text(f"{a.within(PRODUCT)} {symbol} {b.atom}", PRODUCT)
        if of.is_float:
            return plain
        if exact:
            return plain if of.bits >= 32 else Text(f"({kind}){plain.atom}", ATOM)
        edges = f"{b.atom} == 0 ? 0 : "
        if of.kind == "int":
            edges += f"{b.atom} == -1 ? {_negated(a, of) if op == 'div' else '0'} : "
        return Text(f"({kind})({edges}{plain.code})", ATOM)
    if op in ("shl", "shr"):
        shifted = f"({kind})({a.atom} >> {b.atom})" if op == "shr" else f"({kind})({_unsigned(a, of)} << {b.atom})"
        if shift:
            return Text(f"{a.atom} >> {b.atom}") if op == "shr" and of.bits >= 32 else Text(shifted, ATOM)
        beyond = f"{a.atom} < 0 ? -1 : 0" if op == "shr" and of.kind == "int" else "0"
        inside = f"{b.atom} < {of.bits}" if of.kind == "uint" else f"{b.atom} >= 0 && {b.atom} < {of.bits}"
        return Text(f"{inside} ? {shifted} : ({kind})({beyond})")
    symbol = _SYMBOLS[op]
    if op in ("lt", "le", "eq", "ne"):
        return Text(f"{a.within(SUM)} {symbol} {b.within(SUM)}")
    if op in ("and", "or", "xor"):
        # Clang warns about bitwise operators on two booleans.
        plain = Text(f"{'(int)' * (of.kind == 'bool')}{a.atom} {symbol} {b.atom}")
        return plain if of.bits >= 32 else Text(f"({kind}){plain.atom}", ATOM)
    if of.is_float or (exact and of.bits >= 32) or (of.kind == "uint" and of.bits >= 32):
        return _sum(op, a, b)
    if of.bits <= 16 and op != "mul":
        return Text(f"({kind}){_sum(op, a, b).atom}", ATOM)  # int holds every result
    wide = "uint64_t" if of.bits == 64 else "uint32_t"
    return Text(f"({kind}){_sum(op, Text(f'({wide}){a.atom}', ATOM), Text(f'({wide}){b.atom}', ATOM)).atom}", ATOM)


def _sum(op: str, a: Text, b: Text) -> Text:
    """Print a sum, difference or product with minimal parentheses."""
    if op == "mul":
        return Text(f"{a.within(PRODUCT)} * {b.atom}", PRODUCT)
    if b.number and b.code.startswith("-"):
        return Text(f"{a.within(SUM)} {'-' if op == 'add' else '+'} {b.code[1:]}", SUM)
    return Text(f"{a.within(SUM)} {_SYMBOLS[op]} {b.within(PRODUCT)}", SUM)


def fma(a: Text, b: Text, c: Text, of: DType) -> Text:
    """Print a * b + c, rounded once."""
    if of.is_float:
        return Text(f"fma{_suffix(of)}({a.code}, {b.code}, {c.code})", ATOM)
    return binary("add", binary("mul", a, b, of), c, of)


def unary(op: str, a: Text, of: DType) -> Text:
    """Print a unary operation."""
    kind = value_type(of)
    match op:
        case "isnan":
            return Text(f"{a.atom} != {a.atom}")
        case "isinf":
            return Text(f"fabs{_suffix(of)}({a.code}) == INFINITY")
        case "neg" if of.is_float:
            return Text(f"-{a.atom}")
        case "neg":
            return Text(_negated(a, of), ATOM)
        case "abs" if of.is_float:
            return Text(f"fabs{_suffix(of)}({a.code})", ATOM)
        case "abs":
            return Text(f"{a.atom} < 0 ? {_negated(a, of)} : {a.atom}") if of.kind == "int" else a
        case "not":
            return Text(f"!{a.atom}") if of.kind == "bool" else Text(f"({kind})~{a.atom}", ATOM)
        case "popcount":
            return Text(f"({kind})__builtin_popcountll({_unsigned(a, of)})", ATOM)
        case "clz":
            counted = f"__builtin_clzll({_unsigned(a, of)}) - {64 - of.bits}"
            return Text(f"({kind})({a.atom} == 0 ? {of.bits} : {counted})", ATOM)
    return Text(f"{_FUNCTIONS[op]}{_suffix(of)}({a.code})", ATOM) if of.is_float else a


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


def _negated(a: Text, of: DType) -> str:
    """Print a wrapping integer negation, which maps the minimum to itself."""
    if of.bits < 32:
        return f"({c_type(of)})-{a.atom}"
    return f"({c_type(of)})(0u - {_same_width(a, of)})"


def _suffix(of: DType) -> str:
    return "f" if of.bits == 32 else ""


def _same_width(a: Text, of: DType) -> str:
    """Print a cast of a value to the unsigned integer of equal width."""
    return f"({c_type(dtype(f'uint{of.bits}'))}){a.atom}"


def _unsigned(a: Text, of: DType) -> str:
    """Print the zero extension of a value to an unsigned integer of at least 32 bits, for shifts and bit counts."""
    same = _same_width(a, of)
    return same if of.bits >= 32 else f"(uint32_t){same}"
