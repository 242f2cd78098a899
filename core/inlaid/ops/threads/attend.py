"""Attention in one kernel, scores never in memory (T. Dao et al., FlashAttention, 2022).

Keys and values come by tiles. The softmax is that of what was seen so far, and what was summed is scaled anew when the greatest
score grows (M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, 2018). A block has some queries, and several
threads for each, which share tiles of keys and then of values; where threads share no memory, a thread has a query.

Keys that a window hides from all queries of a block, or of a thread, are not read.
"""

from __future__ import annotations

import math

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.define import widen
from inlaid.ops.threads.attend_blocks import Blocks, tiles_of
from inlaid.ops.threads.grid import Grid, each_of_rows, truth
from inlaid.ops.threads.scores import Attention, finite
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.types import DType

ALONE = 256
"""Elements of a result that a thread keeps by itself."""


def takes(grid: Grid, size: Dim, width: Dim, of: DType) -> bool:
    """Whether there is a kernel for keys of a size and values of a width."""
    if grid.scope:
        return tiles_of(grid, size, width, of) is not None
    return isinstance(width, int) and width <= ALONE


def attend(grid: Grid, what: Attention, result: DType) -> te.Tensor:
    """The result of attention, of an element type."""
    batch, heads, length, size = what.q.shape
    width = what.v.shape[3]
    tiles = tiles_of(grid, size, width, what.q.dtype) if grid.scope else None

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        if tiles is None:
            _by_threads(b, grid, what, outputs[0])
        else:
            Blocks(b, grid, what, tiles, outputs[0]).emit()

    return te.extern([((batch, heads, length, width), result)], what.tensors, body, "attention")[0]


def _by_threads(b: Builder, grid: Grid, what: Attention, out: ir.Buffer) -> None:
    """A thread for each query."""
    of, q, k, v = what.working, what.q, what.k, what.v
    with each_of_rows(b, grid, arith.product(q.shape[:2]), q.shape[2]) as (row, query):
        batch, head = row // q.shape[1], row % q.shape[1]
        group = what.of_keys(head)
        sums = b.alloc((v.shape[3],), of, "sums")
        most, total, score, grown = (b.alloc((), of, name) for name in ("most", "total", "score", "grown"))
        seen = b.alloc((), "bool", "seen")
        b.store(most, (), -math.inf)
        b.store(total, (), 0.0)
        b.store(seen, (), truth(arith.compare("<", 0, k.shape[2])) if not what.hides else False)
        with b.loop(v.shape[3], "w") as w:
            b.store(sums, w, 0.0)
        begin, end = what.range(query, 1)
        with b.loop(arith.maximum(end - begin, 0), "n") as n:
            key = begin + n
            b.store(score, (), 0.0)
            with b.loop(q.shape[3], "e") as e:
                b.store(score, (), score[()] + widen(q.buffer[batch, head, query, e]) * widen(k.buffer[batch, group, key, e]))
            b.store(score, (), what.capped(score[()]))
            if what.hides:
                bias = what.bias((batch, head, query, key))
                b.store(grown, (), bias)
                b.store(seen, (), seen[()] | grown[()].not_equal(-math.inf))
                b.store(score, (), score[()] + grown[()])
            b.store(grown, (), te.maximum(most[()], score[()]))
            b.store(most, (), te.math("exp", most[()] - finite(grown[()])))
            b.store(score, (), te.math("exp", score[()] - finite(grown[()])))
            b.store(total, (), total[()] * most[()] + score[()])
            with b.loop(v.shape[3], "w") as w:
                b.store(sums, w, sums[w] * most[()] + score[()] * widen(v.buffer[batch, group, key, w]))
            b.store(most, (), grown[()])
        with b.loop(v.shape[3], "w") as w:
            value = te.select(seen[()], sums[w] / total[()], te.const(0.0, of))
            b.store(out, (batch, head, query, w), te.cast(value, out.dtype))
