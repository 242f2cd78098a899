"""Softmax and normalizations."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr
from inlaid.graph.operator import Operator
from inlaid.ops.compose import cast_to, expand_dims, expr_type, mean, scalar, widened
from inlaid.ops.elementwise import abs, add, div, equal, mul, sqrt, sub, where
from inlaid.ops.normalize import batch_norm, layer_norm, log_softmax, lrn, moments, rms_norm, softmax
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import reshape
from inlaid_onnx.node import Converter, Node, as_float32
from inlaid_runtime import arith


def _along_axis(operator: Operator) -> Converter:
    """Make a converter of softmax or log-softmax. Before opset 13 all axes from `axis` on were flattened to one."""

    def convert(node: Node) -> Expr:
        x, shape = node.input(0), node.tensor(0).shape
        if node.opset >= 13:
            return operator(x, axis=node.axis(node.attrs.get("axis", -1), len(shape)))
        axis = node.axis(node.attrs.get("axis", 1), len(shape))
        matrix = reshape(x, shape=(arith.product(shape[:axis]), arith.product(shape[axis:])))
        return reshape(operator(matrix, axis=1), shape=shape)

    return convert


def _batch_norm(node: Node) -> Expr | tuple[Expr | None, ...]:
    epsilon = node.real("epsilon", 1e-5)
    statistics_outputs = [name for name in node.outputs[1:] if name]
    training = node.attrs.get("training_mode", 0) if node.opset >= 14 else statistics_outputs
    if training:
        return _train_batch_norm(node, epsilon)
    x, scale, bias, mean_, variance = (node.input(index) for index in range(5))
    if node.opset < 9 and not node.attrs.get("spatial", 1):
        with node.relations():
            for index, name in enumerate(("scale", "bias", "mean", "variance"), 1):
                require_shape(node.tensor(index).shape, node.tensor(0).shape[1:], f"the {name}")
        wide = [widened(item) for item in (x, scale, bias, mean_, variance)]
        factor = div(wide[1], sqrt(add(wide[4], scalar(epsilon, expr_type(wide[4]).dtype))))
        return cast_to(add(mul(sub(wide[0], wide[3]), factor), wide[2]), node.dtype(0))
    return batch_norm(x, scale, bias, mean_, variance, epsilon=epsilon)


def _train_batch_norm(node: Node, epsilon: float) -> tuple[Expr | None, ...]:
    """Normalize by the statistics of the batch, and update the running statistics.

    The other outputs are the running mean and variance and, before opset 14, the statistics of the batch.
    """
    rank = node.rank(0)
    x, scale, bias = (node.input(index) for index in range(3))
    axes = (0, *range(2, rank))
    wide = widened(x)
    batch_mean = mean(wide, axes)
    centered = sub(wide, expand_dims(batch_mean, *axes))
    batch_variance = mean(mul(centered, centered), axes)
    y = batch_norm(x, scale, bias, batch_mean, batch_variance, epsilon=epsilon)
    momentum = node.real("momentum", 0.9)

    with node.relations():
        for index, name in ((3, "mean"), (4, "variance")):
            require_shape(node.tensor(index).shape, expr_type(batch_mean).shape, f"the {name}")

    def running(index: int, batch_statistic: Expr) -> Expr:
        old = widened(node.input(index))
        dtype = expr_type(old).dtype
        new = add(mul(old, scalar(momentum, dtype)), mul(cast_to(batch_statistic, dtype), scalar(1 - momentum, dtype)))
        return cast_to(new, node.dtype(index))

    running_statistics = running(3, batch_mean), running(4, batch_variance)
    if node.opset >= 14:
        return y, *running_statistics
    return y, *running_statistics, cast_to(batch_mean, node.dtype(3)), cast_to(batch_variance, node.dtype(4))


def _per_channel(x: Expr, value: Expr) -> Expr:
    """Reshape a per-channel vector so that it broadcasts over the data."""
    return reshape(value, shape=(*expr_type(value).shape, *(1,) * (expr_type(x).rank - 2)))


def _instance_norm(node: Node) -> Expr:
    """Layer normalization over the spatial axes, with scale and bias per channel."""
    x = node.input(0)
    if node.rank(0) < 3:
        raise node.error(f"expected data of N x C x D1 ..., found rank {node.rank(0)}; reshape it to rank 3")
    with node.relations():
        for index, name in ((1, "scale"), (2, "bias")):
            require_shape(node.tensor(index).shape, node.tensor(0).shape[1:2], f"the {name}")
    scale, bias = (_per_channel(x, node.input(index)) for index in (1, 2))
    return layer_norm(x, scale, bias, axis=2, epsilon=node.real("epsilon", 1e-5))


def _group_norm(node: Node) -> Expr:
    """Layer normalization of each group's channels. Scale and bias are per channel since opset 21, per group before."""
    x, shape = node.input(0), node.tensor(0).shape
    groups = node.attrs.get("num_groups")
    if not groups:
        raise node.error("the attribute num_groups is missing")
    channels = shape[1] // groups
    grouped = reshape(x, shape=(shape[0], groups, channels, *shape[2:]))
    ones = (1,) * (len(shape) - 2)
    per_group = (groups, 1 if node.opset < 21 else channels, *ones)
    scale, bias = (reshape(node.input(index), shape=per_group) for index in (1, 2))
    return reshape(layer_norm(grouped, scale, bias, axis=2, epsilon=node.real("epsilon", 1e-5)), shape=shape)


