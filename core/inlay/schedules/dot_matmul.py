"""Matrix products of narrow numbers through dot-product instructions, over a tile of rows times columns in registers."""

from __future__ import annotations

from inlay import arith
from inlay.schedules.dot import DotTile, choose_dot_tile, fitting_dot, narrow_product, with_dots
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    constant_extent,
    find_anchor,
    is_static,
    layouts_by_name,
    mark_tile,
    present,
)
from inlay.tensor import ir
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout


class DotMatmulRule:
    """out[..., m, n] = sum over k of a[..., m, k] * b[k, n] of narrow operands, of static shape, b constant or not."""

    name = "dot_matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines sums whose length is no multiple of an instruction's group, and columns that do not fill its lanes."""
        if not is_static(program):
            return None
        anchor = find_anchor(program)
        if anchor is None or anchor.before or len(anchor.reduced) != 1 or not anchor.spatial:
            return None
        product = narrow_product(anchor)
        if product is None:
            return None
        a, b = product
        k, n = anchor.reduced[0].var, anchor.spatial[-1].var
        if len(b.indices) != 2 or b.indices != (k, n) or b.buffer not in program.inputs or not a.indices or a.indices[-1] != k:
            return None
        if any(n in arith.free_vars(index) for index in a.indices):
            return None
        columns, depth = constant_extent(anchor.spatial[-1]), constant_extent(anchor.reduced[0])
        dot = fitting_dot(anchor, context, columns, depth)
        if dot is None:
            return None
        rows = constant_extent(anchor.spatial[-2]) if len(anchor.spatial) > 1 else 1
        tile = choose_dot_tile(dot, rows, columns, context)
        layouts = {b.buffer: Layout(((0, depth), (1, tile.width), (0, dot.group)))}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule(source, anchor, tile, layouts, context))


def _schedule(
    program: ir.LoopProgram, anchor: Anchor, tile: DotTile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for ..., columns, rows:                   # parallel over the outermost
        total[row, vector, lane] = 0
        for group of k:
            dot(a, b, total)                  # row and vector unrolled
        out = after(total)
    """
    s = Schedule(program, context.intrinsics)
    matmul, final = anchor.block.name, accumulate_in_registers(s, anchor)
    *outer, n = axis_loops(s, final)
    assert n is not None
    m = outer.pop() if outer else None
    columns, vector, lane = s.split(n, (None, tile.vectors, tile.dot.lanes))
    rows, row = (None, None) if m is None else s.split(m, (None, tile.rows))
    outside = present(*outer, columns, rows)
    s.reorder(*outside, *present(row), vector, lane)
    s.compute_at(matmul, outside[-1])
    mark_tile(s, *present(row), vector, lane)
    k = axis_loops(s, matmul)[-1]
    assert k is not None
    *own_rows, n = [loop for loop in s.loops(matmul)[len(outside) :] if loop != k]
    vector, lane = s.split(n, (tile.vectors, tile.dot.lanes))
    k, part = s.split(k, (None, tile.dot.group))
    s.reorder(k, *own_rows, vector, lane, part)
    if context.threads != 1:
        s.parallel(outside[0])
    return with_dots(s, matmul, k, (*own_rows, vector), lane, tile, layouts_by_name(s.program, layouts), context)
