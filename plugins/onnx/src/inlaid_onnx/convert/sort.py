"""Sorting, top-k, unique values and non-maximum suppression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid.graph.ir import Expr, constant, tuple_item
from inlaid.ops.index import take
from inlaid.ops.select import non_max_suppression, unique
from inlaid.ops.shape import reshape, transpose
from inlaid.ops.sort import topk
from inlaid_onnx.convert.shape import scalar
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim


def _topk(node: Node) -> tuple[Expr, ...]:
    axis = node.axis(node.attrs.get("axis", -1), node.rank(0))
    (k,) = (node.attrs["k"],) if node.opset < 10 else node.sizes(1, "k")
    values_and_indices = topk(node.input(0), k=k, axis=axis, largest=bool(node.attrs.get("largest", 1)))
    return tuple_item(values_and_indices, 0), tuple_item(values_and_indices, 1)


def _unique(node: Node) -> tuple[Expr, ...]:
    x, shape = node.input(0), node.tensor(0).shape
    axis_attribute = node.attrs.get("axis")
    if axis_attribute is None:
        x, axis = reshape(x, shape=(node.tensor(0).size,)), 0
        rows = reshape(x, shape=(node.tensor(0).size, 1))
    else:
        axis = node.axis(axis_attribute, len(shape))
        rest = tuple(position for position in range(len(shape)) if position != axis)
        axis_first = transpose(x, perm=(axis, *rest))
        rows = reshape(axis_first, shape=(shape[axis], arith.product(tuple(shape[position] for position in rest))))
    outputs = unique(rows, ordered=bool(node.attrs.get("sorted", 1)))
    first, inverse, counts = (tuple_item(outputs, index) for index in range(3))
    return take(x, first, axis=axis), first, inverse, counts


def _non_max_suppression(node: Node) -> Expr:
    limit: Dim = 0 if node.optional(2) is None else node.scope.binder.clamped(node.input(2), f"{node.name}: max_output", node.span)
    thresholds = []
    for index, default in ((3, 0.0), (4, -np.inf)):
        threshold = node.optional(index)
        thresholds.append(constant(np.asarray(default, np.float32)) if threshold is None else scalar(node, threshold))
    center = bool(node.attrs.get("center_point_box", 0))
    return non_max_suppression(node.input(0), node.input(1), *thresholds, max_output=limit, center=center)


CONVERTERS: Mapping[str, Converter] = {"NonMaxSuppression": _non_max_suppression, "TopK": _topk, "Unique": _unique}