_STASH = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""Float dtypes by their number in ONNX."""


def _layer_norm(node: Node) -> Expr | tuple[Expr | None, ...]:
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    axis = node.axis(node.attrs.get("axis", -1), node.rank(0))
    epsilon = node.real("epsilon", 1e-5)
    operands = (x, scale) if bias is None else (x, scale, bias)
    y = layer_norm(*operands, axis=axis, epsilon=epsilon)
    if not any(node.outputs[1:]):
        return y
    stash = _STASH.get(node.attrs.get("stash_type", 1))
    if stash is None:
        raise node.error(f"stash_type must be a float element type, got {node.attrs['stash_type']}")
    _, mean_, inverse = moments(widened(x), tuple(range(axis, node.rank(0))), epsilon)
    return y, cast_to(mean_, stash), cast_to(inverse, stash)


def _rms_norm(node: Node) -> Expr:
    axis = node.axis(node.attrs.get("axis", -1), node.rank(0))
    return rms_norm(node.input(0), node.input(1), axis=axis, epsilon=node.real("epsilon", 1e-5))


def _lrn(node: Node) -> Expr:
    attrs = node.attrs
    if "size" not in attrs:
        raise node.error("the attribute size is missing")
    return lrn(
        node.input(0),
        size=attrs["size"],
        alpha=node.real("alpha", 1e-4),
        beta=node.real("beta", 0.75),
        bias=node.real("bias", 1.0),
    )


def _lp_norm(node: Node) -> Expr:
    """Convert LpNormalization: x / norm along an axis, or 0 if the norm is 0. Computed in the working dtype, as squares of narrow
    floats could overflow."""
    x = widened(node.input(0))
    dtype = expr_type(x).dtype
    axis, p = node.axis(node.attrs.get("axis", -1), node.rank(0)), node.attrs.get("p", 2)
    if p not in (1, 2):
        raise node.error(f"p must be 1 or 2, got {p}")
    total = reduce_sum(abs(x) if p == 1 else mul(x, x), axes=(axis,), keepdims=True)
    norm = total if p == 1 else sqrt(total)
    zero = scalar(0, dtype)
    return cast_to(where(equal(norm, zero), zero, div(x, norm)), node.dtype(0))


def _mean_variance_norm(node: Node) -> Expr:
    """Convert MeanVarianceNormalization: (x - mean) / (standard deviation + 1e-9) over the axes, in the working dtype."""
    x = widened(node.input(0))
    axes = tuple(node.axis(axis, node.rank(0)) for axis in node.attrs.get("axes", (0, 2, 3)))
    centered = sub(x, mean(x, axes, keepdims=True))
    deviation = sqrt(mean(mul(centered, centered), axes, keepdims=True))
    return cast_to(div(centered, add(deviation, scalar(as_float32(1e-9), expr_type(x).dtype))), node.dtype(0))


CONVERTERS: Mapping[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _along_axis(log_softmax),
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "RMSNormalization": _rms_norm,
    "Softmax": _along_axis(softmax),
}
