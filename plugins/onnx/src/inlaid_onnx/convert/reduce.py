"""Reductions along axes, argmax and argmin, cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from inlaid.frontends.bind import extract_element
from inlaid.graph.ir import Expr, if_
from inlaid.graph.operator import Operator
from inlaid.ops.compose import cast_to, expr_type, mean, scalar, squeeze, widened
from inlaid.ops.elementwise import (
    abs,
    add,
    equal,
    exp,
    isinf,
    less,
    less_equal,
    log,
    logical_and,
    logical_or,
    mul,
    sqrt,
    sub,
    where,
)
from inlaid.ops.reduce import argmax, argmin, cumprod, cumsum, reduce_max, reduce_min, reduce_prod, reduce_sum
from inlaid.ops.shape import iota, pad, reshape
from inlaid_onnx.convert.shape import int64
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith

Reduction = Callable[[Expr, tuple[int, ...], bool], Expr]
"""Reduces a tensor: (tensor, axes, keepdims) -> result."""

_AXES_ARE_INPUT = {"ReduceSum": 13}
"""First opset in which `axes` is an input, by operator; 18 for operators not listed."""


def _axes(node: Node) -> tuple[int, ...] | None:
    """Return the axes in ascending order; None if the node is a no-op."""
    rank = node.rank(0)
    if node.opset < _AXES_ARE_INPUT.get(node.op_type, 18):
        node_axes = node.attrs.get("axes")
    else:
        node_axes = None if node.optional(1) is None else [int(axis) for axis in node.require_static(1).reshape(-1)]
        if not node_axes and node.attrs.get("noop_with_empty_axes", 0):
            return None
    axes = tuple(sorted(node.axis(axis, rank) for axis in node_axes or range(-rank, 0)))
    if len(set(axes)) != len(axes):
        raise node.error(f"axes must be unique, got {node_axes}")
    return axes


def _reducer(reduction: Reduction) -> Converter:
    def convert(node: Node) -> Expr:
        axes = _axes(node)
        # A node without axes reduces each element by itself.
        return reduction(node.input(0), axes or (), axes is not None and bool(node.attrs.get("keepdims", 1)))

    return convert


def _plain(operator: Operator) -> Converter:
    """Make a converter of a single reduction operator. Without axes, it returns the input, as the specification defines."""

    def convert(node: Node) -> Expr:
        axes = _axes(node)
        if axes is None:
            return node.input(0)
        return operator(node.input(0), axes=axes, keepdims=bool(node.attrs.get("keepdims", 1)))

    return convert


def _wide(reduction: Reduction) -> Reduction:
    """Wrap a reduction of several operators: narrow floats are computed in float32 and rounded once."""

    def run(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
        return cast_to(reduction(widened(x), axes, keepdims), expr_type(x).dtype)

    return run


def _real(reduction: Reduction) -> Reduction:
    """Wrap a reduction with non-integer results: integers are computed in floats and truncated."""

    def run(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
        dtype = expr_type(x).dtype
        wide = cast_to(x, "float64") if dtype.is_int else widened(x)
        return cast_to(reduction(wide, axes, keepdims), dtype)

    return run


def _sum(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return reduce_sum(x, axes=axes, keepdims=keepdims)


def _l1(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return _sum(abs(x), axes, keepdims)


def _sum_square(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return _sum(mul(x, x), axes, keepdims)


def _l2(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return sqrt(_sum_square(x, axes, keepdims))


def _log_sum(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return log(_sum(x, axes, keepdims))


def _log_sum_exp(x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    """Build log(sum(exp(x - m))) + m without overflow; m is the maximum if it is finite, else 0."""
    greatest = reduce_max(x, axes=axes, keepdims=True)
    shift = where(isinf(greatest), scalar(0, expr_type(x).dtype), greatest)
    total = log(_sum(exp(sub(x, shift)), axes, True))
    result = add(total, shift)
    return result if keepdims else squeeze(result, *axes)


# --- positions --------------------------------------------------------------------------------------------------------


def _arg(operator: Operator) -> Converter:
    def convert(node: Node) -> Expr:
        axis = node.axis(node.attrs.get("axis", 0), node.rank(0))
        keepdims, last = bool(node.attrs.get("keepdims", 1)), bool(node.attrs.get("select_last_index", 0))
        return operator(node.input(0), axis=axis, keepdims=keepdims, last=last)

    return convert


def _hardmax(node: Node) -> Expr:
    """Convert Hardmax: 1 at the first maximum along an axis, else 0. Before opset 13 all axes from `axis` on were flattened."""
    x, shape = node.input(0), node.tensor(0).shape
    if node.opset < 13:
        axis = node.axis(node.attrs.get("axis", 1), len(shape))
        matrix = reshape(x, shape=(arith.product(shape[:axis]), arith.product(shape[axis:])))
        return reshape(_one_hot_max(matrix, 1), shape=shape)
    return _one_hot_max(x, node.axis(node.attrs.get("axis", -1), len(shape)))


def _one_hot_max(x: Expr, axis: int) -> Expr:
    type_ = expr_type(x)
    if type_.shape[axis] == 0:
        return x
    extents = tuple(dim if index == axis else 1 for index, dim in enumerate(type_.shape))
    if not arith.prove(arith.compare("<", 0, type_.shape[axis])):
        # An axis that may be empty has no maximum: append the least element, which is selected only then.
        pads = (0,) * (type_.rank + axis) + (1,) + (0,) * (type_.rank - axis - 1)
        x = pad(x, scalar(-math.inf, type_.dtype), pads=pads, mode="constant")
    is_max = equal(iota(shape=extents, axis=axis, dtype="int64"), argmax(x, axis=axis, keepdims=True))
    return where(is_max, scalar(1, type_.dtype), scalar(0, type_.dtype))


# --- running ----------------------------------------------------------------------------------------------------------


def _cumulative(operator: Operator) -> Converter:
    def convert(node: Node) -> Expr:
        x, rank, static_axis = node.input(0), node.rank(0), node.static(1)
        exclusive, reverse = bool(node.attrs.get("exclusive", 0)), bool(node.attrs.get("reverse", 0))

        def along(axis: int) -> Expr:
            return operator(x, axis=axis, exclusive=exclusive, reverse=reverse)

        if static_axis is not None:
            return along(node.axis(int(static_axis.item()), rank))
        axis = extract_element(node.input(1), 0)
        in_range = logical_and(less_equal(int64(-rank), axis), less(axis, int64(rank)))
        axis = node.asserted(in_range, f"the axis must be >= -{rank} and < {rank}", axis)
        result = along(0)
        for number in range(1, rank):
            is_axis = logical_or(equal(axis, int64(number)), equal(axis, int64(number - rank)))
            result = if_(is_axis, along(number), result)
        return result

    return convert


CONVERTERS: Mapping[str, Converter] = {
    "ReduceSum": _plain(reduce_sum),
    "ReduceProd": _plain(reduce_prod),
    "ReduceMax": _plain(reduce_max),
    "ReduceMin": _plain(reduce_min),
    "ReduceMean": _reducer(mean),
    "ReduceL1": _reducer(_wide(_l1)),
    "ReduceL2": _reducer(_real(_l2)),
    "ReduceSumSquare": _reducer(_wide(_sum_square)),
    "ReduceLogSum": _reducer(_real(_log_sum)),
    "ReduceLogSumExp": _reducer(_real(_log_sum_exp)),
    "ArgMax": _arg(argmax),
    "ArgMin": _arg(argmin),
    "Hardmax": _hardmax,
    "CumSum": _cumulative(cumsum),
    "CumProd": _cumulative(cumprod),
}
