"""Scaled dot-product attention."""

from __future__ import annotations

import numpy as np

from inlaid.graph.conditions import require_broadcast_to, require_multiple, require_shape, require_static
from inlaid.graph.ir import Expr
from inlaid.graph.operator import Attrs, Operator, Threaded
from inlaid.ops.compose import cast_to, count, expand_dims, expr_type, scalar, widened
from inlaid.ops.define import FLOAT, INTEGER, Array, as_array, common_dtype, make_family, quiet, tensor_type, widen_array
from inlaid.ops.elementwise import add, div, equal, less, less_equal, logical_and, mul, sub, tanh, where
from inlaid.ops.linear import matmul
from inlaid.ops.normalize import softmax
from inlaid.ops.reduce import reduce_max
from inlaid.ops.shape import iota, reshape, transpose
from inlaid.ops.threads import attend as fused
from inlaid.ops.threads.grid import Grid
from inlaid.ops.threads.scores import Attention
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, from_numpy


@dataclass(frozen=True)
class AttentionAttrs(Attrs):
    """Attributes of attention.

    scale
        Factor of the dot products of queries and keys.
    softcap
        Scores become softcap * tanh(score / softcap); 0 disables it.
    left, right
        Sliding window: numbers of visible keys before and after the query's position; -1 is unbounded. `right=0` is causal
        attention.
    offset
        Position of the first query among the keys. Ignored with `padded`: the last query then has the last valid position.
    masked
        Whether the operand after the values is a mask: bool (True: visible) or float (added to scores), broadcast to (B, H, L, S).
    padded
        Whether the last operand is the number of valid keys of each batch element (B,).
    """

    scale: float
    softcap: float = 0.0
    left: int = -1
    right: int = -1
    offset: Dim = 0
    masked: bool = False
    padded: bool = False


def _infer(attrs: AttentionAttrs, *args: Type) -> Type:
    if len(args) != 3 + attrs.masked + attrs.padded:
        raise ValueError(f"masked and padded require {3 + attrs.masked + attrs.padded} operands, got {len(args)}")
    q, k, v = (tensor_type(type_, FLOAT, what) for type_, what in zip(args, ("queries", "keys", "values"), strict=False))
    common_dtype(q, k, v)
    if not q.rank == k.rank == v.rank == 4:
        raise ValueError(f"q, k and v must have rank 4 (batch, heads, positions, size), got ranks {q.rank}, {k.rank} and {v.rank}")
    batch, heads, length, size = q.shape
    key_heads, key_count = require_static(k.shape[1], "the number of key heads"), k.shape[2]
    require_multiple(require_static(heads, "the number of query heads"), key_heads, "the number of query heads")
    require_shape(k.shape, (batch, key_heads, key_count, size), "the keys")
    require_shape(v.shape[:3], (batch, key_heads, key_count), "the values")
    if min(attrs.left, attrs.right) < -1 or attrs.softcap < 0:
        raise ValueError(f"left and right must be >= -1 and softcap >= 0, got {attrs.left}, {attrs.right} and {attrs.softcap}")
    if attrs.masked:
        mask = tensor_type(args[3], ("bool", "float"), "the mask")
        require_broadcast_to(mask.shape, (batch, heads, length, key_count), "the mask")
    if attrs.padded:
        require_shape(tensor_type(args[-1], INTEGER, "the lengths").shape, (batch,), "the lengths")
    return TensorType((batch, heads, length, v.shape[3]), q.dtype)


@quiet
def _reference(attrs: AttentionAttrs, q: Array, k: Array, v: Array, *rest: Array) -> Array:
    wide_q, wide_k, wide_v = map(widen_array, (q, k, v))
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = np.repeat(wide_k, group, axis=1), np.repeat(wide_v, group, axis=1)
    scores = wide_q @ np.swapaxes(wide_k, 2, 3) * wide_q.dtype.type(attrs.scale)
    if attrs.softcap:
        scores = np.tanh(scores / wide_q.dtype.type(attrs.softcap)) * wide_q.dtype.type(attrs.softcap)
    bias = np.zeros(scores.shape, scores.dtype)
    if attrs.masked:
        bias = bias + (np.where(rest[0], 0, -np.inf) if rest[0].dtype == bool else rest[0].astype(bias.dtype))
    lengths = rest[-1].reshape(-1, 1, 1, 1).astype(np.int64) if attrs.padded else None
    first_position = arith.evaluate(attrs.offset, {}) if lengths is None else lengths - q.shape[2]
    key = np.arange(k.shape[2])
    distance = key - (np.arange(q.shape[2])[:, None] + first_position)
    if attrs.right >= 0:
        bias = np.where(distance <= attrs.right, bias, -np.inf)
    if attrs.left >= 0:
        bias = np.where(-distance <= attrs.left, bias, -np.inf)
    if lengths is not None:
        bias = np.where(key < lengths, bias, -np.inf)
    scores = scores + bias
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    any_visible = bias.max(axis=-1, keepdims=True, initial=-np.inf) != -np.inf  # NaN counts as visible, so that it propagates
    probabilities = np.where(any_visible, powers / powers.sum(axis=-1, keepdims=True), 0)
    return as_array(probabilities.astype(wide_v.dtype) @ wide_v, from_numpy(q.dtype))


@dataclass(frozen=True)
class Attended:
    """Intermediate values of attention, (B, H, L, S) in the working dtype, and its result in the queries' dtype.

    scores: scaled products of queries and keys. capped: after `softcap`. biased: after masks. probabilities: after softmax, 0 for a
    query without visible keys.
    """

    scores: Expr
    capped: Expr
    biased: Expr
    probabilities: Expr
    result: Expr


