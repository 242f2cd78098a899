"""Softmax and normalizations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inlaid.graph.conditions import require_broadcast_to, require_shape
from inlaid.graph.ir import Expr
from inlaid.graph.operator import Attrs, ErrorPropagation, FusionKind, Operator, Traits
from inlaid.ops.compose import cast_to, expr_type, mean, scalar, widened
from inlaid.ops.define import (
    FLOAT,
    SAME_TYPE,
    Array,
    AxisAttrs,
    as_array,
    broadcast_read,
    check_axis,
    make_family,
    quiet,
    tensor_type,
    widen,
    widen_array,
    working_dtype,
)
from inlaid.ops.elementwise import add, div, mul, sqrt, sub
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Type, from_numpy


def _infer_softmax(attrs: AxisAttrs, x: Type) -> Type:
    data = tensor_type(x, FLOAT)
    check_axis(attrs.axis, data.rank)
    return data


@quiet
def _reference_softmax(attrs: AxisAttrs, x: Array) -> Array:
    wide = widen_array(x)
    powers = np.exp(wide - wide.max(axis=attrs.axis, keepdims=True, initial=-np.inf))
    return as_array(powers / powers.sum(axis=attrs.axis, keepdims=True), from_numpy(x.dtype))


@quiet
def _reference_log_softmax(attrs: AxisAttrs, x: Array) -> Array:
    wide = widen_array(x)
    shifted = wide - wide.max(axis=attrs.axis, keepdims=True, initial=-np.inf)
    return as_array(shifted - np.log(np.exp(shifted).sum(axis=attrs.axis, keepdims=True)), from_numpy(x.dtype))


def _without_axis(index: tuple[arith.Var, ...], axis: int) -> tuple[arith.Var, ...]:
    return index[:axis] + index[axis + 1 :]


def _reduce_along(x: te.Tensor, axis: int, reducer: te.Reducer, name: str) -> te.Tensor:
    """Build a stage that reduces one axis in the working dtype."""
    k = te.reduce_axis(x.shape[axis], "k")
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    result: te.Tensor = te.compute(shape, lambda *i: reducer(widen(x[(*i[:axis], k, *i[axis:])]), k), name)
    return result


def _compute_softmax(attrs: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = attrs.axis
    maxima = _reduce_along(x, axis, te.max_, "softmax_max")
    powers = te.compute(x.shape, lambda *i: te.math("exp", widen(x[i]) - maxima[_without_axis(i, axis)]), "softmax_exp")
    total = _reduce_along(powers, axis, te.sum_, "softmax_sum")
    # One division per row. The maximum contributes 1 to the total, so the total is not 0.
    inverse = te.compute(total.shape, lambda *i: 1.0 / total[i], "softmax_inverse")
    result: te.Tensor = te.compute(x.shape, lambda *i: te.cast(powers[i] * inverse[_without_axis(i, axis)], x.dtype), "softmax")
    return result


def _compute_log_softmax(attrs: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = attrs.axis
    maxima = _reduce_along(x, axis, te.max_, "softmax_max")
    powers = te.compute(x.shape, lambda *i: te.math("exp", widen(x[i]) - maxima[_without_axis(i, axis)]), "softmax_exp")
    total = _reduce_along(powers, axis, te.sum_, "softmax_sum")
    logs = te.compute(total.shape, lambda *i: te.math("log", total[i]), "softmax_log")
    result: te.Tensor = te.compute(
        x.shape,
        lambda *i: te.cast(widen(x[i]) - maxima[_without_axis(i, axis)] - logs[_without_axis(i, axis)], x.dtype),
        "log_softmax",
    )
    return result


@dataclass(frozen=True)
class EpsilonAttrs(Attrs):
    """`epsilon`: a constant added to the variance."""

    epsilon: float = 1e-5


def _infer_batch_norm(attrs: EpsilonAttrs, x: Type, *rest: Type) -> Type:
    data = tensor_type(x, FLOAT)
    if data.rank < 2:
        raise ValueError(f"x must have rank >= 2, got {data.rank}")
    for what, type_ in zip(("scale", "bias", "mean", "variance"), rest, strict=True):
        require_shape(tensor_type(type_, FLOAT, f"the {what}").shape, (data.shape[1],), f"the {what}")
    return data


@quiet
def _reference_batch_norm(attrs: EpsilonAttrs, x: Array, *rest: Array) -> Array:
    wide = widen_array(x)
    scale, bias, mean, variance = (
        array.astype(wide.dtype, copy=False).reshape((-1,) + (1,) * (x.ndim - 2)) for array in map(widen_array, rest)
    )
    factor = scale / np.sqrt(variance + wide.dtype.type(attrs.epsilon))
    return as_array((wide - mean) * factor + bias, from_numpy(x.dtype))


def _compute_batch_norm(attrs: EpsilonAttrs, x: te.Tensor, *rest: te.Tensor) -> te.Tensor:
    acc = working_dtype(x.dtype)

    def element(*i: arith.Var) -> ir.Expr:
        scale, bias, mean, variance = (te.cast(tensor[i[1]], acc) for tensor in rest)
        factor = scale / te.unary("sqrt", variance + attrs.epsilon)
        return te.cast((widen(x[i]) - mean) * factor + bias, x.dtype)

    result: te.Tensor = te.compute(x.shape, element, "batch_norm")
    return result


@dataclass(frozen=True)
class LrnAttrs(Attrs):
    """`size`: the number of channels that are summed. `alpha`, `beta`, `bias`: coefficients of the formula."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


