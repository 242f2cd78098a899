"""Element-wise operators: arithmetic, comparison, logic, bits, selection."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.conditions import broadcast_shapes
from inlaid.graph.operator import NO_TRAITS, Attrs, Choice, ErrorPropagation, FusionKind, Interval, Moves, Operator, Traits
from inlaid.ops.define import (
    ANY,
    BOOL,
    FLOAT,
    INTEGER,
    NUMERIC,
    Array,
    common_dtype,
    elementwise,
    elementwise_with,
    make_family,
    map_elements,
    tensor_type,
)
from inlaid.tensor import ir, te
from inlaid.tensor.powers import power
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import TensorType, Type

_EXPENSIVE = Traits(expensive=True)
_STEEP = Traits(expensive=True, errors=ErrorPropagation.AMPLIFIES)
_ROUNDING = Traits(errors=ErrorPropagation.AMPLIFIES, idempotent=True)
_IDEMPOTENT = Traits(idempotent=True)
_INVOLUTION = Traits(involution=True)

Value = Callable[..., ir.Expr]
Numpy = Callable[..., Any]

# --- of one argument --------------------------------------------------------------------------------------------------


def _math(name: str, numpy: Callable[[Array], Any], traits: Traits = _EXPENSIVE, *, doc: str) -> Operator:
    """Make a mathematical function of floats."""
    return elementwise(name, lambda x: te.math(name, x), numpy, kinds=FLOAT, traits=traits, doc=doc)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(x.dtype)


def _sign(x: ir.Expr) -> ir.Expr:
    if x.dtype.kind == "uint":
        return te.select(x > 0, te.const(1, x.dtype), 0)
    return te.select(x > 0, te.const(1, x.dtype), te.select(x < 0, te.const(-1, x.dtype), te.select(x.equal(0), 0, x)))


abs = elementwise(
    "abs",
    lambda x: x if x.dtype.kind == "uint" else te.unary("abs", x),
    np.abs,
    kinds=NUMERIC,
    traits=_IDEMPOTENT,
    doc="Absolute value.",
)
neg = elementwise("neg", lambda x: -x, np.negative, kinds=NUMERIC, traits=_INVOLUTION, doc="Negation. Integers wrap.")
sign = elementwise("sign", _sign, np.sign, kinds=NUMERIC, traits=_IDEMPOTENT, doc="Sign: -1, 0 or 1.")
sqrt = elementwise("sqrt", lambda x: te.unary("sqrt", x), np.sqrt, kinds=FLOAT, traits=_EXPENSIVE, doc="Square root.")
floor = elementwise(
    "floor", lambda x: te.unary("floor", x), np.floor, kinds=FLOAT, traits=_ROUNDING, doc="Round down to an integer."
)
ceil = elementwise("ceil", lambda x: te.unary("ceil", x), np.ceil, kinds=FLOAT, traits=_ROUNDING, doc="Round up to an integer.")
round = elementwise(
    "round",
    lambda x: te.unary("round", x),
    np.rint,
    kinds=FLOAT,
    traits=_ROUNDING,
    doc="Round to the nearest integer, half to even.",
)
exp = _math("exp", np.exp, _STEEP, doc="Exponential.")
expm1 = _math("expm1", np.expm1, _STEEP, doc="exp(x) - 1, accurate near 0.")
log = _math("log", np.log, _STEEP, doc="Natural logarithm.")
log1p = _math("log1p", np.log1p, _STEEP, doc="log(1 + x), accurate near 0.")
sin = _math("sin", np.sin, doc="Sine of an angle in radians.")
cos = _math("cos", np.cos, doc="Cosine of an angle in radians.")
tan = _math("tan", np.tan, _STEEP, doc="Tangent of an angle in radians.")
asin = _math("asin", np.arcsin, doc="Inverse sine, in radians.")
acos = _math("acos", np.arccos, doc="Inverse cosine, in radians.")
atan = _math("atan", np.arctan, doc="Inverse tangent, in radians.")
sinh = _math("sinh", np.sinh, _STEEP, doc="Hyperbolic sine.")
cosh = _math("cosh", np.cosh, _STEEP, doc="Hyperbolic cosine.")
tanh = _math("tanh", np.tanh, doc="Hyperbolic tangent.")
asinh = _math("asinh", np.arcsinh, doc="Inverse hyperbolic sine.")
acosh = _math("acosh", np.arccosh, doc="Inverse hyperbolic cosine.")
atanh = _math("atanh", np.arctanh, doc="Inverse hyperbolic tangent.")
erf = _math("erf", _erf, doc="Error function.")
logical_not = elementwise("logical_not", lambda x: ~x, np.logical_not, kinds=BOOL, traits=_INVOLUTION, doc="Logical NOT.")
bitwise_not = elementwise("bitwise_not", lambda x: ~x, np.invert, kinds=INTEGER, traits=_INVOLUTION, doc="Bitwise NOT.")
isnan = elementwise("isnan", lambda x: te.unary("isnan", x), np.isnan, kinds=FLOAT, result="bool", doc="Test for NaN.")


@dataclass(frozen=True)
class IsInfAttrs(Attrs):
    """`negative`, `positive`: whether to detect negative infinity, and positive infinity."""

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


isinf = elementwise_with(
    "isinf",
    IsInfAttrs,
    _isinf_value,
    _isinf,
    kinds=FLOAT,
    result="bool",
    doc="Test for infinity. The attributes select which signs count.",
)

# --- of two arguments -------------------------------------------------------------------------------------------------

_AB = ("a", "b")


def _is_integer(array: Array) -> bool:
    return array.dtype.kind in "iu"


def _divide(a: Array, b: Array) -> Array:
    """Divide; for integers, truncate as in C, with x / 0 = 0."""
    if not _is_integer(a):
        return np.asarray(a / b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    truncated = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (b < 0)))
    return np.where(b == 0, 0, truncated)


def _floor_mod(a: Array, b: Array) -> Array:
    """Return the remainder with the sign of the divisor; for integers, x mod 0 is 0."""
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, b.dtype.type(1), b))) if _is_integer(a) else np.asarray(np.mod(a, b))


def _floor_mod_value(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    remainder = a % b
    if a.dtype.kind == "uint":
        return remainder
    differs = remainder.not_equal(0) & ((remainder < 0) ^ (b < 0))
    return te.select(differs, remainder + b, remainder)


def _truncated_mod(a: Array, b: Array) -> Array:
    """Return the remainder with the sign of the dividend, as in C; for integers, x mod 0 is 0."""
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, b.dtype.type(1), b))) if _is_integer(a) else np.asarray(np.fmod(a, b))


def _power(a: Array, b: Array) -> Array:
    """Raise to a power. Integers wrap; a negative integer exponent truncates 1 / a**-b, and gives 0 for a == 0."""
    if not _is_integer(a):
        return np.asarray(power(a, b))
    powers = np.power(a, np.where(b < 0, 0, b))
    inverse = np.where(a == 1, 1, 0)
    if a.dtype.kind == "i":
        inverse = np.where(a == -1, np.where(b % 2 == 0, 1, -1), inverse)
    return np.where(b < 0, inverse.astype(a.dtype), powers)


def _power_value(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    if a.dtype.is_float:
        return te.math("pow", a, b)
    # Square and multiply. Every bit of the exponent matters, since powers of an odd base never wrap to 0. The highest bit comes
    # first, so that the squares depend on the exponent: otherwise, in a loop in which only the exponent changes, LLVM 22 explores
    # 2^31 paths through the squares.
    one, zero = te.const(1, a.dtype), te.const(0, a.dtype)
    result: ir.Expr | None = None
    for bit in reversed(range(a.dtype.bits - (a.dtype.kind == "int"))):
        # 1 + bit * (a - 1) is the base or 1, without a select whose branches code generators would print separately.
        factor = one + ((b >> bit) & 1) * (a - one)
        result = factor if result is None else result * result * factor
    assert result is not None
    if a.dtype.kind == "uint":
        return result
    odd = (b & 1).not_equal(0)
    inverse = te.select(a.equal(1), one, te.select(a.equal(-1), te.select(odd, te.const(-1, a.dtype), one), zero))
    return te.select(b < 0, inverse, result)


def _shift(numpy: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Array]:
    """Make a shift for which a count outside of [0, width) gives 0, or -1 for a right shift of a negative number."""

    def run(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        is_out_of_range = (b < 0) | (b >= width)
        sign_fill = np.where(a < 0, -1, 0).astype(a.dtype) if numpy is np.right_shift else np.zeros_like(a)
        return np.where(is_out_of_range, sign_fill, numpy(a, np.where(is_out_of_range, 0, b).astype(b.dtype)))

    return run


def _arithmetic(
    name: str, value: Value, numpy: Numpy, traits: Traits = NO_TRAITS, commutative: bool = False, *, doc: str
) -> Operator:
    return elementwise(name, value, numpy, kinds=NUMERIC, inputs=_AB, commutative=commutative, traits=traits, doc=doc)


def _logic(name: str, value: Value, numpy: Numpy, kinds: tuple[str, ...], traits: Traits = NO_TRAITS, *, doc: str) -> Operator:
    return elementwise(name, value, numpy, kinds=kinds, inputs=_AB, commutative=True, traits=traits, doc=doc)


def _corners(combine: Callable[[Array, Array], Array], a: Interval, b: Interval) -> Interval:
    """Return the bounds of `combine`, which is monotone in each operand with the other operand fixed."""
    values = [combine(x, y) for x in a for y in b]
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _quotient_interval(a: Interval, b: Interval) -> Interval | None:
    return None if np.any(b[0] < 1) else _corners(lambda x, y: np.sign(x) * (np.abs(x) // y), a, b)


def _shifted_interval(a: Interval, b: Interval) -> Interval | None:
    is_exact = np.all(b[0] == b[1]) and np.all(b[0] >= 0) and np.all(b[0] <= 31)
    return (a[0] << b[0], a[1] << b[1]) if is_exact else None


_SUM = Traits(interval=lambda a, b: (a[0] + b[0], a[1] + b[1]))
_DIFFERENCE = Traits(interval=lambda a, b: (a[0] - b[1], a[1] - b[0]))
_PRODUCT = Traits(interval=lambda a, b: _corners(np.multiply, a, b))
_QUOTIENT = Traits(expensive=True, interval=_quotient_interval)
_EXTREME = Traits(moves=Moves((0, 1), Choice.ORDER), idempotent=True)
_GREATEST = replace(_EXTREME, interval=lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])))
_LEAST = replace(_EXTREME, interval=lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])))
_LESS = Traits(interval=lambda a, b: ((a[1] < b[0]).astype(np.int64), (a[0] < b[1]).astype(np.int64)))
_SHIFTED = Traits(interval=_shifted_interval)

add = _arithmetic("add", lambda a, b: a + b, np.add, _SUM, commutative=True, doc="Addition. Integers wrap.")
sub = _arithmetic("sub", lambda a, b: a - b, np.subtract, _DIFFERENCE, doc="Subtraction. Integers wrap.")
mul = _arithmetic("mul", lambda a, b: a * b, np.multiply, _PRODUCT, commutative=True, doc="Multiplication. Integers wrap.")
div = _arithmetic(
    "div", lambda a, b: a / b, _divide, _QUOTIENT, doc="Division. Integer division truncates towards 0; x / 0 is 0 for integers."
)
mod = _arithmetic("mod", _floor_mod_value, _floor_mod, doc="Remainder with the sign of the divisor. x mod 0 is 0 for integers.")
fmod = _arithmetic(
    "fmod", lambda a, b: a % b, _truncated_mod, doc="Remainder with the sign of the dividend. x mod 0 is 0 for integers."
)
pow = _arithmetic(
    "pow",
    _power_value,
    _power,
    _STEEP,
    doc="Power a ** b. Integers wrap; a negative integer exponent truncates 1 / a ** -b, and gives 0 for a = 0.",
)
maximum = _arithmetic("maximum", te.maximum, np.maximum, _GREATEST, commutative=True, doc="Element-wise maximum. NaN-propagating.")
minimum = _arithmetic("minimum", te.minimum, np.minimum, _LEAST, commutative=True, doc="Element-wise minimum. NaN-propagating.")
equal = elementwise(
    "equal", lambda a, b: a.equal(b), np.equal, kinds=ANY, inputs=_AB, result="bool", commutative=True, doc="Test a == b."
)
less = elementwise("less", lambda a, b: a < b, np.less, kinds=NUMERIC, inputs=_AB, result="bool", traits=_LESS, doc="Test a < b.")
less_equal = elementwise(
    "less_equal", lambda a, b: a <= b, np.less_equal, kinds=NUMERIC, inputs=_AB, result="bool", doc="Test a <= b."
)
logical_and = _logic("logical_and", lambda a, b: a & b, np.logical_and, BOOL, _IDEMPOTENT, doc="Logical AND.")
logical_or = _logic("logical_or", lambda a, b: a | b, np.logical_or, BOOL, _IDEMPOTENT, doc="Logical OR.")
logical_xor = _logic("logical_xor", lambda a, b: a ^ b, np.logical_xor, BOOL, doc="Logical exclusive OR.")
bitwise_and = _logic("bitwise_and", lambda a, b: a & b, np.bitwise_and, INTEGER, _IDEMPOTENT, doc="Bitwise AND.")
bitwise_or = _logic("bitwise_or", lambda a, b: a | b, np.bitwise_or, INTEGER, _IDEMPOTENT, doc="Bitwise OR.")
bitwise_xor = _logic("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor, INTEGER, doc="Bitwise exclusive OR.")
shift_left = elementwise(
    "shift_left",
    lambda a, b: a << b,
    _shift(np.left_shift),
    kinds=INTEGER,
    inputs=_AB,
    traits=_SHIFTED,
    doc="Shift a left by b bits. A count outside of [0, width) gives 0.",
)
shift_right = elementwise(
    "shift_right",
    lambda a, b: a >> b,
    _shift(np.right_shift),
    kinds=INTEGER,
    inputs=_AB,
    doc="Shift a right by b bits, arithmetically if signed. A count outside of [0, width) gives 0, or -1 for a < 0.",
)

# --- selection --------------------------------------------------------------------------------------------------------


def _where_infer(attrs: Attrs, condition: Type, x: Type, y: Type) -> Type:
    tensors = (tensor_type(condition, BOOL, "the condition"), tensor_type(x), tensor_type(y))
    return TensorType(broadcast_shapes(*(tensor.shape for tensor in tensors)), common_dtype(*tensors[1:]))


def _where_reference(attrs: Attrs, condition: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(condition, x, y))


def _where_compute(attrs: Attrs, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return map_elements(te.select, condition, x, y, result=x.dtype, name="where")


def _where_interval(condition: Interval, x: Interval, y: Interval) -> Interval:
    always, never = condition[0] == 1, condition[1] == 0
    low = np.where(always, x[0], np.where(never, y[0], np.minimum(x[0], y[0])))
    return low, np.where(always, x[1], np.where(never, y[1], np.maximum(x[1], y[1])))


where = Operator(
    "where",
    _where_infer,
    reference=_where_reference,
    compute=_where_compute,
    fusion=FusionKind.INJECTIVE,
    elementwise=True,
    traits=Traits(moves=Moves((1, 2), Choice.INDEX), interval=_where_interval),
    arity=(3, 3),
    inputs=("condition", "x", "y"),
    doc="""Select x where the condition is true, else y.
Operands: condition, bool; x and y, of one numeric or bool dtype; all broadcast. Result: dtype of x, the broadcast shape.""",
)


@dataclass(frozen=True)
class ClipAttrs(Attrs):
    """`minimum`, `maximum`: inclusive bounds; an infinite bound has no effect. If minimum > maximum, the result is maximum."""

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


clip = elementwise_with(
    "clip",
    ClipAttrs,
    _clip_value,
    _clip,
    kinds=NUMERIC,
    traits=Traits(monotone=True),
    doc="Clamp to the range [`minimum`, `maximum`]. NaN-propagating.",
)

OPERATORS = make_family(
    *(abs, neg, sign, sqrt, floor, ceil, round, exp, expm1, log, log1p, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh),
    *(asinh, acosh, atanh, erf, logical_not, bitwise_not, isnan, isinf),
    *(add, sub, mul, div, mod, fmod, pow, maximum, minimum, equal, less, less_equal),
    *(logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right),
    *(where, clip),
)
