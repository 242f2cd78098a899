"""Products of narrow numbers through dot-product instructions: matrix products and convolutions over register tiles.

An instruction adds, in each of its lanes, a few neighbouring products to one accumulator. The operand that all lanes share lies
with the sum's index innermost already, in rows of a matrix or channels of a pixel; the other is packed so that each lane's group
of elements lies together: a panel of columns as K/g N g.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay import arith
from inlay.arith import Var
from inlay.schedules.conv import schedule_padding
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
from inlay.tensor.keys import structurally_equal
from inlay.tensor.layouts import with_layouts
from inlay.tensor.primitives import TensorIntrin
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR, Layout, dtype

LONGEST_ROW = 8
"""Vectors of columns of a tile that has a single row: enough additions in flight to hide their latency."""


def dot_product(a: str, b: str, total: str, lanes: int, group: int) -> ir.LoopProgram:
    """What a dot-product instruction does: for each lane i, total[i] += sum over j < group of a[j] * b[i, j], of these dtypes."""
    shared, own = ir.Buffer("a", (group,), dtype(a)), ir.Buffer("b", (lanes, group), dtype(b))
    acc = ir.Buffer("total", (lanes,), dtype(total))
    i, j = Var("i"), Var("j")
    product = ir.cast(ir.load(shared, (j,)), total) * ir.cast(ir.load(own, (i, j)), total)
    store = ir.Store(acc, (i,), ir.load(acc, (i,)) + product)
    body = ir.For(i, arith.wrap(lanes), ir.For(j, arith.wrap(group), store))
    return ir.LoopProgram("dot", (shared, own), (acc,), body)


@dataclass(frozen=True)
class _Dot:
    """An intrinsic of a number of lanes that sums groups of products."""

    intrinsic: TensorIntrin
    lanes: int
    group: int


@dataclass(frozen=True)
class _Tile:
    """An instruction, its vectors of output columns, and rows or pixels."""

    dot: _Dot
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        return self.dot.lanes * self.vectors


def narrow_product(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    """The loads a and b of acc = acc + wide(a) * wide(b)."""
    assert isinstance(anchor.block.body, ir.Store)
    match anchor.block.body.value:
        case ir.Binary(
            op="add",
            a=ir.Load(buffer=buffer),
            b=ir.Binary(op="mul", a=ir.Cast(a=ir.Load() as a), b=ir.Cast(a=ir.Load() as b)),
        ):
            return (a, b) if buffer is anchor.buffer else None
    return None


def _dots(context: KernelContext, a: str, b: str, total: str) -> list[_Dot]:
    """The intrinsics that sum such products, those that do most at once first."""
    found = []
    for intrinsic in context.intrinsics:
        params = intrinsic.semantics.params
        if [buffer.dtype.name for buffer in params] != [a, b, total] or [len(buffer.shape) for buffer in params] != [1, 2, 1]:
            continue
        lanes, group = params[1].shape
        if not isinstance(lanes, int) or not isinstance(group, int):
            continue
        if structurally_equal(intrinsic.semantics, dot_product(a, b, total, lanes, group)):
            found.append(_Dot(intrinsic, lanes, group))
    return sorted(found, key=lambda dot: -dot.lanes * dot.group)


def _fitting(anchor: Anchor, context: KernelContext, columns: int, depth: int) -> _Dot | None:
    product = narrow_product(anchor)
    if product is None or not context.intrinsics:
        return None
    a, b = (load.dtype.name for load in product)
    fits = (dot for dot in _dots(context, a, b, anchor.buffer.dtype.name) if columns % dot.lanes == 0 and depth % dot.group == 0)
    return next(fits, None)


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
        dot = _fitting(anchor, context, columns, depth)
        if dot is None:
            return None
        rows = constant_extent(anchor.spatial[-2]) if len(anchor.spatial) > 1 else 1
        tile = _tile(dot, rows, columns, context)
        layouts = {b.buffer: Layout(((0, depth), (1, tile.width), (0, dot.group)))}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule_matmul(source, anchor, tile, layouts, context))


def _tile(dot: _Dot, rows: int, columns: int, context: KernelContext) -> _Tile:
    most = min(LONGEST_ROW if rows == 1 else 2, columns // dot.lanes)
    vectors = next(count for count in range(most, 0, -1) if columns % (dot.lanes * count) == 0)
    # All registers but those for the packed operand of a step, and one for a broadcast.
    limit = max((context.capabilities.vector_registers - vectors - 2) // vectors, 1)
    return _Tile(dot, vectors, tile_size(rows, limit))


def _schedule_matmul(
    program: ir.LoopProgram, anchor: Anchor, tile: _Tile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for ..., columns, rows:                   # parallel over the outermost
        total[row, vector, lane] = 0
        for group of k:
            dot(a, b, total)                  # row and vector unrolled
        out = after(total)
    """
    s = Schedule(program, context.intrinsics)
    matmul, final = anchor.block.name, last_of(anchor)
    inline_all(s, [block.name for block in anchor.after if block.name != final])
    if final is None:
        final = s.cache_write(matmul, "register")
    else:
        s.set_scope(anchor.buffer.name, "register")
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
    return _with_dots(s, matmul, k, (*own_rows, vector), lane, tile, layouts_by_name(s.program, layouts), context)


