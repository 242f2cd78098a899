"""Attention, and related operators: rotary embedding, linear attention, causal convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from inlaid.graph.conditions import (
    require_at_least,
    require_broadcast_to,
    require_equal,
    require_multiple,
    require_shape,
)
from inlaid.graph.ir import Expr, call
from inlaid.ops.activation import sigmoid
from inlaid.ops.attend import AttentionAttrs, attend, attention, products, weighted
from inlaid.ops.compose import cast_to, expand_dims, expr_type, join, scalar, slice_axis, squeeze, widened
from inlaid.ops.convolution import conv
from inlaid.ops.elementwise import add, exp, mul, sub
from inlaid.ops.index import take
from inlaid.ops.linear import matmul
from inlaid.ops.normalize import softmax
from inlaid.ops.shape import concat, full, pad, reshape, transpose
from inlaid.ops.steps import States, run_steps
from inlaid_onnx.node import Converter, Node
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import dtype

_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}


def _split_heads(node: Node, x: Expr, heads: int) -> Expr:
    """Reshape (B, L, H * size) to (B, L, H, size)."""
    batch, length, width = expr_type(x).shape
    with node.relations():
        size = require_multiple(width, heads, "the hidden size, which is divided by heads,")
    return reshape(x, shape=(batch, length, heads, size))


def _heads_first(node: Node, x: Expr, heads: int) -> Expr:
    """Split (B, L, H * size) into heads: (B, H, L, size)."""
    return transpose(_split_heads(node, x, heads), perm=(0, 2, 1, 3))


def _join_heads(x: Expr) -> Expr:
    """Join the heads of (B, H, L, size): (B, L, H * size)."""
    batch, heads, length, size = expr_type(x).shape
    return reshape(transpose(x, perm=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def _scale(node: Node, size: Dim) -> float:
    scale = node.attrs.get("scale")
    if scale is not None:
        return float(scale)
    if not isinstance(size, int):
        raise node.error("expected a static head size or the attribute scale, got a symbolic size")
    return 1 / math.sqrt(size)


def _attention(node: Node) -> tuple[Expr | None, ...]:
    """Convert Attention. The attribute `softmax_precision` is ignored: the softmax is always computed in float32 or wider, which is
    at least as precise."""
    attrs = node.attrs
    q, k, v = node.input(0), node.input(1), node.input(2)
    packed = node.rank(0) == 3
    if packed:
        if "q_num_heads" not in attrs or "kv_num_heads" not in attrs:
            raise node.error("inputs of rank 3 require the attributes q_num_heads and kv_num_heads")
        q = _heads_first(node, q, attrs["q_num_heads"])
        k, v = (_heads_first(node, x, attrs["kv_num_heads"]) for x in (k, v))
    past_key, past_value = node.optional(4), node.optional(5)
    if (past_key is None) != (past_value is None):
        raise node.error("expected both past_key and past_value or neither, got one")
    offset: Dim = 0
    if past_key is not None and past_value is not None:
        offset = expr_type(past_key).shape[2]
        k, v = concat(past_key, k, axis=2), concat(past_value, v, axis=2)
    lengths = node.optional(6)
    mask = _padded_mask(node, expr_type(k).shape[2])
    right_window = attrs.get("right_window_size", -1)
    if attrs.get("is_causal", 0):
        right_window = 0
    rest = tuple(item for item in (mask, lengths) if item is not None)
    options = AttentionAttrs(
        _scale(node, expr_type(q).shape[3]),
        attrs.get("softcap", 0.0),
        attrs.get("left_window_size", -1),
        right_window,
        offset,
        mask is not None,
        lengths is not None,
    )
    scores: Expr | None = None
    result: Expr
    if len(node.outputs) > 3 and node.outputs[3]:
        _require_attention(node, options, q, k, v, *rest)
        parts = attend(options, q, k, v, *rest)
        mode = attrs.get("qk_matmul_output_mode", 0)
        if mode not in (0, 1, 2, 3):
            raise node.error(f"qk_matmul_output_mode must be 0 to 3, got {mode}")
        scores = cast_to((parts.scores, parts.capped, parts.biased, parts.probabilities)[mode], node.dtype(0))
        result = parts.result
    else:
        result = call(attention, (q, k, v, *rest), options)
    return _join_heads(result) if packed else result, k, v, scores


def _require_attention(node: Node, options: AttentionAttrs, *operands: Expr) -> None:
    """Apply the shape requirements of the operator `attention` to operands that are converted to other operators."""
    with node.relations():
        attention.infer(options, *(item.type for item in operands))


def _padded_mask(node: Node, keys: Dim) -> Expr | None:
    """Return the attention mask, or None without one. A mask with fewer columns than keys is extended to mask the other keys. A
    symbolic number of columns must be the number of keys, or 1."""
    mask = node.optional(3)
    if mask is None:
        return None
    type_ = node.tensor(3)
    columns = type_.shape[-1] if type_.rank else 1
    if not isinstance(columns, int) or not isinstance(keys, int) or columns >= keys or columns == 1:
        return mask
    fill = scalar(0, "bool") if type_.dtype.kind == "bool" else scalar(-np.inf, type_.dtype)
    return pad(mask, fill, pads=(0,) * (2 * type_.rank - 1) + (keys - columns,))


def _flex_attention(node: Node) -> Expr:
    """Convert FlexAttention: subgraphs modify the scores and the probabilities, in the precision of the softmax."""
    q, k, v = node.input(0), node.input(1), node.input(2)
    if not node.rank(0) == node.rank(1) == node.rank(2) == 4:
        raise node.error(f"queries, keys and values must have rank 4, got {node.rank(0)}, {node.rank(1)} and {node.rank(2)}")
    precision = node.attrs.get("softmax_precision")
    if precision is not None and precision not in _FLOATS:
        raise node.error(f"softmax_precision must be a float element type, got {precision}")
    softmax_dtype = expr_type(widened(q)).dtype if precision is None else dtype(_FLOATS[precision])
    factor = _scale(node, expr_type(q).shape[3])
    _require_attention(node, AttentionAttrs(factor), q, k, v)
    scale = scalar(factor, expr_type(widened(q)).dtype)
    scores = cast_to(products(mul(widened(q), scale), widened(k)), softmax_dtype)
    probabilities = _modified(node, "prob_mod", softmax(_modified(node, "score_mod", scores), axis=3))
    return cast_to(weighted(probabilities, cast_to(v, softmax_dtype)), node.dtype(2))


def _modified(node: Node, name: str, value: Expr) -> Expr:
    """Apply the subgraph in attribute `name` to a value. Without the attribute, return the value unchanged."""
    graph = node.attrs.get(name)
    if graph is None:
        return value
    if len(graph.input) != 1 or len(graph.output) != 1:
        raise node.error(f"{name} must have one input and one output")
    (result,) = node.inlined(graph, (value,))
    if result.type != value.type:
        raise node.error(f"{name} must keep the type {value.type!r}, got {result.type!r}")
    return result


def _linear_attention(node: Node) -> tuple[Expr, ...]:
    """Convert LinearAttention. Each step decays, updates and reads a state (B, kv_num_heads, key size, value size)."""
    rule = node.attrs.get("update_rule", "gated_delta")
    heads, groups = node.attrs.get("q_num_heads", 0), node.attrs.get("kv_num_heads", 0)
    if rule not in ("linear", "gated", "delta", "gated_delta") or heads < 1 or groups < 1 or heads % groups:
        raise node.error(f"expected a known update_rule and q_num_heads % kv_num_heads == 0, got {rule!r}, {heads} and {groups}")
    decay, beta = node.optional(4), node.optional(5)
    if (decay is not None) != ("gated" in rule) or (beta is not None) != ("delta" in rule):
        raise node.error(f"gated rules require input decay and delta rules input beta, got other inputs for update_rule {rule!r}")
    working_dtype = expr_type(widened(node.input(0))).dtype
    batch, steps, _ = node.tensor(0).shape

    def by_step(index: int, parts: int) -> Expr:
        """Reshape an input (B, T, parts * size) to (T, B, parts, size)."""
        x = cast_to(node.input(index), working_dtype)
        with node.relations():
            require_shape(expr_type(x).shape, (batch, steps, expr_type(x).shape[2]), f"input {index}")
        return transpose(_split_heads(node, x, parts), perm=(1, 0, 2, 3))

    q, k, v = by_step(0, heads), by_step(1, groups), by_step(2, groups)
    key_size, value_size = expr_type(k).shape[3], expr_type(v).shape[3]
    past = node.optional(3)
    with node.relations():
        require_equal(expr_type(q).shape[3], key_size, "the size of a query")
        if past is not None:
            require_shape(node.tensor(3).shape, (batch, groups, key_size, value_size), "the past state")
    scale = node.attrs.get("scale", 0.0)
    if not scale:
        if not isinstance(key_size, int):
            raise node.error("expected a static key size or the attribute scale, got a symbolic size")
        scale = 1 / math.sqrt(key_size)
    scanned = [mul(q, scalar(scale, working_dtype)), k, v]
    if decay is not None:
        decays = by_step(4, groups)
        with node.relations():
            require_broadcast_to(expr_type(decays).shape[3:], (key_size,), "the decay of a head")
        scanned.append(exp(decays))
    if beta is not None:
        rate_count = expr_type(beta).shape[2]
        with node.relations():
            require_broadcast_to((rate_count,), (groups,), "the update rates")
        scanned.append(transpose(expand_dims(cast_to(beta, working_dtype), 3), perm=(1, 0, 2, 3)))
    zeros = full(scalar(0, working_dtype), shape=(batch, groups, key_size, value_size))
    state = zeros if past is None else cast_to(past, working_dtype)

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        (memory,) = states
        query, key, value, *more = slices
        column = expand_dims(key, 3)
        row = expand_dims(value, 2)
        if decay is not None:
            memory = mul(memory, expand_dims(more[0], 3))
        if beta is not None:
            prediction = matmul(expand_dims(key, 2), memory)
            row = mul(expand_dims(more[-1], 3), sub(row, prediction))
        memory = add(memory, mul(column, row))
        read = matmul(reshape(query, shape=(batch, groups, heads // groups, key_size)), memory)
        return reshape(read, shape=(batch, heads * value_size)), (memory,)

    outputs, (final_state,) = run_steps(step, scanned, (state,))
    return (
        cast_to(transpose(outputs, perm=(1, 0, 2)), node.dtype(0)),
        cast_to(final_state, node.dtype(0) if past is None else node.dtype(3)),
    )


def _causal_conv(node: Node) -> tuple[Expr, ...]:
    """Convert CausalConvWithState: a depthwise convolution of the past state followed by the input, whose last positions are the
    next state."""
    x, w = node.input(0), node.input(1)
    batch, channels, _ = node.tensor(0).shape
    x_dtype, taps = node.dtype(0), node.tensor(1).shape[2]
    if not isinstance(channels, int):
        raise node.error("the number of channels must be static")
    past = node.optional(3)
    with node.relations():
        require_shape(node.tensor(1).shape, (channels, 1, taps), "the weights")
        require_at_least(taps, 1, "dimension 2 of the weights")
        if past is not None:
            require_shape(node.tensor(3).shape, (batch, channels, taps - 1), "the past state")
        if node.optional(2) is not None:
            require_shape(node.tensor(2).shape, (channels,), "the bias")
    if past is None:
        past = full(scalar(0, x_dtype), shape=(batch, channels, taps - 1))
    padded = concat(past, x, axis=2)
    result: Expr = conv(padded, w, groups=channels)
    if node.optional(2) is not None:
        result = add(result, reshape(node.input(2), shape=(channels, 1)))
    activation = node.attrs.get("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise node.error(f"activation must be none, silu or swish, got {activation!r}")
    if activation != "none":
        wide = widened(result)
        result = cast_to(mul(wide, sigmoid(wide)), x_dtype)
    length = expr_type(padded).shape[2]
    return result, slice_axis(padded, 2, length - (taps - 1), length)


def _rotary_embedding(node: Node) -> Expr:
    """Convert RotaryEmbedding: rotate pairs of elements by angles whose cosines and sines are given per position."""
    x, cosines, sines = node.input(0), node.input(1), node.input(2)
    packed = node.rank(0) == 3
    heads = node.attrs.get("num_heads", 0)
    if packed:
        x = _split_heads(node, x, heads)
    else:
        x = transpose(x, perm=(0, 2, 1, 3))
    batch, length, _, size = expr_type(x).shape
    rotated_size: Dim = node.attrs.get("rotary_embedding_dim", 0) or size
    positions = node.optional(3)
    with node.relations():
        half = require_multiple(rotated_size, 2, "the number of rotated elements")
        if positions is not None:
            require_shape(node.tensor(3).shape, (batch, length), "the position ids")
        leading = (batch, length) if positions is None else node.tensor(1).shape[:1]
        for index, name in ((1, "cosines"), (2, "sines")):
            require_shape(node.tensor(index).shape, (*leading, half), f"the {name}")
    if positions is not None:
        cosines, sines = (take(table, positions, axis=0) for table in (cosines, sines))
    x_dtype = node.dtype(0)
    cosines, sines = (expand_dims(widened(table), 2) for table in (cosines, sines))
    wide = widened(x)
    rotated = slice_axis(wide, 3, 0, rotated_size)
    if node.attrs.get("interleaved", 0):
        pairs = reshape(rotated, shape=(*expr_type(rotated).shape[:3], half, 2))
        first, second = (squeeze(slice_axis(pairs, 4, part, part + 1), 4) for part in range(2))
    else:
        first, second = slice_axis(rotated, 3, 0, half), slice_axis(rotated, 3, half, rotated_size)
    real: Expr = sub(mul(cosines, first), mul(sines, second))
    imaginary: Expr = add(mul(sines, first), mul(cosines, second))
    if node.attrs.get("interleaved", 0):
        pairs_of_results = join([expand_dims(real, 4), expand_dims(imaginary, 4)], 4)
        parts: list[Expr] = [reshape(pairs_of_results, shape=expr_type(rotated).shape)]
    else:
        parts = [real, imaginary]
    if rotated_size != size:
        parts.append(slice_axis(wide, 3, rotated_size, size))
    result = cast_to(join(parts, 3), x_dtype)
    return reshape(result, shape=node.tensor(0).shape) if packed else transpose(result, perm=(0, 2, 1, 3))


CONVERTERS: Mapping[str, Converter] = {
    "Attention": _attention,
    "CausalConvWithState": _causal_conv,
    "LinearAttention": _linear_attention,
    "RotaryEmbedding": _rotary_embedding,
    "ai.onnx.preview:FlexAttention": _flex_attention,
}
