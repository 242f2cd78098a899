"""Operators that map elements: arithmetic, comparison, logic, bits, selection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import (
    ANY,
    BOOL,
    FLOAT,
    INTEGER,
    NUMERIC,
    Array,
    broadcast_shapes,
    common_dtype,
    elementwise,
    elementwise_with,
    map_elements,
    tensor_type,
)
from inlaid.tensor import ir, te
from inlaid.types import TensorType, Type

# --- of one argument --------------------------------------------------------------------------------------------------


def _math(name: str, numpy: Callable[[Array], Any]) -> Operator:
    """A mathematical function of floats."""
    return elementwise(name, lambda x: te.math(name, x), numpy, kinds=FLOAT)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(x.dtype)


def _sign(x: ir.Expr) -> ir.Expr:
    if x.dtype.kind == "uint":
        return te.select(x > 0, te.const(1, x.dtype), 0)
    return te.select(x > 0, te.const(1, x.dtype), te.select(x < 0, te.const(-1, x.dtype), te.select(x.equal(0), 0, x)))


abs = elementwise("abs", lambda x: x if x.dtype.kind == "uint" else te.unary("abs", x), np.abs, kinds=NUMERIC)
neg = elementwise("neg", lambda x: -x, np.negative, kinds=NUMERIC)
sign = elementwise("sign", _sign, np.sign, kinds=NUMERIC)
sqrt = elementwise("sqrt", lambda x: te.unary("sqrt", x), np.sqrt, kinds=FLOAT)
floor = elementwise("floor", lambda x: te.unary("floor", x), np.floor, kinds=FLOAT)
ceil = elementwise("ceil", lambda x: te.unary("ceil", x), np.ceil, kinds=FLOAT)
round = elementwise("round", lambda x: te.unary("round", x), np.rint, kinds=FLOAT)
"""To nearest, halves to even."""
exp = _math("exp", np.exp)
expm1 = _math("expm1", np.expm1)
"""exp(x) - 1, accurate near 0."""
log = _math("log", np.log)
log1p = _math("log1p", np.log1p)
"""log(1 + x), accurate near 0."""
sin = _math("sin", np.sin)
cos = _math("cos", np.cos)
tan = _math("tan", np.tan)
asin = _math("asin", np.arcsin)
acos = _math("acos", np.arccos)
atan = _math("atan", np.arctan)
sinh = _math("sinh", np.sinh)
cosh = _math("cosh", np.cosh)
tanh = _math("tanh", np.tanh)
asinh = _math("asinh", np.arcsinh)
acosh = _math("acosh", np.arccosh)
atanh = _math("atanh", np.arctanh)
erf = _math("erf", _erf)
logical_not = elementwise("logical_not", lambda x: ~x, np.logical_not, kinds=BOOL)
bitwise_not = elementwise("bitwise_not", lambda x: ~x, np.invert, kinds=INTEGER)
isnan = elementwise("isnan", lambda x: te.unary("isnan", x), np.isnan, kinds=FLOAT, result="bool")


@dataclass(frozen=True)
class IsInfAttrs(Attrs):
    """Which infinities count."""

    negative: bool = True
    positive: bool = True


def _isinf(attrs: IsInfAttrs, x: Array) -> Any:
    return (attrs.positive & (x == np.inf)) | (attrs.negative & (x == -np.inf))


def _isinf_value(attrs: IsInfAttrs, x: ir.Expr) -> ir.Expr:
    if attrs.positive and attrs.negative:
        return te.unary("isinf", x)
    if attrs.positive or attrs.negative:
        return x.equal(math.inf if attrs.positive else -math.inf)
    return te.const(False, "bool")


isinf = elementwise_with("isinf", IsInfAttrs, _isinf_value, _isinf, kinds=FLOAT, result="bool")

# --- of two arguments -------------------------------------------------------------------------------------------------

_AB = ("a", "b")


def _is_integer(array: Array) -> bool:
    return array.dtype.kind in "iu"


def _divide(a: Array, b: Array) -> Array:
    """Of integers, the quotient truncated, as C divides; x / 0 is 0."""
    if not _is_integer(a):
        return np.asarray(a / b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    truncated = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (b < 0)))
    return np.where(b == 0, 0, truncated)


def _floor_mod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the divisor; of integers, x mod 0 is 0."""
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, b.dtype.type(1), b))) if _is_integer(a) else np.asarray(np.mod(a, b))


