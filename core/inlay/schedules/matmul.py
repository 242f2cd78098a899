"""Matrix products on vector CPUs: a tile of rows times columns is accumulated in registers over the whole inner dimension.

A constant right operand is packed so that what a tile reads lies in one run of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay import arith
from inlay.arith import Var
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    axis_loops,
    constant_extent,
    find_anchor,
    inline_all,
    is_static,
    last_of,
    layouts_by_name,
    mark_tile,
    present,
    tile_size,
)
from inlay.tensor import ir
from inlay.tensor.layouts import with_layouts
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout

LONGEST_ROW = 8
"""Vectors of columns of a tile that has a single row: enough additions in flight to hide their latency."""


@dataclass(frozen=True)
class _Tile:
    """Lanes of a vector, vectors of columns, and rows."""

    lanes: int
    vectors: int
    rows: int


class MatmulRule:
    """out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] in float32, of static shape."""

    name = "matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines other reductions, and results with fewer columns than half a vector."""
        if not is_static(program) or not context.capabilities.vector_bits:
            return None
        anchor = find_anchor(program)
        if anchor is None or anchor.before or not _is_matmul(program, anchor):
            return None
        tile = _tile(anchor, context)
        if tile is None:
            return None
        layouts = _layouts(program, anchor, tile, given)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(source, anchor, tile, layouts, context))


def _is_matmul(program: ir.LoopProgram, anchor: Anchor) -> bool:
    if anchor.product is None or len(anchor.reduced) != 1 or not anchor.spatial or anchor.buffer.dtype.name != "float32":
        return False
    a, b = anchor.product
    k, n = anchor.reduced[0].var, anchor.spatial[-1].var
    if (
        constant_extent(anchor.reduced[0]) < 2
        or len(b.indices) < 2
        or b.indices[-2:] != (k, n)
        or not a.indices
        or a.indices[-1] != k
    ):
        return False
    return all(n not in arith.free_vars(index) for index in (*a.indices, *b.indices[:-1]))


def _tile(anchor: Anchor, context: KernelContext) -> _Tile | None:
    registers = context.capabilities.vector_registers
    columns = constant_extent(anchor.spatial[-1])
    rows = constant_extent(anchor.spatial[-2]) if len(anchor.spatial) > 1 else 1
    widest = context.capabilities.vector_bits // 32
    lanes = next((lanes for lanes in (widest, widest // 2) if lanes > 1 and columns % lanes == 0), widest)
    if columns < lanes:
        return None
    most = min(LONGEST_ROW if rows == 1 else 2, columns // lanes)
    vectors = next(count for count in range(most, 0, -1) if columns % (lanes * count) == 0 or count == 1)
    limit = max((registers - vectors - 2) // vectors, 1)
    return _Tile(lanes, vectors, tile_size(rows, limit))


def _layouts(program: ir.LoopProgram, anchor: Anchor, tile: _Tile, given: tuple[Given, ...]) -> dict[ir.Buffer, Layout]:
    """The right operand in panels of the tile's columns, where it is a constant matrix."""
    assert anchor.product is not None
    right = anchor.product[1].buffer
    if right not in program.inputs or len(right.shape) != 2 or not given[program.inputs.index(right)].constant:
        return {}
    depth, width = constant_extent(anchor.reduced[0]), tile.lanes * tile.vectors
    return {right: Layout(((0, depth), (1, width)))}


def _schedule(
    program: ir.LoopProgram, anchor: Anchor, tile: _Tile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for ..., columns, rows:                   # parallel over the larger of the two
        acc[row, vector, lane] = 0
        for k:
            acc += a * b                      # row and vector unrolled, lane vectorised
        out = after(acc)
    """
    s = Schedule(program)
    matmul, final = anchor.block.name, last_of(anchor)
    inline_all(s, [block.name for block in anchor.after if block.name != final])
    if final is None:
        final = s.cache_write(matmul, "register")
    else:
        s.set_scope(anchor.buffer.name, "register")
    *outer, n = axis_loops(s, final)
    assert n is not None
    m = outer.pop() if outer else None
    columns, vector, lane = s.split(n, (None, tile.vectors, tile.lanes))
    rows, row = (None, None) if m is None else s.split(m, (None, tile.rows))
    outside = present(*outer, columns, rows)
    s.reorder(*outside, *present(row), vector, lane)
    s.compute_at(matmul, outside[-1])
    mark_tile(s, *present(row), vector, lane)
    k = axis_loops(s, matmul)[-1]
    assert k is not None
    *own_rows, n = [loop for loop in s.loops(matmul)[len(outside) :] if loop != k]
    vector, lane = s.split(n, (tile.vectors, tile.lanes))
    s.reorder(k, *own_rows, vector, lane)
    init = s.decompose_reduction(matmul, k)
    for part in (init, matmul):
        mark_tile(s, *s.loops(part)[-2 - len(own_rows) :])
    _parallel(s, present(*outer), columns, rows, anchor, tile, context)
    return with_layouts(s.program, layouts_by_name(s.program, layouts))


def _parallel(
    s: Schedule, outer: list[Var], columns: Var, rows: Var | None, anchor: Anchor, tile: _Tile, context: KernelContext
) -> None:
    if context.threads == 1:
        return
    if outer:
        s.parallel(s.fuse(*outer) if len(outer) > 1 else outer[0])
        return
    panels = constant_extent(anchor.spatial[-1]) // (tile.lanes * tile.vectors)
    stripes = constant_extent(anchor.spatial[-2]) // tile.rows if rows is not None else 1
    if rows is not None and stripes > panels:
        s.reorder(rows, columns)
        s.parallel(rows)
    else:
        s.parallel(columns)
