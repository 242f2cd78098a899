"""Fold batch normalization and scaling into weights: at inference the statistics are constants.

Constants are combined in float64 and rounded once, which leaves fewer roundings at run time. Scaling the weights instead of the sum
reassociates the reduction, which Inlaid's numerics allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Match, Pattern, is_const, is_op, match, wildcard
from inlaid.graph.rewrite import RewriteRule, rewrite_expr
from inlaid.graph.transform import transform_function
from inlaid.graph.uses import UseCounts
from inlaid.ops.compose import cast_to, scalar
from inlaid.ops.define import working_dtype
from inlaid.ops.elementwise import add, div, mul, sqrt, sub
from inlaid.ops.shape import reshape
from inlaid.passes.witness_sizes import witness_sizes
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType, from_numpy

Array = np.ndarray[Any, Any]


def simplify_inference(target: Function) -> Function:
    """Rewrite `batch_norm` to a scale and a shift, fold constant scales into the constant weights of the preceding convolution or
    matrix product, and merge consecutive constant scales and shifts. An expression is merged only if nothing else uses it."""
    expanded = rewrite_expr(target, [RewriteRule("batch_norm", is_op("batch_norm").named("norm"), _scale_and_shift)])
    assert isinstance(expanded, Function)
    return _fold_scales(witness_sizes(expanded))


# --- batch normalization ----------------------------------------------------------------------------------------------


def _scale_and_shift(match: Match) -> Expr:
    """Build x * factor + offset, in the working dtype of x."""
    norm = match.call("norm")
    x, *statistics = norm.args
    assert isinstance(x.type, TensorType)
    wide = working_dtype(x.type.dtype)
    factor: Expr
    offset: Expr
    if all(isinstance(item, Constant) for item in statistics):
        scale, bias, mean, variance = (_values(item) for item in statistics)
        factor_values = scale / np.sqrt(variance + norm.attrs.epsilon)
        factor, offset = (
            constant(value.astype(wide.numpy), span=norm.span) for value in (factor_values, bias - mean * factor_values)
        )
    else:
        scale_, bias_, mean_, variance_ = (cast_to(item, wide) for item in statistics)
        factor = div(scale_, sqrt(add(variance_, scalar(norm.attrs.epsilon, wide))))
        offset = sub(bias_, mul(mean_, factor))
    shape = (x.type.shape[1], *(1,) * (x.type.rank - 2))
    factor, offset = (_reshaped(item, shape) for item in (factor, offset))
    return cast_to(add(mul(cast_to(x, wide), factor), offset), x.type.dtype)


def _reshaped(value: Expr, shape: tuple[Dim, ...]) -> Expr:
    if isinstance(value, Constant):
        return constant(value.data.reshape((-1, *shape[1:])), span=value.span)
    return reshape(value, shape=shape)


def _values(value: Expr) -> Array:
    assert isinstance(value, Constant)
    return value.data.astype(np.float64)


# --- scales into weights ----------------------------------------------------------------------------------------------

_PRODUCT = is_op("conv", "conv_transpose", "matmul")(wildcard(), is_const().named("weights")).named("product")
_BIASED = _PRODUCT.optional(lambda product: is_op("add")(product, is_const().named("bias")).named("sum"))
_SCALED = is_op("mul")(_BIASED, is_const().named("scale"))


def _fold_scales(target: Function) -> Function:
    """Fold scales into weights and merge consecutive constants, in one sweep from operands to results."""
    uses = UseCounts(target)

    def visit(old: Expr, new: Expr) -> Expr:
        for pattern, build in _STEPS:
            step_match = match(pattern, new)
            if step_match is not None and all(uses.single(item) for name, item in step_match.captures.items() if name in _INNER):
                built = build(step_match)
                new = new if built is None else built
        uses.note(old, new)
        return new

    return transform_function(target, visit)


def _scaled(match: Match) -> Expr | None:
    """Scale the weights and the bias, if any, of a product; None if the scale is not per output channel."""
    product, weights, scale = match.call("product"), match["weights"], match["scale"]
    assert isinstance(product.callee, Operator) and isinstance(weights, Constant) and isinstance(scale, Constant)
    type_ = product.type
    if not isinstance(type_, TensorType) or not type_.dtype.is_float or match.root.type != type_:
        return None
    vector = _by_channel(product, _values(scale))
    if vector is None:
        return None
    # A product of float32 values rounds as their exact product in float64 does.
    dtype = np.float32 if weights.data.dtype == scale.data.dtype == np.float32 else np.float64
    with np.errstate(all="ignore"):
        weight = _rounded(weights.data.astype(dtype, copy=False) * vector.astype(dtype), weights)
    bias = _rounded(_values(match["bias"]) * _values(scale), match["bias"]) if "sum" in match else None
    if weight is None or ("sum" in match and bias is None):
        return None
    result: Expr = call(product.callee, (product.args[0], weight), product.attrs, product.span)
    return result if bias is None else add(result, bias, span=match["sum"].span)


def _by_channel(product: Call, scale: Array) -> Array | None:
    """Reshape a scale that broadcasts to a product's result, so that it broadcasts to the weights; None if impossible."""
    type_, weights = product.type, product.args[1]
    assert isinstance(type_, TensorType) and isinstance(weights, Constant) and isinstance(product.callee, Operator)
    rank = type_.rank
    if scale.ndim > rank or type_.dtype is not from_numpy(weights.data.dtype):
        return None
    aligned_scale = scale.reshape((1,) * (rank - scale.ndim) + scale.shape)
    axis = rank - 1 if product.callee.name == "matmul" else 1
    if aligned_scale.size != aligned_scale.shape[axis]:
        return None
    vector = aligned_scale.reshape(-1)
    if product.callee.name == "matmul":
        return vector if weights.data.ndim == 2 else vector if vector.size == 1 else None
    spatial = (1,) * (weights.data.ndim - 2)
    if product.callee.name == "conv":
        return vector.reshape((-1, 1, *spatial))
    return vector.reshape((1, -1, *spatial)) if product.attrs.groups == 1 or vector.size == 1 else None


