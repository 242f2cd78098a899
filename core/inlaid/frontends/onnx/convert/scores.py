"""What classifiers and regressors of ai.onnx.ml make of their scores: post_transform, and labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid import ops
from inlaid.frontends.onnx.node import Node
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import scalar, tensor_of

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
"""By name; TreeEnsemble numbers them."""


def transformed(node: Node, scores: Expr) -> Expr:
    """Scores (rows, classes) after the node's post_transform."""
    given = node.attrs.get("post_transform", "NONE")
    name = TRANSFORMS[given] if isinstance(given, int) and given < len(TRANSFORMS) else str(given)
    if name == "NONE":
        return scores
    if name == "SOFTMAX":
        return ops.softmax(scores, axis=1)
    if name == "LOGISTIC":
        return ops.sigmoid(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    raise node.error(f"post_transform must be one of {', '.join(TRANSFORMS)}, got {given!r}")


def _softmax_zero(scores: Expr) -> Expr:
    """The softmax of the scores that are not zero; zeros stay zero."""
    of = tensor_of(scores).dtype
    zero = ops.less_equal(ops.abs(scores), scalar(1e-7, of))
    centred = ops.sub(scores, ops.reduce_max(scores, axes=(1,), keepdims=True))
    exponents = ops.where(zero, scalar(0, of), ops.exp(centred))
    total = ops.reduce_sum(exponents, axes=(1,), keepdims=True)
    return ops.div(exponents, ops.where(ops.equal(total, scalar(0, of)), scalar(1, of), total))


def class_labels(chosen: Expr, labels: Sequence[int] | Sequence[str]) -> Expr:
    """The labels of classes that are given by number."""
    if isinstance(labels[0], str):
        return ops.lookup(chosen, keys=tuple(range(len(labels))), values=tuple(labels), default="", dtype="string")
    return ops.take(constant(np.array(labels, np.int64)), chosen, axis=0)
