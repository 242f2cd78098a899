"""Selects the integer form of a call, or the reason why the call has no form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, constant, function, operator_traits
from inlaid.graph.operator import Moves, Operator
from inlaid.ops.compose import expr_type
from inlaid.ops.pool import AvgPoolAttrs
from inlaid_quantization.forms import (
    LONGEST_SOFTMAX,
    Affine,
    Average,
    Both,
    Form,
    Mean,
    Move,
    Product,
    Scaled,
    Softmax,
    Sum,
    Times,
    by_channel,
)
from inlaid_quantization.histogram import Array
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType

_PRODUCTS = (ops.conv, ops.conv_transpose, ops.matmul)
_BINARY = (ops.add, ops.sub, ops.mul, ops.div)
MEAN_LIMIT = 1 << 23
"""Greatest number of 8-bit elements whose sum certainly fits into 32 bits."""
WINDOW_LIMIT = 1 << 12
"""Greatest number of elements of an averaging window."""
MASK = 1e5
"""Magnitude from which an added constant is a mask: a range that included it would leave no precision for other values."""
NO_FORM = "it has no integer implementation"


def match_form(target: Call) -> tuple[Form | Move, tuple[Expr, ...]] | str:
    """Return the form of a float32 operator call with its stored operands, or the reason why it has no form."""
    operator = target.callee
    if operator in _PRODUCTS:
        return _product(target)
    if operator in _BINARY:
        return _binary(target)
    if operator is ops.reduce_sum:
        return _mean(target)
    if operator is ops.avg_pool:
        return _average(target)
    if operator is ops.softmax:
        extent = expr_type(target).shape[target.attrs.axis]
        if not isinstance(extent, int) or not 0 < extent <= LONGEST_SOFTMAX:
            return f"it sums {extent} elements, but int32 can hold sums of at most {LONGEST_SOFTMAX}"
        return Softmax(target.attrs.axis), target.args
    return _move(target)


def _product(target: Call) -> tuple[Form, tuple[Expr, ...]] | str:
    data, weights = target.args
    if not isinstance(weights, Constant) or (target.callee is ops.matmul and weights.data.ndim != 2):
        return (Both(target), target.args) if target.callee is ops.matmul else "its weights are computed by the model"
    if not np.isfinite(weights.data).all():
        return "its weights are not finite"
    if target.callee is ops.conv_transpose and target.attrs.groups != 1:
        return "it is a transposed convolution with groups"
    outputs = weights.data.shape[0 if target.callee is ops.conv else 1]
    return Product(target, weights.data, np.zeros(outputs)), (data,)


def _binary(target: Call) -> tuple[Form, tuple[Expr, ...]] | str:
    affine = _affine(target)
    if affine is not None:
        return affine
    if target.callee is ops.div:
        return NO_FORM
    return (Times() if target.callee is ops.mul else Sum(_operator(target))), target.args


def _affine(target: Call) -> tuple[Form, tuple[Expr, ...]] | None:
    """Return the form of a per-channel scale or shift by constants; None for any other call."""
    values, sign = _constant_side(target)
    divides = target.callee is ops.div
    if values is None or (divides and not values.all()):
        return None
    x = target.args[isinstance(target.args[0], Constant)]
    type_ = expr_type(x)
    for axis in range(type_.rank):
        spread = by_channel(1 / values if divides else values, type_, axis)
        if spread is not None and (divides or target.callee is ops.mul):
            return Affine(type_, spread, np.zeros_like(spread), axis), (x,)
        if spread is not None:
            return Affine(type_, np.ones_like(spread), sign * spread, axis), (x,)
    return None


def _mean(target: Call) -> tuple[Form, tuple[Expr, ...]] | str:
    (x,) = target.args
    axes, shape = target.attrs.axes, expr_type(x).shape
    extents = static_dims([shape[axis] for axis in axes])
    count = math.prod(extents)
    if min(extents, default=0) < 0 or not 0 < count < MEAN_LIMIT:
        return "it sums too many elements, or a symbolic number"
    spatial = 3 <= len(shape) <= 5 and axes == tuple(range(2, len(shape))) and target.attrs.keepdims
    if spatial and count <= WINDOW_LIMIT and isinstance(shape[1], int):
        return Average(AvgPoolAttrs(kernel=tuple(extents)), shape[1], np.ones((1,) * len(axes), np.int64)), target.args
    return Mean(axes, target.attrs.keepdims, 1.0, count), target.args


def _average(target: Call) -> tuple[Form, tuple[Expr, ...]] | str:
    (x,) = target.args
    type_, attrs = expr_type(x), target.attrs
    rank = type_.rank - 2
    pads = static_dims(attrs.pads or (0,) * (2 * rank))
    (channels, *sizes), kernel = static_dims(type_.shape[1:]), static_dims(attrs.kernel)
    taps = math.prod(kernel)
    if min((channels, taps, *sizes, *pads)) < 0:
        return "its windows have symbolic sizes"
    if not 0 < taps <= WINDOW_LIMIT:
        if sizes != kernel or any(pads) or not 0 < taps < MEAN_LIMIT:
            return f"its windows have {taps} elements, expected at most {WINDOW_LIMIT}"
        return Mean(tuple(range(2, type_.rank)), True, 1 / taps, taps), target.args
    if attrs.count_include_pad:
        return Average(attrs, channels, np.full((1,) * rank, taps)), target.args
    # Summing a window over ones, with zeros around them, counts its elements.
    ones, window = constant(np.ones((1, 1, *sizes), np.int8)), constant(np.ones((1, 1, *kernel), np.int8))
    window_sums = ops.conv(ones, window, strides=attrs.strides, pads=attrs.pads, dilations=attrs.dilations)
    counts: Array = evaluate(function([], window_sums), [])[0, 0]
    return (Average(attrs, channels, counts), target.args) if counts.all() else "some of its windows are empty"


def static_dims(dims: Sequence[Dim]) -> list[int]:
    """Convert dimensions to integers; a symbolic dimension becomes -1."""
    return [dim if isinstance(dim, int) else -1 for dim in dims]


def _move(target: Call) -> tuple[Move, tuple[Expr, ...]] | str:
    moves = operator_traits(target).moves
    if target.callee is ops.resize:
        if target.attrs.mode != "nearest" or target.attrs.crop:
            return "it interpolates"
        moves = Moves()
    if moves is None:
        return NO_FORM
    fill = moves.filling(len(target.args))
    if fill is not None and not isinstance(target.args[fill], Constant):
        return "it pads with a value that the model computes"
    positions = moves.places(len(target.args))
    if any(isinstance(arg, Constant) and arg.data.dtype.kind == "f" and np.isnan(arg.data).any() for arg in target.args):
        return "a constant that it reads has NaN"
    return Move(target, positions, fill), tuple(target.args[position] for position in positions)


def with_constant(form: Form, target: Call) -> Form | None:
    """Return `form` with a call on its result folded in, if the call adds a constant or multiplies by a positive constant;
    otherwise None."""
    values, sign = _constant_side(target)
    if values is None:
        return None
    if target.callee in (ops.add, ops.sub):
        return form.biased(values * sign)
    number = float(values.reshape(-1)[0]) if values.size == 1 else 0.0
    return Scaled(form, number if target.callee is ops.mul else 1 / number) if number > 0 else None


def _constant_side(target: Call) -> tuple[Array | None, float]:
    """Return the constant operand of a sum, difference, product or quotient, in float64, and its sign. The constant is None if
    there is none, or if it is a mask."""
    if target.callee not in _BINARY:
        return None, 0.0
    a, b = target.args
    if isinstance(a, Constant) and _operator(target).commutative:
        a, b = b, a
    if not isinstance(b, Constant) or a.type != target.type:
        return None, 0.0
    values = b.data.astype(np.float64)
    return (values if np.all(np.abs(values) < MASK) else None), -1.0 if target.callee is ops.sub else 1.0


def activation_bounds(target: Expr) -> tuple[float, float] | None:
    """Return the bounds of a relu or clip; None for other expressions."""
    if not isinstance(target, Call) or not isinstance(target.callee, Operator):
        return None
    if target.callee is ops.relu:
        return 0.0, np.inf
    if target.callee is ops.clip:
        return float(target.attrs.minimum), float(target.attrs.maximum)
    return None


def _operator(target: Call) -> Operator:
    assert isinstance(target.callee, Operator)
    return target.callee


def is_real(expr: Expr) -> bool:
    """Test whether an expression is a float32 tensor."""
    return isinstance(expr.type, TensorType) and expr.type.dtype.name == "float32"
