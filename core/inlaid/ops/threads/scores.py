"""What attention asks of the score of a query and a key."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.define import broadcast_read, working_dtype
from inlaid.ops.threads.grid import LONG
from inlaid.tensor import ir, te
from inlaid.types import DType


@dataclass(frozen=True)
class Attention:
    """Queries (B, H, L, E), keys (B, K, S, E), values (B, K, S, V), and what is asked of a score.

    `seen(batch, query, key)` is whether a window or a length lets a query see a key, `added(batch, head, query, key)` what is added
    to its score; None where all are seen, and nothing is added. `left` and `right` are the windows, and `first` the position of the
    first query among the keys, None where data has it. `capped(score)` is what becomes of a product of queries and keys.
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
        """The type of scores and sums."""
        return working_dtype(self.q.dtype)

    @property
    def tensors(self) -> tuple[te.Tensor, ...]:
        """The arguments."""
        return tuple(tensor for tensor in (self.q, self.k, self.v, self.mask, self.lengths) if tensor is not None)

    @property
    def hides(self) -> bool:
        """Whether a query may not see a key."""
        return self.mask is not None or self.lengths is not None or max(self.left, self.right) >= 0

    def of_keys(self, head: Dim) -> Dim:
        """The head of keys and values that serves one of queries."""
        heads, groups = self.q.shape[1], self.k.shape[1]
        assert isinstance(heads, int) and isinstance(groups, int), "heads are checked when the type is inferred"
        return arith.floordiv(head, heads // groups)

    def range(self, query: Dim, queries: int) -> tuple[arith.Expr, arith.Expr]:
        """The keys that some of so many queries may see: from the first to before the last."""
        begin: arith.Expr = arith.ZERO
        end = arith.wrap(self.k.shape[2])
        if self.lengths is None and self.left >= 0:
            begin = arith.maximum(arith.wrap(query) + self.first - self.left, 0)
        if self.lengths is None and self.right >= 0:
            end = arith.minimum(end, arith.wrap(query) + self.first + (queries + self.right))
        return arith.minimum(begin, self.k.shape[2]), arith.maximum(end, 0)

    def bias(self, place: tuple[Dim, Dim, Dim, Dim]) -> ir.Expr:
        """What is added to the score of (batch, head, query, key), all inside: minus infinity where the query does not see it."""
        batch, _, query, key = place
        hidden = te.const(-math.inf, self.working)
        added: ir.Expr = te.const(0.0, self.working)
        seen: list[ir.Expr] = []
        if self.mask is not None:
            shape = (self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2])
            element = _plain(broadcast_read(self.mask, shape, place))
            if self.mask.dtype.kind == "bool":
                seen.append(element)
            else:
                added = te.cast(element, self.working)
        first: ir.Expr = ir.as_expr(arith.wrap(self.first), LONG)
        if self.lengths is not None:
            length = te.cast(self.lengths.buffer[batch], LONG)
            seen.append(ir.as_expr(key, LONG) < length)
            first = length - arith.wrap(self.q.shape[2])
        position = first + ir.as_expr(query, LONG)
        if self.right >= 0:
            seen.append(ir.as_expr(key, LONG) <= position + self.right)
        if self.left >= 0:
            seen.append(position <= ir.as_expr(key, LONG) + self.left)
        for condition in seen:
            added = te.select(condition, added, hidden)
        return added


def finite(most: ir.Expr) -> ir.Expr:
    """What scores are compared with: 0 where all were minus infinity."""
    return te.select(most.equal(-math.inf), te.const(0.0, most.dtype), most)


def _plain(value: ir.Expr) -> ir.Expr:
    """An expression over the buffers of tensors."""

    def load(node: ir.Expr) -> ir.Expr | None:
        return ir.Load(node.dtype, node.buffer, node.indices) if isinstance(node, te.Read) else None

    return ir.map_expr(value, load, lambda index: index)