def attend(attrs: AttentionAttrs, q: Expr, k: Expr, v: Expr, *rest: Expr) -> Attended:
    """Decompose attention into simpler operators."""
    dtype = expr_type(widened(q)).dtype
    scores = products(mul(widened(q), scalar(attrs.scale, dtype)), widened(k))
    capped = scores
    if attrs.softcap:
        capped = mul(tanh(div(scores, scalar(attrs.softcap, dtype))), scalar(attrs.softcap, dtype))
    bias = _bias(attrs, q, k, rest)
    if bias is None:
        biased, probabilities = capped, softmax(capped, axis=3)
    else:
        biased = add(capped, bias)
        # The softmax of a row of minus infinities is NaN.
        has_no_visible_keys = equal(reduce_max(bias, axes=(expr_type(bias).rank - 1,), keepdims=True), scalar(-np.inf, dtype))
        probabilities = where(has_no_visible_keys, scalar(0, dtype), softmax(biased, axis=3))
    return Attended(scores, capped, biased, probabilities, cast_to(weighted(probabilities, widened(v)), expr_type(q).dtype))


def products(q: Expr, k: Expr) -> Expr:
    """Multiply q (B, H, L, E) by k (B, K, S, E): (B, H, L, S). Each key head serves H / K adjacent query heads, which become rows
    of one matrix."""
    batch, heads, length, size = expr_type(q).shape
    groups, key_count = expr_type(k).shape[1:3]
    rows = reshape(q, shape=(batch, groups, heads // groups * length, size))
    return reshape(matmul(rows, transpose(k, perm=(0, 1, 3, 2))), shape=(batch, heads, length, key_count))


def weighted(probabilities: Expr, v: Expr) -> Expr:
    """Multiply probabilities (B, H, L, S) by v (B, K, S, V): (B, H, L, V)."""
    batch, heads, length, key_count = expr_type(probabilities).shape
    groups, size = expr_type(v).shape[1], expr_type(v).shape[3]
    rows = reshape(probabilities, shape=(batch, groups, heads // groups * length, key_count))
    return reshape(matmul(rows, v), shape=(batch, heads, length, size))


def _bias(attrs: AttentionAttrs, q: Expr, k: Expr, rest: tuple[Expr, ...]) -> Expr | None:
    """Return the additive bias of the scores: 0 or the mask for a visible key, else minus infinity. Returns None if no key is
    masked."""
    dtype = expr_type(widened(q)).dtype
    length, key_count = expr_type(q).shape[2], expr_type(k).shape[2]
    conditions: list[Expr] = []
    float_mask: Expr | None = None
    if attrs.masked:
        if expr_type(rest[0]).dtype.kind == "bool":
            conditions.append(rest[0])
        else:
            float_mask = cast_to(rest[0], dtype)
    key = iota(shape=(1, key_count), axis=1)
    lengths = expand_dims(cast_to(rest[-1], "int64"), 1, 2, 3) if attrs.padded else None
    if lengths is not None:
        conditions.append(less(key, lengths))
    if attrs.left >= 0 or attrs.right >= 0:
        first_position = count([attrs.offset], "int64") if lengths is None else sub(lengths, count([length], "int64"))
        position = add(iota(shape=(length, 1), axis=0), first_position)
        if attrs.right >= 0:
            conditions.append(less_equal(key, add(position, scalar(attrs.right, "int64"))))
        if attrs.left >= 0:
            conditions.append(less_equal(position, add(key, scalar(attrs.left, "int64"))))
    if not conditions:
        return float_mask
    allowed = conditions[0]
    for other in conditions[1:]:
        allowed = logical_and(allowed, other)
    return where(allowed, scalar(0, dtype) if float_mask is None else float_mask, scalar(-np.inf, dtype))


def _threaded(grid: Grid, attrs: AttentionAttrs, q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor) -> te.Tensor:
    """Emit attention as one fused kernel."""

    def capped(product: ir.Expr) -> ir.Expr:
        score = product * attrs.scale
        return te.math("tanh", score / attrs.softcap) * attrs.softcap if attrs.softcap else score

    mask, lengths = rest[0] if attrs.masked else None, rest[-1] if attrs.padded else None
    attention = Attention(q, k, v, mask, lengths, capped, attrs.offset, attrs.left, attrs.right)
    return fused.attend(grid, attention, q.dtype)


def _takes(grid: Grid, attrs: AttentionAttrs, q: Type, k: Type, v: Type, *rest: Type) -> bool:
    assert isinstance(q, TensorType) and isinstance(v, TensorType)
    return fused.is_supported(grid, q.shape[3], v.shape[3], q.dtype)


attention = Operator(
    "attention",
    _infer,
    AttentionAttrs,
    reference=_reference,
    threaded=Threaded(_threaded, _takes),
    decompose=lambda attrs, args: attend(attrs, *args).result,
    arity=(3, 5),
    inputs=("q", "k", "v", "mask", "lengths"),
    doc="""Scaled dot-product attention (Vaswani et al., 2017): softmax(q k^T * scale + mask) v.
Operands: queries q (B, H, L, E), keys k (B, K, S, E), values v (B, K, S, V), of one float dtype; with `masked`, mask, bool or
float, broadcast to (B, H, L, S); with `padded`, lengths (B,), integer. Result: (B, H, L, V), dtype of q. H must be a multiple of K:
each key and value head serves H / K query heads. The result of a query without visible keys is 0.""",
)

OPERATORS = make_family(attention)