def _infer_lrn(attrs: LrnAttrs, x: Type) -> Type:
    data = tensor_type(x, FLOAT)
    if data.rank < 2 or attrs.size < 1:
        raise ValueError(f"x must have rank >= 2 and size must be >= 1, got {data.rank} and {attrs.size}")
    return data


@quiet
def _reference_lrn(attrs: LrnAttrs, x: Array) -> Array:
    wide = widen_array(x)
    before, after = (attrs.size - 1) // 2, attrs.size // 2
    squares = np.pad(wide * wide, [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
    total = sum((squares[:, k : k + x.shape[1]] for k in range(attrs.size)), np.zeros_like(wide))
    scalar = wide.dtype.type
    divisor = (scalar(attrs.bias) + scalar(attrs.alpha / attrs.size) * total) ** scalar(attrs.beta)
    return as_array(wide / divisor, from_numpy(x.dtype))


def _compute_lrn(attrs: LrnAttrs, x: te.Tensor) -> te.Tensor:
    acc = working_dtype(x.dtype)
    before = (attrs.size - 1) // 2
    k = te.reduce_axis(attrs.size, "k")

    def square(n: arith.Var, c: arith.Var, *rest: arith.Var) -> ir.Expr:
        channel = c + k - before
        inside = arith.logical_and(arith.compare(">=", channel, 0), arith.compare("<", channel, x.shape[1]))
        value = widen(x[(n, channel, *rest)])
        total: ir.Expr = te.sum_(te.select(inside, value * value, te.const(0, acc)), k)
        return total

    total = te.compute(x.shape, square, "lrn_sum")
    result: te.Tensor = te.compute(
        x.shape,
        lambda *i: te.cast(widen(x[i]) / _power(total[i] * (attrs.alpha / attrs.size) + attrs.bias, attrs.beta), x.dtype),
        "lrn",
    )
    return result


def _power(base: ir.Expr, exponent: float) -> ir.Expr:
    """Compute base ** exponent, by square roots for common exponents: a power takes ten times as long as two roots."""
    if exponent == 1.0:
        return base
    if exponent not in (0.5, 0.75):
        return te.math("pow", base, exponent)
    root = te.unary("sqrt", base)
    return root if exponent == 0.5 else root * te.unary("sqrt", root)


@dataclass(frozen=True)
class LayerNormAttrs(Attrs):
    """`axis`: the first of the normalized axes. `epsilon`: a constant added to the variance or mean square."""

    axis: int
    epsilon: float = 1e-5


def _infer_layer_norm(attrs: LayerNormAttrs, x: Type, *rest: Type) -> Type:
    data = tensor_type(x, FLOAT)
    check_axis(attrs.axis, data.rank)
    for what, type_ in zip(("scale", "bias"), rest, strict=False):
        require_broadcast_to(tensor_type(type_, FLOAT, f"the {what}").shape, data.shape, f"the {what}")
    return data


def _mean_array(x: Array, axis: int) -> Array:
    """Return the mean over the axes from `axis` on, keeping them. NaN for no elements, without the warning of numpy's `mean`."""
    return np.asarray(x.sum(axis=tuple(range(axis, x.ndim)), keepdims=True) / x.dtype.type(math.prod(x.shape[axis:])))


@quiet
def _reference_layer_norm(attrs: LayerNormAttrs, x: Array, scale: Array, bias: Array | None = None) -> Array:
    wide = widen_array(x)
    centered = wide - _mean_array(wide, attrs.axis)
    variance = _mean_array(centered * centered, attrs.axis)
    result = centered / np.sqrt(variance + wide.dtype.type(attrs.epsilon)) * widen_array(scale)
    return as_array(result if bias is None else result + widen_array(bias), from_numpy(x.dtype))


@quiet
def _reference_rms_norm(attrs: LayerNormAttrs, x: Array, scale: Array) -> Array:
    wide = widen_array(x)
    square = _mean_array(wide * wide, attrs.axis)
    return as_array(wide / np.sqrt(square + wide.dtype.type(attrs.epsilon)) * widen_array(scale), from_numpy(x.dtype))


def _mean(x: te.Tensor, axis: int, value: Callable[..., ir.Expr], name: str) -> te.Tensor:
    """Compute the mean of `value(*index)` over the axes from `axis` on, in the working dtype."""
    reduced = tuple(te.reduce_axis(dim, f"k{position}") for position, dim in enumerate(x.shape[axis:]))
    acc = working_dtype(x.dtype)
    divisor = ir.as_expr(arith.wrap(arith.product(x.shape[axis:])), acc) if reduced else te.const(1, acc)
    total = te.compute(x.shape[:axis], lambda *i: te.sum_(value(*i, *reduced), reduced), f"{name}_sum")
    result: te.Tensor = te.compute(x.shape[:axis], lambda *i: total[i] / divisor, name)
    return result


def _compute_layer_norm(attrs: LayerNormAttrs, x: te.Tensor, scale: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    axis, acc = attrs.axis, working_dtype(x.dtype)
    center = _mean(x, axis, lambda *i: widen(x[i]), "layer_norm_mean")

    def square(*i: arith.Var) -> ir.Expr:
        centered = widen(x[i]) - center[i[:axis]]
        return centered * centered

    variance = _mean(x, axis, square, "layer_norm_variance")
    inverse = te.compute(variance.shape, lambda *i: 1.0 / te.unary("sqrt", variance[i] + attrs.epsilon), "layer_norm_inverse")

    def element(*i: arith.Var) -> ir.Expr:
        value = (widen(x[i]) - center[i[:axis]]) * inverse[i[:axis]] * te.cast(broadcast_read(scale, x.shape, i), acc)
        return te.cast(value if bias is None else value + te.cast(broadcast_read(bias, x.shape, i), acc), x.dtype)

    result: te.Tensor = te.compute(x.shape, element, "layer_norm")
    return result


def _compute_rms_norm(attrs: LayerNormAttrs, x: te.Tensor, scale: te.Tensor) -> te.Tensor:
    axis, acc = attrs.axis, working_dtype(x.dtype)
    square = _mean(x, axis, lambda *i: widen(x[i]) * widen(x[i]), "rms_norm_square")
    inverse = te.compute(square.shape, lambda *i: 1.0 / te.unary("sqrt", square[i] + attrs.epsilon), "rms_norm_inverse")

    def element(*i: arith.Var) -> ir.Expr:
        value = widen(x[i]) * inverse[i[:axis]] * te.cast(broadcast_read(scale, x.shape, i), acc)
        return te.cast(value, x.dtype)

    result: te.Tensor = te.compute(x.shape, element, "rms_norm")
    return result


def moments(x: Expr, axes: tuple[int, ...], epsilon: float) -> tuple[Expr, Expr, Expr]:
    """Return (standardized x, mean, 1 / sqrt(variance + epsilon)). The last two keep the reduced axes with extent 1."""
    dtype = expr_type(x).dtype
    center = mean(x, axes, keepdims=True)
    centered = sub(x, center)
    deviation = sqrt(add(mean(mul(centered, centered), axes, keepdims=True), scalar(epsilon, dtype)))
    inverse = div(scalar(1, dtype), deviation)
    return mul(centered, inverse), center, inverse


def _decompose_layer_norm(attrs: LayerNormAttrs, args: tuple[Expr, ...]) -> Expr:
    x, scale, *bias = args
    type_ = expr_type(x)
    output, _, _ = moments(widened(x), tuple(range(attrs.axis, type_.rank)), attrs.epsilon)
    dtype = expr_type(output).dtype
    output = mul(output, cast_to(scale, dtype))
    for item in bias:
        output = add(output, cast_to(item, dtype))
    return cast_to(output, type_.dtype)


def _decompose_rms_norm(attrs: LayerNormAttrs, args: tuple[Expr, ...]) -> Expr:
    x, scale = args
    type_, wide = expr_type(x), widened(x)
    dtype = expr_type(wide).dtype
    square = mean(mul(wide, wide), tuple(range(attrs.axis, type_.rank)), keepdims=True)
    inverse = div(scalar(1, dtype), sqrt(add(square, scalar(attrs.epsilon, dtype))))
    return cast_to(mul(mul(wide, inverse), cast_to(scale, dtype)), type_.dtype)


softmax = Operator(
    "softmax",
    _infer_softmax,
    AxisAttrs,
    reference=_reference_softmax,
    compute=_compute_softmax,
    fusion=FusionKind.REDUCTION,
    inputs=("x",),
    doc="Softmax along an axis: exp(x - max) / sum(exp(x - max)).\nOperand: x, float, any shape. Result: shape and dtype of x.",
)

log_softmax = Operator(
    "log_softmax",
    _infer_softmax,
    AxisAttrs,
    reference=_reference_log_softmax,
    compute=_compute_log_softmax,
    fusion=FusionKind.REDUCTION,
    inputs=("x",),
    doc="Logarithm of the softmax along an axis.\nOperand: x, float, any shape. Result: shape and dtype of x.",
)

batch_norm = Operator(
    "batch_norm",
    _infer_batch_norm,
    EpsilonAttrs,
    reference=_reference_batch_norm,
    compute=_compute_batch_norm,
    fusion=FusionKind.INJECTIVE,
    arity=(5, 5),
    inputs=("x", "scale", "bias", "mean", "variance"),
    doc=f"""Batch normalization for inference: (x - mean) / sqrt(variance + epsilon) * scale + bias.
Operands, float: x (N, C, spatial...); scale, bias, mean and variance (C,). {SAME_TYPE}""",
)

lrn = Operator(
    "lrn",
    _infer_lrn,
    LrnAttrs,
    reference=_reference_lrn,
    compute=_compute_lrn,
    traits=Traits(errors=ErrorPropagation.DAMPS),
    inputs=("x",),
    doc="""Local response normalization across channels (Krizhevsky et al., 2012).
Computes x / (bias + alpha / size * sum) ** beta, where the sum is over the squares of `size` channels around each channel.
Operand: x (N, C, spatial...), float. Result: shape and dtype of x.""",
)

layer_norm = Operator(
    "layer_norm",
    _infer_layer_norm,
    LayerNormAttrs,
    reference=_reference_layer_norm,
    compute=_compute_layer_norm,
    fusion=FusionKind.REDUCTION,
    decompose=_decompose_layer_norm,
    traits=Traits(errors=ErrorPropagation.DAMPS),
    arity=(2, 3),
    inputs=("x", "scale", "bias"),
    doc=f"""Layer normalization (Ba et al., 2016): (x - mean) / sqrt(variance + epsilon) * scale + bias.
Mean and variance are over the axes from `axis` on.
Operands, float: x, any shape; scale and bias?, broadcast to the shape of x. {SAME_TYPE}""",
)

rms_norm = Operator(
    "rms_norm",
    _infer_layer_norm,
    LayerNormAttrs,
    reference=_reference_rms_norm,
    compute=_compute_rms_norm,
    fusion=FusionKind.REDUCTION,
    decompose=_decompose_rms_norm,
    traits=Traits(errors=ErrorPropagation.DAMPS),
    arity=(2, 2),
    inputs=("x", "scale"),
    doc=f"""Root mean square normalization (Zhang and Sennrich, 2019): x / sqrt(mean(x * x) + epsilon) * scale.
The mean is over the axes from `axis` on.
Operands, float: x, any shape; scale, broadcast to the shape of x. {SAME_TYPE}""",
)

OPERATORS = make_family(softmax, log_softmax, batch_norm, lrn, layer_norm, rms_norm)
