"""Post-processing of scores in ai.onnx.ml classifiers and regressors: post_transform and class labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import expr_type, scalar
from inlaid_onnx.node import Node

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
"""Names of the values of post_transform. TreeEnsemble refers to the values by index."""


def transformed(node: Node, scores: Expr) -> Expr:
    """Apply the node's post_transform to scores (rows, classes)."""
    transform = node.attrs.get("post_transform", "NONE")
    name = TRANSFORMS[transform] if isinstance(transform, int) and 0 <= transform < len(TRANSFORMS) else str(transform)
    if name == "NONE":
        return scores
    if name == "SOFTMAX":
        return ops.softmax(scores, axis=1)
    if name == "LOGISTIC":
        return ops.sigmoid(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    raise node.error(f"post_transform must be one of {', '.join(TRANSFORMS)}, got {transform!r}")


def _softmax_zero(scores: Expr) -> Expr:
    """Apply softmax to the non-zero scores; zeros stay zero."""
    dtype = expr_type(scores).dtype
    is_zero = ops.less_equal(ops.abs(scores), scalar(1e-7, dtype))
    centered = ops.sub(scores, ops.reduce_max(scores, axes=(1,), keepdims=True))
    exponents = ops.where(is_zero, scalar(0, dtype), ops.exp(centered))
    total = ops.reduce_sum(exponents, axes=(1,), keepdims=True)
    return ops.div(exponents, ops.where(ops.equal(total, scalar(0, dtype)), scalar(1, dtype), total))


def class_labels(chosen: Expr, labels: Sequence[int] | Sequence[str]) -> Expr:
    """Map class indices to labels."""
    if isinstance(labels[0], str):
        return ops.lookup(chosen, keys=tuple(range(len(labels))), values=tuple(labels), default="", dtype="string")
    return ops.take(constant(np.array(labels, np.int64)), chosen, axis=0)
