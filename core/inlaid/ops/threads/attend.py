"""Fused attention in one kernel, without materialized scores (T. Dao et al., FlashAttention, 2022).

The softmax is online: the accumulators are rescaled when the running maximum grows (M. Milakov and N. Gimelshein, Online normalizer
calculation for softmax, 2018). With shared memory a block computes a tile of queries, several threads per query, over shared tiles
of keys and values; without it, each thread computes one query.

Keys that the window masks for all queries of a block, or of a thread, are skipped.
"""

from __future__ import annotations

import math

from inlaid.ops.define import widen
from inlaid.ops.threads.attend_blocks import TiledKernel, choose_tiles
from inlaid.ops.threads.grid import Grid, parallel_rows, truth
from inlaid.ops.threads.scores import Attention, finite
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DType

MAX_WIDTH = 256
"""Maximum size of a value vector that one thread accumulates, without shared memory."""


def is_supported(grid: Grid, size: Dim, width: Dim, dtype: DType) -> bool:
    """Test whether a kernel exists for keys of `size` elements and values of `width` elements."""
    if grid.scope:
        return choose_tiles(grid, size, width, dtype) is not None
    return isinstance(width, int) and width <= MAX_WIDTH


def attend(grid: Grid, attention: Attention, result: DType) -> te.Tensor:
    """Emit attention as an extern tensor (B, H, L, V) of dtype `result`."""
    batch, heads, length, size = attention.q.shape
    width = attention.v.shape[3]
    tiles = choose_tiles(grid, size, width, attention.q.dtype) if grid.scope else None

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        if tiles is None:
            _emit_per_query(b, grid, attention, outputs[0])
        else:
            TiledKernel(b, grid, attention, tiles, outputs[0]).emit()

    return te.extern([((batch, heads, length, width), result)], attention.tensors, body, "attention")[0]


def _emit_per_query(b: Builder, grid: Grid, attention: Attention, out: ir.Buffer) -> None:
    """Emit the kernel without shared memory: one thread per query."""
    dtype, q, k, v = attention.working, attention.q, attention.k, attention.v
    with parallel_rows(b, grid, arith.product(q.shape[:2]), q.shape[2]) as (row, query):
        batch, head = row // q.shape[1], row % q.shape[1]
        group = attention.kv_head(head)
        sums = b.alloc((v.shape[3],), dtype, "sums")
        row_max, total, score, new_max = (b.alloc((), dtype, name) for name in ("most", "total", "score", "grown"))
        any_visible = b.alloc((), "bool", "seen")
        b.store(row_max, (), -math.inf)
        b.store(total, (), 0.0)
        b.store(any_visible, (), truth(arith.compare("<", 0, k.shape[2])) if not attention.masked else False)
        with b.loop(v.shape[3], "w") as w:
            b.store(sums, w, 0.0)
        begin, end = attention.visible_keys(query, 1)
        with b.loop(arith.maximum(end - begin, 0), "n") as n:
            key = begin + n
            b.store(score, (), 0.0)
            with b.loop(q.shape[3], "e") as e:
                b.store(score, (), score[()] + widen(q.buffer[batch, head, query, e]) * widen(k.buffer[batch, group, key, e]))
            b.store(score, (), attention.capped(score[()]))
            if attention.masked:
                bias = attention.bias((batch, head, query, key))
                b.store(new_max, (), bias)
                b.store(any_visible, (), any_visible[()] | new_max[()].not_equal(-math.inf))
                b.store(score, (), score[()] + new_max[()])
            b.store(new_max, (), te.maximum(row_max[()], score[()]))
            # Until the new maximum is stored below, `row_max` holds the factor that rescales the accumulators.
            b.store(row_max, (), te.math("exp", row_max[()] - finite(new_max[()])))
            b.store(score, (), te.math("exp", score[()] - finite(new_max[()])))
            b.store(total, (), total[()] * row_max[()] + score[()])
            with b.loop(v.shape[3], "w") as w:
                b.store(sums, w, sums[w] * row_max[()] + score[()] * widen(v.buffer[batch, group, key, w]))
            b.store(row_max, (), new_max[()])
        with b.loop(v.shape[3], "w") as w:
            value = te.select(any_visible[()], sums[w] / total[()], te.const(0.0, dtype))
            b.store(out, (batch, head, query, w), te.cast(value, out.dtype))
