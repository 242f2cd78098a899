"""Attention scores: soft cap, mask, lengths and sliding window."""

from __future__ import annotations

import math
from collections.abc import Callable

from inlaid.ops.define import broadcast_read, working_dtype
from inlaid.ops.threads.grid import LONG
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType


@dataclass(frozen=True)
class Attention:
    """Queries (B, H, L, E), keys (B, K, S, E), values (B, K, S, V), and the transformations of their scores.

    `mask` is a bool mask or an additive bias that broadcasts to (B, H, L, S); `lengths` are the valid keys of each batch element.
    `capped(score)` scales a dot product and applies the soft cap. `first` is the position of the first query among the keys;
    `lengths`, if given, override `first`. `left` and `right` bound the sliding window; -1: unbounded.
    """

    q: te.Tensor
    k: te.Tensor
    v: te.Tensor
    mask: te.Tensor | None
    lengths: te.Tensor | None
    capped: Callable[[ir.Expr], ir.Expr]
    first: Dim
    left: int
    right: int

    @property
    def working(self) -> DType:
        """Dtype of scores and accumulators."""
        return working_dtype(self.q.dtype)

    @property
    def tensors(self) -> tuple[te.Tensor, ...]:
        """The operands that are not None, in the order of the fields."""
        return tuple(tensor for tensor in (self.q, self.k, self.v, self.mask, self.lengths) if tensor is not None)

    @property
    def masked(self) -> bool:
        """Whether any score may be masked."""
        return self.mask is not None or self.lengths is not None or max(self.left, self.right) >= 0

    def kv_head(self, head: Dim) -> Dim:
        """Return the key-value head of a query head (grouped-query attention)."""
        heads, groups = self.q.shape[1], self.k.shape[1]
        assert isinstance(heads, int) and isinstance(groups, int), "heads are checked when the type is inferred"
        return arith.floordiv(head, heads // groups)

    def visible_keys(self, query: Dim, queries: int) -> tuple[arith.Expr, arith.Expr]:
        """Return the range [begin, end) of the keys that the window makes visible to any of `queries` queries from `query` on."""
        begin: arith.Expr = arith.ZERO
        end = arith.wrap(self.k.shape[2])
        if self.lengths is None and self.left >= 0:
            begin = arith.maximum(arith.wrap(query) + self.first - self.left, 0)
        if self.lengths is None and self.right >= 0:
            end = arith.minimum(end, arith.wrap(query) + self.first + (queries + self.right))
        return arith.minimum(begin, self.k.shape[2]), arith.maximum(end, 0)

    def bias(self, index: tuple[Dim, Dim, Dim, Dim]) -> ir.Expr:
        """Return the additive bias of the score at (batch, head, query, key), all in bounds: minus infinity if masked."""
        batch, _, query, key = index
        minus_infinity = te.const(-math.inf, self.working)
        score_bias: ir.Expr = te.const(0.0, self.working)
        conditions: list[ir.Expr] = []
        if self.mask is not None:
            shape = (self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2])
            element = _as_loads(broadcast_read(self.mask, shape, index))
            if self.mask.dtype.kind == "bool":
                conditions.append(element)
            else:
                score_bias = te.cast(element, self.working)
        first_position: ir.Expr = ir.as_expr(arith.wrap(self.first), LONG)
        if self.lengths is not None:
            length = te.cast(self.lengths.buffer[batch], LONG)
            conditions.append(ir.as_expr(key, LONG) < length)
            first_position = length - arith.wrap(self.q.shape[2])
        position = first_position + ir.as_expr(query, LONG)
        if self.right >= 0:
            conditions.append(ir.as_expr(key, LONG) <= position + self.right)
        if self.left >= 0:
            conditions.append(position <= ir.as_expr(key, LONG) + self.left)
        for condition in conditions:
            score_bias = te.select(condition, score_bias, minus_infinity)
        return score_bias


def finite(row_max: ir.Expr) -> ir.Expr:
    """Return the value to subtract from scores: their maximum `row_max`, or 0 if all are minus infinity, so that no NaN arises."""
    return te.select(row_max.equal(-math.inf), te.const(0.0, row_max.dtype), row_max)


def _as_loads(value: ir.Expr) -> ir.Expr:
    """Replace reads of tensors by loads from their buffers."""

    def load(node: ir.Expr) -> ir.Expr | None:
        return ir.Load(node.dtype, node.buffer, node.indices) if isinstance(node, te.Read) else None

    return ir.map_expr(value, load, lambda index: index)
