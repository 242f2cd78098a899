"""Losses over class scores (N, C, d1, ..., dk) and targets (N, d1, ..., dk)."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expand_dims, expr_type, mean, scalar, squeeze, widened
from inlaid.ops.elementwise import div, equal, mul, neg, where
from inlaid.ops.index import take, take_along_axis
from inlaid.ops.normalize import log_softmax
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import full
from inlaid_onnx.node import Converter, Node


def _negative_log_likelihood(node: Node, log_probabilities: Expr) -> Expr:
    """Reduce the weighted negative log probabilities of the target classes. Targets equal to `ignore_index` are ignored."""
    target, weight, ignored = node.input(1), node.optional(2), None
    dtype = expr_type(log_probabilities).dtype
    zero = scalar(0, dtype)
    batch, classes, *rest = expr_type(log_probabilities).shape
    with node.relations():
        require_shape(node.tensor(1).shape, (batch, *rest), "the target")
        if weight is not None:
            require_shape(node.tensor(2).shape, (classes,), "the weights of the classes")
    if "ignore_index" in node.attrs:
        # An ignored target may be an invalid class: replace it before the gather.
        ignored = equal(target, scalar(node.attrs["ignore_index"], node.dtype(1)))
        target = where(ignored, scalar(0, node.dtype(1)), target)
    losses = neg(squeeze(take_along_axis(log_probabilities, expand_dims(target, 1), axis=1), 1))
    weights = None if weight is None else take(cast_to(weight, dtype), target, axis=0)
    if ignored is not None:
        losses = where(ignored, zero, losses)
        element_weights = full(scalar(1, dtype), shape=expr_type(target).shape) if weights is None else weights
        weights = where(ignored, zero, element_weights)
    if weights is not None:
        losses = mul(losses, weights)
    return _reduced(node, losses, weights)


def _reduced(node: Node, losses: Expr, weights: Expr | None) -> Expr:
    axes = tuple(range(expr_type(losses).rank))
    reduction = node.attrs.get("reduction", "mean")
    if reduction == "none":
        return losses
    if reduction not in ("sum", "mean"):
        raise node.error(f"reduction must be none, sum or mean, got {reduction!r}")
    if reduction == "mean" and weights is None:
        return mean(losses, axes)
    total = reduce_sum(losses, axes=axes)
    return total if weights is None or reduction == "sum" else div(total, reduce_sum(weights, axes=axes))


def _nll_loss(node: Node) -> Expr:
    return cast_to(_negative_log_likelihood(node, widened(node.input(0))), node.dtype(0))


def _softmax_cross_entropy(node: Node) -> tuple[Expr, ...]:
    log_probabilities = log_softmax(widened(node.input(0)), axis=1)
    loss = _negative_log_likelihood(node, log_probabilities)
    return cast_to(loss, node.dtype(0)), cast_to(log_probabilities, node.dtype(0))


CONVERTERS: Mapping[str, Converter] = {
    "NegativeLogLikelihoodLoss": _nll_loss,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
