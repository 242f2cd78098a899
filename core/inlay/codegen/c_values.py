"""Values in C, with the semantics that `inlay.tensor.ir` fixes. Signed integers wrap: compile with -fwrapv.

Operands are names and constants: they may be written several times.
"""

from __future__ import annotations

import math

from inlay.codegen.c import C_TYPES, c_type
from inlay.types import DType, dtype

NATIVE = frozenset(C_TYPES)
"""Names of the element types that C computes with; all others are legalised to these before."""

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}


def value_type(of: DType) -> str:
    """The C type of a value."""
    return "_Bool" if of.kind == "bool" else c_type(of)


def literal(value: float | int | bool, of: DType) -> str:
    """A constant."""
    if of.is_float:
        number = float(value)
        if math.isnan(number):
            return "NAN"
        if math.isinf(number) or (of.bits == 32 and abs(number) > 3.4028235677973366e38):
            return "INFINITY" if number > 0 else "(-INFINITY)"
        return f"({number.hex()}{_suffix(of)})"
    if of.kind == "bool":
        return str(int(value))
    if of.kind == "uint":
        return f"(({c_type(of)}){int(value)}ULL)"
    return f"(({c_type(of)})({int(value) + 1}LL - 1))" if value == of.limits[0] else f"(({c_type(of)}){int(value)}LL)"


def binary(op: str, a: str, b: str, of: DType) -> str:
    """`op` on two values of one element type."""
    if op in ("min", "max"):
        chosen = f"{a} {'<' if op == 'min' else '>'} {b} ? {a} : {b}"
        return f"{a} != {a} ? {a} : {b} != {b} ? {b} : {chosen}" if of.is_float else chosen
    if of.is_float and op == "mod":
        return f"fmod{_suffix(of)}({a}, {b})"
    if of.is_float and op == "div":
        return f"{a} / {b}"
    kind = value_type(of)
    if op == "div":
        negated = f"{b} == -1 ? ({kind})-{a} : " if of.kind == "int" else ""
        return f"{b} == 0 ? 0 : {negated}({kind})({a} / {b})"
    if op == "mod":
        return f"{b} == 0{f' || {b} == -1' if of.kind == 'int' else ''} ? 0 : ({kind})({a} % {b})"
    if op in ("shl", "shr"):
        beyond = f"{a} < 0 ? -1 : 0" if op == "shr" and of.kind == "int" else "0"
        shifted = f"{a} >> {b}" if op == "shr" else f"{_unsigned(of)}{a} << {b}"
        return f"(uint64_t){b} < {of.bits} ? ({kind})({shifted}) : ({beyond})"
    result = f"{a} {_SYMBOLS[op]} {b}"
    return result if of.is_float or op in ("lt", "le", "eq", "ne") else f"({kind})({result})"


def fma(a: str, b: str, c: str, of: DType) -> str:
    """a * b + c, rounded once."""
    return f"fma{_suffix(of)}({a}, {b}, {c})" if of.is_float else f"({c_type(of)})({a} * {b} + {c})"


def unary(op: str, a: str, of: DType) -> str:
    """`op` on one value of an element type."""
    kind = value_type(of)
    match op:
        case "isnan":
            return f"{a} != {a}"
        case "isinf":
            return f"fabs{_suffix(of)}({a}) == INFINITY"
        case "neg":
            return f"({kind})-{a}"
        case "abs" if of.is_float:
            return f"fabs{_suffix(of)}({a})"
        case "abs":
            return f"({kind})({a} < 0 ? -{a} : {a})" if of.kind == "int" else a
        case "not":
            return f"!{a}" if of.kind == "bool" else f"({kind})~{a}"
        case "popcount":
            return f"({kind})__builtin_popcountll((uint64_t){_unsigned(of)}{a})"
        case "clz":
            counted = f"__builtin_clzll((uint64_t){_unsigned(of)}{a}) - {64 - of.bits}"
            return f"{a} == 0 ? {of.bits} : ({kind})({counted})"
    return f"{_FUNCTIONS[op]}{_suffix(of)}({a})" if of.is_float else a


def convert(a: str, source: DType, target: DType) -> str:
    """A conversion between element types."""
    if target.kind == "bool":
        return f"{a} != 0"
    kind = c_type(target)
    if not source.is_float or target.is_float:
        return f"({kind}){a}"
    low, high = (literal(float(limit), source) for limit in target.limits)
    least, greatest = (literal(limit, target) for limit in target.limits)
    return f"{a} != {a} ? 0 : {a} <= {low} ? {least} : {a} >= {high} ? {greatest} : ({kind}){a}"


def reinterpret(a: str, source: DType, target: DType) -> str:
    """The bits of a value as another element type of the same width."""
    return f"((union {{ {c_type(source)} from; {c_type(target)} to; }}){{.from = {a}}}).to"


def _suffix(of: DType) -> str:
    return "f" if of.bits == 32 else ""


def _unsigned(of: DType) -> str:
    return f"({c_type(dtype(f'uint{of.bits}'))})"
