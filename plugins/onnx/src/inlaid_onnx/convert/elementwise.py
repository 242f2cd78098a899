"""Element-wise operators: arithmetic, comparison, logic, selection, activations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from inlaid.graph.conditions import require_broadcast_to, require_shape
from inlaid.graph.ir import Expr
from inlaid.graph.operator import Operator
from inlaid.ops import activation, elementwise
from inlaid.ops.activation import gelu, sigmoid
from inlaid.ops.compose import cast_to, elu, expr_type, scalar, softplus, widened
from inlaid.ops.container import string_equal
from inlaid.ops.conversion import greatest as greatest_finite
from inlaid.ops.elementwise import (
    abs,
    add,
    clip,
    div,
    equal,
    exp,
    expm1,
    fmod,
    isinf,
    less,
    less_equal,
    log,
    logical_not,
    logical_or,
    maximum,
    minimum,
    mod,
    mul,
    neg,
    pow,
    shift_left,
    shift_right,
    sub,
    tanh,
    where,
)
from inlaid.ops.shape import reshape
from inlaid_onnx.node import Converter, Node, as_float32

# --- one operator each -------------------------------------------------------------------------------------------


def _unary(operator: Operator) -> Converter:
    return lambda node: operator(node.input(0))


def _operands(node: Node) -> tuple[Expr, Expr]:
    """Return the two operands so that they broadcast by numpy's rules. Before opset 7, the attributes `broadcast` and `axis`
    aligned the second operand with an axis of the first."""
    a, b = node.input(0), node.input(1)
    if node.opset >= 7 or not node.attrs.get("broadcast", 0) or "axis" not in node.attrs:
        return a, b
    axis, shape = node.axis(node.attrs["axis"], node.rank(0)), node.tensor(1).shape
    after = node.rank(0) - axis - len(shape)
    if after < 0:
        raise node.error(f"the second operand, of rank {len(shape)}, must fit axis {axis} of rank {node.rank(0)}")
    return a, reshape(b, shape=(*shape, *(1,) * after))


def _binary(operator: Operator) -> Converter:
    return lambda node: operator(*_operands(node))


def _greater(operator: Operator) -> Converter:
    return lambda node: operator(*reversed(_operands(node)))


def _variadic(operator: Operator) -> Converter:
    return lambda node: functools.reduce(operator, [node.input(index) for index in range(len(node.inputs))])


def _total(node: Node) -> Expr:
    """Sum the inputs in the working dtype: a narrow dtype would round, and could overflow, at every step."""
    return functools.reduce(add, [widened(node.input(index)) for index in range(len(node.inputs))])


def _sum(node: Node) -> Expr:
    return cast_to(_total(node), node.dtype(0))


def _mean(node: Node) -> Expr:
    total = _total(node)
    return cast_to(div(total, scalar(len(node.inputs), expr_type(total).dtype)), node.dtype(0))


def _where(node: Node) -> Expr:
    return where(node.input(0), node.input(1), node.input(2))


def _equal(node: Node) -> Expr:
    return (string_equal if node.dtype(0).kind == "string" else equal)(*_operands(node))


def _mod(node: Node) -> Expr:
    return (fmod if node.attrs.get("fmod", 0) else mod)(node.input(0), node.input(1))


def _pow(node: Node) -> Expr:
    """Convert Pow. The result has the dtype of the base. An integer base with a float exponent is computed in float64."""
    base, exponent = _operands(node)
    base_dtype, exponent_dtype = node.dtype(0), node.dtype(1)
    if base_dtype.is_int and exponent_dtype.is_float:
        return cast_to(pow(cast_to(base, "float64"), cast_to(exponent, "float64")), base_dtype)
    return pow(base, cast_to(exponent, base_dtype))


def _bit_shift(node: Node) -> Expr:
    direction = node.attrs.get("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.error(f"direction must be LEFT or RIGHT, got {direction!r}")
    return (shift_left if direction == "LEFT" else shift_right)(node.input(0), node.input(1))


def _is_inf(node: Node) -> Expr:
    attrs = node.attrs
    return isinf(node.input(0), negative=bool(attrs.get("detect_negative", 1)), positive=bool(attrs.get("detect_positive", 1)))


def _clip(node: Node) -> Expr:
    """Convert Clip. Static bounds become attributes, other bounds operands. The lower bound applies before the upper one. Omitted
    bounds are the least and the greatest finite number of the element type, so that infinities become finite."""
    x, element = node.input(0), node.dtype(0)
    largest = greatest_finite(element) if element.is_float else math.inf
    limits = -largest, largest
    if node.opset < 11:
        return clip(x, minimum=node.attrs.get("min", limits[0]), maximum=node.attrs.get("max", limits[1]))
    static_lower, static_upper = (_bound(node, index, limit) for index, limit in zip((1, 2), limits, strict=True))
    if static_lower is not None and static_upper is not None:
        return clip(x, minimum=static_lower, maximum=static_upper)
    lower, upper = node.optional(1), node.optional(2)
    if static_lower is not None:
        x = clip(x, minimum=static_lower)
    elif lower is not None:
        x = maximum(x, lower)
    if static_upper is not None:
        return clip(x, maximum=static_upper)
    return x if upper is None else minimum(x, upper)


def _bound(node: Node, index: int, limit: float) -> float | None:
    """Return a bound as a number, int for integer data. Returns `limit` if the bound is omitted, None if it is data-dependent."""
    if node.optional(index) is None:
        return limit
    value = node.static(index)
    if value is None or value.size != 1:
        return None
    return int(value.reshape(())) if node.dtype(0).is_int else float(value.reshape(()))


# --- activations ------------------------------------------------------------------------------------------------------

Formula = Callable[[Expr, Callable[[float], Expr], Mapping[str, float]], Expr]


def _formula(build: Formula, **defaults: float) -> Converter:
    """Make a converter of an activation. `build(x, constant, attributes)` applies its formula to `x` in the working dtype, in which
    `constant(number)` makes a scalar. `defaults` are the float attributes and their default values."""

    def convert(node: Node) -> Expr:
        x = widened(node.input(0))
        dtype = expr_type(x).dtype
        attrs = {name: node.real(name, value) for name, value in defaults.items()}
        return cast_to(build(x, lambda value: scalar(value, dtype), attrs), node.dtype(0))

    return convert


def _elu(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return elu(x, attrs["alpha"])


def _celu(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    alpha = c(attrs["alpha"])
    return add(maximum(x, c(0)), minimum(c(0), mul(alpha, expm1(div(x, alpha)))))


def _selu(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return mul(c(attrs["gamma"]), elu(x, attrs["alpha"]))


def _hard_sigmoid(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return clip(add(mul(x, c(attrs["alpha"])), c(attrs["beta"])), minimum=0.0, maximum=1.0)


def _hard_swish(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return mul(x, _hard_sigmoid(x, c, {"alpha": as_float32(1 / 6), "beta": 0.5}))


def _softplus(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return softplus(x)


def _mish(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return mul(x, tanh(softplus(x)))


def _softsign(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return div(x, add(c(1), abs(x)))


def _swish(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return mul(x, sigmoid(x if attrs["alpha"] == 1 else mul(x, c(attrs["alpha"]))))


def _thresholded_relu(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return where(less(c(attrs["alpha"]), x), x, c(0))


def _leaky_relu(x: Expr, c: Callable[[float], Expr], attrs: Mapping[str, float]) -> Expr:
    return where(less(x, c(0)), mul(x, c(attrs["alpha"])), x)


def _swiglu(node: Node) -> Expr:
    with node.relations():
        require_shape(node.tensor(1).shape, node.tensor(0).shape, "the second operand")
    gate, value = widened(node.input(0)), widened(node.input(1))
    dtype = expr_type(gate).dtype
    attrs = {"alpha": node.real("alpha", 1.0)}
    return cast_to(mul(_swish(gate, lambda number: scalar(number, dtype), attrs), value), node.dtype(0))


def _prelu(node: Node) -> Expr:
    """Convert PRelu. The slope broadcasts to the data; before opset 7 a vector of slopes was per channel."""
    x, slope = node.input(0), node.input(1)
    if node.opset < 7 and node.rank(1) == 1 and node.rank(0) > 2 and node.tensor(1).shape != (1,):
        slope = reshape(slope, shape=(*node.tensor(1).shape, *(1,) * (node.rank(0) - 2)))
    with node.relations():
        require_broadcast_to(expr_type(slope).shape, node.tensor(0).shape, "the slope")
    return where(less(x, scalar(0, node.dtype(0))), mul(slope, x), x)


def _shrink(node: Node) -> Expr:
    """Convert Shrink: x + bias for x < -lambd, x - bias for x > lambd, else 0. Integers are computed in float32 and truncated."""
    dtype = node.dtype(0)
    x = cast_to(node.input(0), "float32") if dtype.is_int else widened(node.input(0))
    work_dtype = expr_type(x).dtype
    limit, bias = (scalar(node.attrs.get(name, default), work_dtype) for name, default in (("lambd", 0.5), ("bias", 0.0)))
    zero = scalar(0, work_dtype)
    below = where(less(x, neg(limit)), add(x, bias), zero)
    return cast_to(where(less(limit, x), sub(x, bias), below), dtype)


def _gelu(node: Node) -> Expr:
    return gelu(node.input(0), approximate=node.attrs.get("approximate", "none") == "tanh")


def _reciprocal(node: Node) -> Expr:
    return div(scalar(1, node.dtype(0)), node.input(0))


_UNARY = {
    "Abs": abs,
    "Acos": elementwise.acos,
    "Acosh": elementwise.acosh,
    "Asin": elementwise.asin,
    "Asinh": elementwise.asinh,
    "Atan": elementwise.atan,
    "Atanh": elementwise.atanh,
    "BitwiseNot": elementwise.bitwise_not,
    "Ceil": elementwise.ceil,
    "Cos": elementwise.cos,
    "Cosh": elementwise.cosh,
    "Erf": elementwise.erf,
    "Exp": exp,
    "Floor": elementwise.floor,
    "IsNaN": elementwise.isnan,
    "Log": log,
    "Neg": neg,
    "Not": logical_not,
    "Relu": activation.relu,
    "Sigmoid": sigmoid,
    "Round": elementwise.round,
    "Sign": elementwise.sign,
    "Sin": elementwise.sin,
    "Sinh": elementwise.sinh,
    "Sqrt": elementwise.sqrt,
    "Tan": elementwise.tan,
    "Tanh": tanh,
}
_BINARY = {
    "Add": add,
    "Sub": sub,
    "Mul": mul,
    "Div": div,
    "Less": less,
    "LessOrEqual": less_equal,
    "And": elementwise.logical_and,
    "Or": logical_or,
    "Xor": elementwise.logical_xor,
    "BitwiseAnd": elementwise.bitwise_and,
    "BitwiseOr": elementwise.bitwise_or,
    "BitwiseXor": elementwise.bitwise_xor,
}

CONVERTERS: Mapping[str, Converter] = {
    **{name: _unary(operator) for name, operator in _UNARY.items()},
    **{name: _binary(operator) for name, operator in _BINARY.items()},
    "Greater": _greater(less),
    "GreaterOrEqual": _greater(less_equal),
    "Equal": _equal,
    "Max": _variadic(maximum),
    "Min": _variadic(minimum),
    "Sum": _sum,
    "Mean": _mean,
    "Where": _where,
    "Mod": _mod,
    "Pow": _pow,
    "BitShift": _bit_shift,
    "IsInf": _is_inf,
    "Clip": _clip,
    "Reciprocal": _reciprocal,
    "Gelu": _gelu,
    "PRelu": _prelu,
    "Shrink": _shrink,
    "SwiGLU": _swiglu,
    "LeakyRelu": _formula(_leaky_relu, alpha=0.01),
    "Elu": _formula(_elu, alpha=1.0),
    "Celu": _formula(_celu, alpha=1.0),
    "Selu": _formula(_selu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "HardSigmoid": _formula(_hard_sigmoid, alpha=0.2, beta=0.5),
    "HardSwish": _formula(_hard_swish),
    "Mish": _formula(_mish),
    "Softplus": _formula(_softplus),
    "Softsign": _formula(_softsign),
    "Swish": _formula(_swish, alpha=1.0),
    "ThresholdedRelu": _formula(_thresholded_relu, alpha=1.0),
}