# --- consecutive constants ------------------------------------------------------------------------------------------


def _shifted_twice(match: Match) -> Expr | None:
    """Rewrite (x + a) + b to x + (a + b)."""
    total = _combined(np.add, match, "a", "b")
    return None if total is None else _unless_type_changes(match, add(match["x"], total, span=match.root.span))


def _scaled_twice(match: Match) -> Expr | None:
    """Rewrite (x * a) * b to x * (a * b)."""
    factor = _combined(np.multiply, match, "a", "b")
    return None if factor is None else _unless_type_changes(match, mul(match["x"], factor, span=match.root.span))


def _affine_scaled(match: Match) -> Expr | None:
    """Rewrite (x * a + b) * c to x * (a * c) + (b * c)."""
    factor, offset = _combined(np.multiply, match, "a", "c"), _combined(np.multiply, match, "b", "c")
    if factor is None or offset is None:
        return None
    return _unless_type_changes(match, add(mul(match["x"], factor, span=match.root.span), offset, span=match.root.span))


def _unless_type_changes(match: Match, result: Expr) -> Expr | None:
    return result if result.type == match.root.type else None


def _combined(combine: np.ufunc, match: Match, first: str, second: str) -> Constant | None:
    """Combine two float constants; None if the result overflows or is denormal, since the two separate operations could stay in
    range."""
    with np.errstate(all="ignore"):
        value = combine(_values(match[first]), _values(match[second]))
    result = _rounded(value, match[second])
    if result is None or bool(np.any((np.abs(result.data) < np.finfo(result.data.dtype).tiny) & (value != 0))):
        return None
    return result


def _rounded(value: Array, prototype: Expr) -> Constant | None:
    """Round a float64 value to the dtype of `prototype`, float32 or float64; None for any other dtype or a non-finite result."""
    assert isinstance(prototype, Constant)
    dtype = prototype.data.dtype
    if dtype not in (np.float32, np.float64):
        return None
    with np.errstate(all="ignore"):
        rounded = value.astype(dtype, copy=False)
    return constant(rounded, span=prototype.span) if bool(np.all(np.isfinite(rounded))) else None


def _with_constant(name: str, inner: Pattern, constant_name: str) -> Pattern:
    return is_op(name)(inner, is_const().named(constant_name))


def _steps() -> tuple[tuple[Pattern, Callable[[Match], Expr | None]], ...]:
    x = wildcard().named("x")
    affine = _with_constant("add", _with_constant("mul", x, "a").named("product"), "b").named("sum")
    return (
        (_SCALED, _scaled),
        (_with_constant("mul", affine, "c"), _affine_scaled),
        (_with_constant("mul", _with_constant("mul", x, "a").named("product"), "b"), _scaled_twice),
        (_with_constant("add", _with_constant("add", x, "a").named("sum"), "b"), _shifted_twice),
    )


_STEPS = _steps()
"""Rewrites to try at each expression, in order."""
_INNER = ("product", "sum")
"""Names of captured expressions that a rewrite replaces, and that nothing else may use."""