def _floor_mod_value(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    remainder = a % b
    if a.dtype.kind == "uint":
        return remainder
    differs = remainder.not_equal(0) & ((remainder < 0) ^ (b < 0))
    return te.select(differs, remainder + b, remainder)


def _truncated_mod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend, as C's; of integers, x mod 0 is 0."""
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, b.dtype.type(1), b))) if _is_integer(a) else np.asarray(np.fmod(a, b))


def _power(a: Array, b: Array) -> Array:
    """Of integers, wrapped; a negative exponent gives the truncated quotient 1 / a**-b, and 0 for a == 0."""
    if not _is_integer(a):
        return np.asarray(np.power(a, b))
    powers = np.power(a, np.where(b < 0, 0, b))
    inverse = np.where(a == 1, 1, 0)
    if a.dtype.kind == "i":
        inverse = np.where(a == -1, np.where(b % 2 == 0, 1, -1), inverse)
    return np.where(b < 0, inverse.astype(a.dtype), powers)


def _power_value(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    if a.dtype.is_float:
        return te.math("pow", a, b)
    # Square and multiply. Every bit of the exponent counts: powers of an odd base never wrap to 0. From the highest bit on, so that
    # squares depend on the exponent: in a loop over exponents alone, LLVM 22 walks each of 2^31 paths through squares of a base.
    one, zero = te.const(1, a.dtype), te.const(0, a.dtype)
    result: ir.Expr | None = None
    for bit in reversed(range(a.dtype.bits - (a.dtype.kind == "int"))):
        # 1 + bit * (a - 1): the base or 1, without a choice whose sides code generators would print apart.
        factor = one + ((b >> bit) & 1) * (a - one)
        result = factor if result is None else result * result * factor
    assert result is not None
    if a.dtype.kind == "uint":
        return result
    odd = (b & 1).not_equal(0)
    inverse = te.select(a.equal(1), one, te.select(a.equal(-1), te.select(odd, te.const(-1, a.dtype), one), zero))
    return te.select(b < 0, inverse, result)


def _shift(numpy: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Array]:
    """A shift in which a count outside [0, width) gives 0, or -1 to the right of a negative number."""

    def run(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        beyond = (b < 0) | (b >= width)
        emptied = np.where(a < 0, -1, 0).astype(a.dtype) if numpy is np.right_shift else np.zeros_like(a)
        return np.where(beyond, emptied, numpy(a, np.where(beyond, 0, b).astype(b.dtype)))

    return run


add = elementwise("add", lambda a, b: a + b, np.add, kinds=NUMERIC, inputs=_AB, commutative=True)
sub = elementwise("sub", lambda a, b: a - b, np.subtract, kinds=NUMERIC, inputs=_AB)
mul = elementwise("mul", lambda a, b: a * b, np.multiply, kinds=NUMERIC, inputs=_AB, commutative=True)
div = elementwise("div", lambda a, b: a / b, _divide, kinds=NUMERIC, inputs=_AB)
"""Of integers, truncated; x / 0 is 0 for them."""
mod = elementwise("mod", _floor_mod_value, _floor_mod, kinds=NUMERIC, inputs=_AB)
"""The remainder with the sign of the divisor."""
fmod = elementwise("fmod", lambda a, b: a % b, _truncated_mod, kinds=NUMERIC, inputs=_AB)
"""The remainder with the sign of the dividend."""
pow = elementwise("pow", _power_value, _power, kinds=NUMERIC, inputs=_AB)
maximum = elementwise("maximum", te.maximum, np.maximum, kinds=NUMERIC, inputs=_AB, commutative=True)
"""NaN where either is."""
minimum = elementwise("minimum", te.minimum, np.minimum, kinds=NUMERIC, inputs=_AB, commutative=True)
"""NaN where either is."""
equal = elementwise("equal", lambda a, b: a.equal(b), np.equal, kinds=ANY, inputs=_AB, result="bool", commutative=True)
less = elementwise("less", lambda a, b: a < b, np.less, kinds=NUMERIC, inputs=_AB, result="bool")
less_equal = elementwise("less_equal", lambda a, b: a <= b, np.less_equal, kinds=NUMERIC, inputs=_AB, result="bool")
logical_and = elementwise("logical_and", lambda a, b: a & b, np.logical_and, kinds=BOOL, inputs=_AB, commutative=True)
logical_or = elementwise("logical_or", lambda a, b: a | b, np.logical_or, kinds=BOOL, inputs=_AB, commutative=True)
logical_xor = elementwise("logical_xor", lambda a, b: a ^ b, np.logical_xor, kinds=BOOL, inputs=_AB, commutative=True)
bitwise_and = elementwise("bitwise_and", lambda a, b: a & b, np.bitwise_and, kinds=INTEGER, inputs=_AB, commutative=True)
bitwise_or = elementwise("bitwise_or", lambda a, b: a | b, np.bitwise_or, kinds=INTEGER, inputs=_AB, commutative=True)
bitwise_xor = elementwise("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor, kinds=INTEGER, inputs=_AB, commutative=True)
shift_left = elementwise("shift_left", lambda a, b: a << b, _shift(np.left_shift), kinds=INTEGER, inputs=_AB)
shift_right = elementwise("shift_right", lambda a, b: a >> b, _shift(np.right_shift), kinds=INTEGER, inputs=_AB)

# --- selection --------------------------------------------------------------------------------------------------------


def _where_infer(attrs: Attrs, condition: Type, x: Type, y: Type) -> Type:
    tensors = (tensor_type(condition, BOOL, "the condition"), tensor_type(x, ANY), tensor_type(y, ANY))
    return TensorType(broadcast_shapes(*(tensor.shape for tensor in tensors)), common_dtype(*tensors[1:]))


def _where_reference(attrs: Attrs, condition: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(condition, x, y))


def _where_compute(attrs: Attrs, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return map_elements(te.select, condition, x, y, result=x.dtype, name="where")


where = Operator(
    "where",
    _where_infer,
    reference=_where_reference,
    compute=_where_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    arity=(3, 3),
    inputs=("condition", "x", "y"),
)


@dataclass(frozen=True)
class ClipAttrs(Attrs):
    """Bounds, inclusive; the infinities bound nothing. Where minimum > maximum, the result is maximum."""

    minimum: float = -math.inf
    maximum: float = math.inf


def _clip(attrs: ClipAttrs, x: Array) -> Array:
    if attrs.minimum != -math.inf:
        x = np.maximum(x, x.dtype.type(attrs.minimum))
    if attrs.maximum != math.inf:
        x = np.minimum(x, x.dtype.type(attrs.maximum))
    return x


def _clip_value(attrs: ClipAttrs, x: ir.Expr) -> ir.Expr:
    if attrs.minimum != -math.inf:
        x = te.maximum(x, attrs.minimum)
    if attrs.maximum != math.inf:
        x = te.minimum(x, attrs.maximum)
    return x


clip = elementwise_with("clip", ClipAttrs, _clip_value, _clip, kinds=NUMERIC)
"""NaN stays NaN."""

OPERATORS: tuple[Operator, ...] = (
    *(abs, neg, sign, sqrt, floor, ceil, round, exp, expm1, log, log1p, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh),
    *(asinh, acosh, atanh, erf, logical_not, bitwise_not, isnan, isinf),
    *(add, sub, mul, div, mod, fmod, pow, maximum, minimum, equal, less, less_equal),
    *(logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right),
    *(where, clip),
)
