"""Matrix product on vector CPUs: a register tile of rows times columns is accumulated over the whole inner dimension.

The right operand is read in contiguous panels as wide as a tile: a constant operand is packed at compile time; a panel of any other
operand is copied before its first use if enough rows use the panel.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.plugins.costs import CostConstants
from inlaid.schedules.collapse import collapsed
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.last_tile import SUM_WHOLE_VECTORS
from inlaid.schedules.register_tile import Tile, choose_tile, list_tiles
from inlaid.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    find_anchor,
    lay_out,
    loop_extent,
    mark_tile,
    present,
)
from inlaid.tensor import ir
from inlaid.tensor.primitives.stream import LINE
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced, Version
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR, Layout

ELEMENT = 4
"""Bytes of an element of a panel."""


@dataclass(frozen=True)
class MatmulAxes:
    """Axes of out[..., m, ..., n] = sum over k of a * b, as positions among the anchor's spatial axes.

    `shared` axes and n index the right operand. `row` is the longest axis that does not; `free` are the other such axes.
    """

    anchor: Anchor
    left: ir.Load
    right: ir.Load
    shared: tuple[int, ...]
    free: tuple[int, ...]
    row: int | None

    @property
    def rows(self) -> int | None:
        """Number of rows; None if symbolic."""
        return 1 if self.row is None else _constant(self.anchor.spatial[self.row].extent)

    @property
    def expected(self) -> tuple[int, int, int]:
        """The extents (rows, columns, depth), with size hints for symbolic ones."""
        spatial = self.anchor.spatial
        rows = 1 if self.row is None else arith.size_hint(spatial[self.row].extent)
        return rows, arith.size_hint(spatial[-1].extent), arith.size_hint(self.anchor.reduced[0].extent)

    @property
    def rows_may_be_small(self) -> bool:
        """Whether the number of rows is a single symbolic dimension, such as a batch, and so may be small."""
        return self.row is not None and isinstance(self.anchor.spatial[self.row].extent, arith.SizeVar)

    def likely_rows(self, costs: CostConstants) -> int | tuple[int, ...]:
        """Number of rows, or if symbolic the representative row counts for which to choose a tile: powers of two up to the size
        hint, and if `rows_may_be_small` every number up to `costs.small_rows`. A tile chosen for these suits few rows as well as
        many, and never covers all rows."""
        row_hint = self.expected[0]
        if self.rows is not None or row_hint < 2:
            return row_hint
        powers = tuple(1 << power for power in range(1, row_hint.bit_length()))
        return tuple(sorted({*powers, *range(2, min(row_hint, costs.small_rows) + 1)})) if self.rows_may_be_small else powers

    @property
    def columns(self) -> int | None:
        """Number of columns; None if symbolic."""
        return _constant(self.anchor.spatial[-1].extent)

    @property
    def depth(self) -> int | None:
        """Extent of the inner dimension; None if symbolic."""
        return _constant(self.anchor.reduced[0].extent)


@dataclass(frozen=True)
class ProductNest:
    """Loops of a tiled product. Outer: the axes of `MatmulAxes`, in order; inner: `k` and the register tile."""

    shared: tuple[Var, ...]
    columns: Var
    free: tuple[Var, ...]
    rows: Var | None
    k: Var
    tile_rows: tuple[Var, ...]
    vector: Var
    lane: Var


class MatmulRule:
    """Schedules out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] in float32 or int32, with operands cast to it."""

    name = "matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels other than products, fewer columns than half a vector, and empty results."""
        if not context.capabilities.vector_bits or 0 in program.outputs[0].shape:
            return None
        s = collapsed(program)
        merged = s.program
        product = find_product(merged)
        if product is None:
            return None
        lanes = _lanes(product, context)
        if not lanes:
            return None
        threads = 1 if product.shared else max(context.threads, 1)
        able = context.capabilities
        rows = product.likely_rows(able.core.costs)
        best = choose_tile(rows, *product.expected[1:], lanes, able.vector_registers, able.core, threads)
        tiles = list_tiles(max_rows(rows), product.expected[1], lanes, able.vector_registers, able.core)
        tile, chosen = decide_tile(tiles, best, context)
        layouts = _layouts(program, merged, product, tile, inputs)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in merged.params)
        packs = _packs(product, layouts, context)
        packed = any(decision.number for decision in packs)
        versions: tuple[Version, ...] = ()
        if layouts and product.row is not None and product.rows is None:
            # A single row (each step of an LSTM with batch 1) needs more vectors per tile to hide the latency of additions.
            most = able.core.costs.row_vectors
            panels = context.decide("panels", range(1, most + 1), max(most // tile.vectors, 1))
            low = replace(tile, vectors=panels.number * tile.vectors, rows=1)
            single = arith.compare("==", product.anchor.spatial[product.row].extent, 1)
            row_schedule = Traced(lambda: _schedule(s.copy(), product, low, layouts, packed, context))
            versions = (Version(single, row_schedule, (chosen, panels)),)
        schedule = Traced(lambda: _schedule(s.copy(), product, tile, layouts, packed, context))
        return Offer(params, schedule, versions=versions, decisions=(chosen, *packs))


def _constant(extent: arith.Expr) -> int | None:
    return extent.value if isinstance(extent, arith.Const) else None


def find_product(program: ir.LoopProgram) -> MatmulAxes | None:
    """Match a kernel as a matrix product; None if it is not a matrix product."""
    anchor = find_anchor(program)
    if anchor is None or anchor.before or len(anchor.reduced) != 1 or not anchor.spatial:
        return None
    factors = anchor.product or narrow_product(anchor)
    if factors is None or anchor.buffer.dtype.name not in ("float32", "int32"):
        return None
    left, right = factors
    k, n = anchor.reduced[0].var, anchor.spatial[-1].var
    if _constant(anchor.reduced[0].extent) in (0, 1) or n not in right.indices[-1:] or k not in right.indices[:-1]:
        return None
    if k not in left.indices or any(n in arith.free_vars(index) for index in (*left.indices, *right.indices[:-1])):
        return None
    if sum(k in arith.free_vars(index) for index in (*left.indices, *right.indices)) != 2:
        return None
    right_vars = right.free_vars()
    axes = range(len(anchor.spatial) - 1)
    shared = tuple(axis for axis in axes if anchor.spatial[axis].var in right_vars)
    free = [axis for axis in axes if axis not in shared]
    row = max(free, key=lambda axis: (_length(anchor.spatial[axis].extent), axis), default=None)
    return MatmulAxes(anchor, left, right, shared, tuple(axis for axis in free if axis != row), row)


def _length(extent: arith.Expr) -> float:
    constant = _constant(extent)
    return float("inf") if constant is None else constant


def _lanes(product: MatmulAxes, context: KernelContext) -> int:
    """Choose the lanes to use: all; half if the number of columns equals that; 0 (decline) for fewer columns. A partial last vector
    of a row costs less than half vectors."""
    widest = context.capabilities.vector_bits // 32
    columns = product.expected[1]
    if 2 * columns > widest:
        return widest
    return widest // 2 if widest > 2 and 2 * columns == widest else 0


def _layouts(
    program: ir.LoopProgram, merged: ir.LoopProgram, product: MatmulAxes, tile: Tile, inputs: tuple[InputInfo, ...]
) -> dict[ir.Buffer, Layout]:
    """Return the layouts of buffers: panels of the tile's columns for a constant right operand; row-major otherwise."""
    right = product.right.buffer
    if right not in merged.inputs or product.depth is None:
        return {}
    position = merged.inputs.index(right)
    if not inputs[position].constant or len(right.shape) != 2 or len(program.inputs[position].shape) != 2:
        return {}
    return {right: Layout(((0, product.depth), (1, tile.width)))}


def max_rows(rows: int | tuple[int, ...]) -> int:
    """Return the maximum of the likely row counts."""
    return rows if isinstance(rows, int) else max(rows)


def decide_tile(tiles: Sequence[Tile], best: Tile, context: KernelContext) -> tuple[Tile, Decision]:
    """Record the tile as a decision (vectors, rows) among `tiles`, with default `best`."""
    decision = context.decide("tile", ((tile.vectors, tile.rows) for tile in tiles), (best.vectors, best.rows))
    return Tile(best.lanes, *decision.numbers), decision


def _packs(product: MatmulAxes, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> tuple[Decision, ...]:
    """Decide whether to copy panels of the right operand before use; no decision if they cannot be copied."""
    rows, columns, depth = product.rows, product.columns, product.depth
    if product.right.buffer in layouts or rows is None or columns is None or depth is None:
        return ()
    size = product.right.buffer.dtype.bytes * depth * columns
    core = context.capabilities.core
    worth = rows >= core.costs.packed_rows and size >= core.costs.packed_share * core.l2_bytes
    return (context.decide("pack", (0, 1), int(worth)),)


def _schedule(
    s: Schedule, product: MatmulAxes, tile: Tile, layouts: dict[ir.Buffer, Layout], packed: bool, context: KernelContext
) -> Schedule:
    """Build the nest:

    for shared ..., columns:                  # parallel: see `share_out`
        panel = b                             # if copied: see `_packs`
        for free ..., rows:
            acc[row, vector, lane] = 0
            for groups of k:
                prefetch a part of the next panel
                for k:
                    acc += a * panel          # row and vector unrolled, lane vectorized
            out = after(acc)
    """
    anchor = product.anchor
    costs, matmul, final = context.capabilities.core.costs, anchor.block.name, accumulate_in_registers(s, anchor)
    if len(anchor.buffer.shape) > 1:
        # Align rows, so that the last vector of a row does not overlap the next row.
        s.storage_align(anchor.buffer.name if anchor.after else final, len(anchor.buffer.shape) - 2, tile.lanes)
    nest = tile_nest(s, product, tile, final)
    # With a single row, each panel is read once at memory speed anyway: no prefetch.
    streamed = bool(layouts) and nest.rows is not None and tile.rows > 1
    tiles = max(product.expected[0] // tile.rows, 1)
    if product.rows is None:
        tiles = min(tiles, costs.prefetch_tiles)
    outer, *inner = between_prefetches(s, nest.k, tile, tiles, costs) if streamed else (nest.k,)
    s.reorder(outer, *inner, *nest.tile_rows, nest.vector, nest.lane)
    if product.columns is None:
        s.annotate(nest.columns, REMAINDERS.name, tile.lanes)
    if product.rows_may_be_small and nest.rows is not None and layouts:
        s.annotate(nest.rows, REMAINDERS.name, 1)
    init = s.decompose_reduction(matmul, outer)
    for part in (init, matmul):
        mark_tile(s, *s.loops(part)[-2 - len(nest.tile_rows) :])
    more: dict[str, Layout] = {}
    if packed:
        more = _pack(s, product, tile, nest.columns, context)
    share_out(s, replace(nest, rows=None) if packed else nest, product, tile, context)
    for part in (init, matmul):
        s.apply(SUM_WHOLE_VECTORS, part, s.loops(part)[-1], tuple(buffer.name for buffer in layouts))
    lay_out(s, layouts, more)
    if streamed:
        s.stream(matmul, product.right.buffer.name, nest.columns, outer, expected=tiles)
    return s


def tile_nest(s: Schedule, product: MatmulAxes, tile: Tile, final: str) -> ProductNest:
    """Tile the loops and fuse the sum into the tile; returns the loops:

    for shared ..., columns, free ..., rows:
        for row, vector, lane, k: the sum
        for row, vector, lane: out = after(sum)       # unrolled, lane vectorized
    """
    matmul = product.anchor.block.name
    loops = axis_loops(s, final)
    n = loops[-1]
    assert n is not None
    m = None if product.row is None else loops[product.row]
    columns, vector, lane = s.split(n, (None, tile.vectors, tile.lanes))
    rows, row = (None, None) if m is None else s.split(m, (None, tile.rows))
    shared = present(*(loops[axis] for axis in product.shared))
    free = present(*(loops[axis] for axis in product.free))
    outside = [*shared, columns, *free, *present(rows)]
    s.reorder(*outside, *present(row), vector, lane)
    s.compute_at(matmul, outside[-1])
    mark_tile(s, *present(row), vector, lane)
    k = axis_loops(s, matmul)[-1]
    assert k is not None
    *tile_rows, n = [loop for loop in s.loops(matmul)[len(outside) :] if loop != k]
    vector, lane = s.split(n, (tile.vectors, tile.lanes))
    return ProductNest(tuple(shared), columns, tuple(free), rows, k, tuple(tile_rows), vector, lane)


def between_prefetches(s: Schedule, k: Var, tile: Tile, tiles: int, costs: CostConstants) -> tuple[Var, ...]:
    """Split the inner dimension of a product into the loop that prefetches the next panel over `tiles` row tiles, and
    `prefetch_steps` steps. Returns only `k` if these do not divide its extent, or would need bursts of more than `prefetch_burst`
    prefetches."""
    depth, steps = loop_extent(s, k), costs.prefetch_steps
    lines = steps * ELEMENT * tile.width / LINE
    divides = isinstance(depth, arith.Const) and depth.value > steps and depth.value % steps == 0
    return s.split(k, (None, steps)) if divides and lines <= costs.prefetch_burst * tiles else (k,)


def _pack(s: Schedule, product: MatmulAxes, tile: Tile, columns: Var, context: KernelContext) -> dict[str, Layout]:
    """Copy the right operand, one panel at a time, or all panels at once if several threads share them. Returns the copy's layout
    by name."""
    depth, rank = product.depth, len(product.right.indices)
    assert depth is not None
    block = s.cache_read(product.anchor.block.name, product.right.buffer.name)
    if context.threads == 1:
        s.compute_at(block, columns)
    first, *_, n = s.loops(block)[-rank:]
    _, lane = s.split(n, (None, tile.lanes))
    s.vectorize(lane)
    if context.threads != 1:
        s.parallel(first)
    k = product.right.indices.index(product.anchor.reduced[0].var)
    return {block: Layout(((k, depth), (rank - 1, tile.width)))}


def share_out(s: Schedule, nest: ProductNest, product: MatmulAxes, tile: Tile, context: KernelContext) -> None:
    """Distribute a product over threads: whole products of a batch if there are several; else columns, so that each thread reads
    separate panels and reuses each for all rows; or rows, if panels are too few and there are more row tiles."""
    if context.threads == 1:
        return
    if nest.shared:
        s.parallel(s.fuse(*nest.shared) if len(nest.shared) > 1 else nest.shared[0])
        return
    rows, columns, _ = product.expected
    panels, stripes = -(-columns // tile.width), -(-rows // tile.rows)
    too_few_panels = panels < context.capabilities.core.costs.product_panels * max(context.threads, 1)
    if too_few_panels and stripes > panels and not nest.free and nest.rows is not None:
        s.reorder(nest.rows, nest.columns)
        s.parallel(nest.rows)
    else:
        s.parallel(nest.columns)