class DotConvRule:
    """Two-dimensional convolution of narrow operands, ungrouped, whose channels fill vectors on both sides."""

    name = "dot_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines channels that are no multiple of an instruction's lanes."""
        if not is_static(program):
            return None
        anchor = find_anchor(program)
        if anchor is None or len(anchor.spatial) != 4 or len(anchor.reduced) != 3 or len(anchor.before) > 1:
            return None
        product = narrow_product(anchor)
        if product is None:
            return None
        data, weights = product
        n, o, _, _ = (item.var for item in anchor.spatial)
        c, ky, kx = (item.var for item in anchor.reduced)
        if weights.buffer not in program.inputs or weights.indices != (o, c, ky, kx) or data.indices[:2] != (n, c):
            return None
        if data.buffer not in program.inputs and not anchor.before:
            return None
        outputs, inputs, width = (constant_extent(item) for item in (anchor.spatial[1], anchor.reduced[0], anchor.spatial[3]))
        dot = _fitting(anchor, context, outputs, inputs)
        if dot is None or inputs % dot.lanes:
            return None
        tile = _tile(dot, width, outputs, context)
        layouts = _conv_layouts(program, anchor, data.buffer, weights.buffer, tile)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda source: _schedule_conv(source, anchor, tile, layouts, context))


def _conv_layouts(
    program: ir.LoopProgram, anchor: Anchor, data: ir.Buffer, weights: ir.Buffer, tile: _Tile
) -> dict[ir.Buffer, Layout]:
    lanes = tile.dot.lanes
    blocked = Layout(((1, lanes),))
    found = {weights: Layout(((1, lanes), (0, tile.width), (1, tile.dot.group))), data: blocked}
    for block in anchor.before:
        found.update((region.buffer, blocked) for region in block.reads if len(region.buffer.shape) == 4)
    shape = anchor.buffer.shape
    for buffer in (*program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if buffer.shape == shape and buffer not in found:
            found[buffer] = blocked
    return found


def _schedule_conv(
    program: ir.LoopProgram, anchor: Anchor, tile: _Tile, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> ir.LoopProgram:
    """
    for n, outer, y, x:                       # parallel over n, outer, y
        total[pixel, vector, lane] = 0
        for channel block, ky, kx, group of channels:
            dot(data, weights, total)         # pixel and vector unrolled
        out = after(total)
    """
    s = Schedule(program, context.intrinsics)
    lanes = tile.dot.lanes
    for block in anchor.before:
        schedule_padding(s, block.name, lanes, context)
    conv, final = anchor.block.name, last_of(anchor)
    inline_all(s, [block.name for block in anchor.after if block.name != final])
    registers: dict[str, Layout] = {}
    if final is None:
        final = s.cache_write(conv, "register")
        registers[final] = Layout(((1, lanes),))
    else:
        s.set_scope(anchor.buffer.name, "register")
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, vector, lane = s.split(channel, (None, tile.vectors, lanes))
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.rows))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(pixel), vector, lane)
    s.compute_at(conv, outside[-1])
    mark_tile(s, *present(pixel), vector, lane)
    c, *taps = axis_loops(s, conv)[4:]
    assert c is not None
    channel, *pixels = [loop for loop in s.loops(conv)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, lanes))
    blocks, groups, part = s.split(c, (None, lanes // tile.dot.group, tile.dot.group))
    s.reorder(blocks, *present(*taps), groups, *pixels, vector, lane, part)
    if context.threads != 1:
        s.parallel(s.fuse(*present(n, outer, y)))
    return _with_dots(s, conv, blocks, (*pixels, vector), lane, tile, layouts_by_name(s.program, layouts, registers), context)


def _with_dots(
    s: Schedule,
    block: str,
    first: Var,
    unrolled: tuple[Var, ...],
    lane: Var,
    tile: _Tile,
    layouts: dict[ir.Buffer, Layout],
    context: KernelContext,
) -> ir.LoopProgram:
    """The program with the loops from the lanes inwards done by the instruction, and the tile around it unrolled."""
    init = s.decompose_reduction(block, first)
    mark_tile(s, *s.loops(init)[-1 - len(unrolled) :])
    for loop in unrolled:
        s.unroll(loop)
    laid = Schedule(with_layouts(s.program, layouts), context.intrinsics)
    laid.tensorize(lane, tile.dot.intrinsic.name)
    return laid.program
