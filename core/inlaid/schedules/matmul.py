"""Matrix products on vector CPUs: a tile of rows times columns is accumulated in registers over the whole inner dimension.

A right operand is read in panels as wide as a tile, each of which lies in one run of memory: a constant is packed so when the model
is compiled, any other panel is copied before its first use where many rows use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlaid import arith
from inlaid.arith import Var
from inlaid.schedules.collapse import collapsed
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.last_tile import SUM_WHOLE_VECTORS
from inlaid.schedules.register_tile import LONGEST_ROW, Tile, choose_tile, tiles_of
from inlaid.schedules.rule import Decision, Given, KernelContext, Offer, Traced, Version
from inlaid.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    find_anchor,
    lay_out,
    mark_tile,
    present,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid.types import ROW_MAJOR, Layout

PACKED_ROWS = 64
"""Rows from which on copying a panel of the right operand pays: it costs about four cycles a row of the panel for each vector."""
PACKED_SHARE = 1
"""Of the second-level cache: a right operand that it does not hold beside what else is read, so that rows far apart are fetched
again and again: of 1 MiB, unpacked, a product of 512 runs at 95 % of peak, one of 1024 at 49 %; packed at 90 % and 94 %."""

AHEAD = 4
"""Tiles of rows of an unknown number in which the next panel is fetched. Memory does not give it within the first one: products of
57 to 197 rows took 1.04 to 1.10 of the time of a known number, now 1.01 to 1.04. Spread over more it comes late for few rows."""
FEW_ROWS = 8
"""One dimension alone, such as a batch, may well make as few rows as these: with code for each number that a tile of 8 leaves, 5 to
7 rows take 1.05 of the time of a known number; in tiles and strips of 4 they took 1.2."""
SHARES = 4
"""Panels for each thread from which on columns are shared out: one panel more or less is then a quarter of a thread's time at most.
Rows shared out read all panels again for each tile of rows: 1.7 times ONNX Runtime's time for 1024 on 2 threads."""


@dataclass(frozen=True)
class Product:
    """out[..., m, ..., n] = sum over k of a * b: the axes of a product, by their places among the anchor's spatial ones.

    `shared` axes are those of the right operand besides n, `free` ones those that it lacks, besides `row`, the longest of them.
    """

    anchor: Anchor
    left: ir.Load
    right: ir.Load
    shared: tuple[int, ...]
    free: tuple[int, ...]
    row: int | None

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where that is not known."""
        return 1 if self.row is None else _known(self.anchor.spatial[self.row].extent)

    @property
    def expected(self) -> tuple[int, int, int]:
        """Rows, columns and the extent of the inner dimension; representative sizes of those that are symbolic."""
        spatial = self.anchor.spatial
        rows = 1 if self.row is None else arith.size_hint(spatial[self.row].extent)
        return rows, arith.size_hint(spatial[-1].extent), arith.size_hint(self.anchor.reduced[0].extent)

    @property
    def few_rows(self) -> bool:
        """Whether there may well be only a few rows: one symbolic dimension makes them, such as a batch. Several make many."""
        return self.row is not None and isinstance(self.anchor.spatial[self.row].extent, arith.SizeVar)

    @property
    def likely_rows(self) -> int | tuple[int, ...]:
        """How many rows there are; where that is symbolic, the powers of two up to the representative size, and where they may well
        be few, each number up to `FEW_ROWS`: tiles that are good for these serve few rows as well as many. No tile then holds all
        rows that there ever are."""
        most = self.expected[0]
        if self.rows is not None or most < 2:
            return most
        powers = tuple(1 << power for power in range(1, most.bit_length()))
        return tuple(sorted({*powers, *range(2, min(most, FEW_ROWS) + 1)})) if self.few_rows else powers

    @property
    def columns(self) -> int | None:
        """How many columns there are; None where that is not known."""
        return _known(self.anchor.spatial[-1].extent)

    @property
    def depth(self) -> int | None:
        """The extent of the inner dimension; None where that is not known."""
        return _known(self.anchor.reduced[0].extent)


@dataclass(frozen=True)
class ProductNest:
    """The loops of a product over tiles: outside of the tile, those of `Product`'s axes; inside, what is in registers."""

    shared: tuple[Var, ...]
    columns: Var
    free: tuple[Var, ...]
    rows: Var | None
    k: Var
    tile_rows: tuple[Var, ...]
    vector: Var
    lane: Var


class MatmulRule:
    """out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] of float32, or of what is widened to float32 or int32."""

    name = "matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines other reductions, and results with fewer columns than half a vector or without elements."""
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
        rows, able = product.likely_rows, context.capabilities
        best = choose_tile(rows, *product.expected[1:], lanes, able.vector_registers, able.core, threads)
        tiles = tiles_of(most(rows), product.expected[1], lanes, able.vector_registers, able.core.l1_ways)
        tile, chosen = decide_tile(tiles, best, context)
        layouts = _layouts(program, merged, product, tile, given)
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in merged.params)
        packs = _packs(product, layouts, context)
        packed = any(decision.number for decision in packs)
        versions: tuple[Version, ...] = ()
        if layouts and product.row is not None and product.rows is None:
            # One row, which an LSTM of one sequence has in each step, would wait for its own additions.
            panels = context.decide("panels", range(1, LONGEST_ROW + 1), max(LONGEST_ROW // tile.vectors, 1))
            low = replace(tile, vectors=panels.number * tile.vectors, rows=1)
            single = arith.compare("==", product.anchor.spatial[product.row].extent, 1)
            made = Traced(lambda: _schedule(s.copy(), product, low, layouts, packed, context))
            versions = (Version(single, made, (chosen, panels)),)
        schedule = Traced(lambda: _schedule(s.copy(), product, tile, layouts, packed, context))
        return Offer(params, schedule, versions=versions, decisions=(chosen, *packs))


def _known(extent: arith.Expr) -> int | None:
    return extent.value if isinstance(extent, arith.Const) else None


def find_product(program: ir.LoopProgram) -> Product | None:
    """The matrix product that a kernel is; None where it is none."""
    anchor = find_anchor(program)
    if anchor is None or anchor.before or len(anchor.reduced) != 1 or not anchor.spatial:
        return None
    factors = anchor.product or narrow_product(anchor)
    if factors is None or anchor.buffer.dtype.name not in ("float32", "int32"):
        return None
    left, right = factors
    k, n = anchor.reduced[0].var, anchor.spatial[-1].var
    if _known(anchor.reduced[0].extent) in (0, 1) or n not in right.indices[-1:] or k not in right.indices[:-1]:
        return None
    if k not in left.indices or any(n in arith.free_vars(index) for index in (*left.indices, *right.indices[:-1])):
        return None
    if sum(k in arith.free_vars(index) for index in (*left.indices, *right.indices)) != 2:
        return None
    used = right.free_vars()
    places = range(len(anchor.spatial) - 1)
    shared = tuple(place for place in places if anchor.spatial[place].var in used)
    free = [place for place in places if place not in shared]
    row = max(free, key=lambda place: (_length(anchor.spatial[place].extent), place), default=None)
    return Product(anchor, left, right, shared, tuple(place for place in free if place != row), row)


def _length(extent: arith.Expr) -> float:
    known = _known(extent)
    return float("inf") if known is None else known


def _lanes(product: Product, context: KernelContext) -> int:
    """Lanes of a vector: all that there are, half of them where columns fill no more, and 0 for fewer columns. The last vector of
    a row may be cut off, which costs less than vectors of half the lanes."""
    widest = context.capabilities.vector_bits // 32
    columns = product.expected[1]
    if 2 * columns > widest:
        return widest
    return widest // 2 if widest > 2 and 2 * columns == widest else 0


def _layouts(
    program: ir.LoopProgram, merged: ir.LoopProgram, product: Product, tile: Tile, given: tuple[Given, ...]
) -> dict[ir.Buffer, Layout]:
    """The right operand in panels of the tile's columns, where it is a constant matrix."""
    right = product.right.buffer
    if right not in merged.inputs or product.depth is None:
        return {}
    place = merged.inputs.index(right)
    if not given[place].constant or len(right.shape) != 2 or len(program.inputs[place].shape) != 2:
        return {}
    return {right: Layout(((0, product.depth), (1, tile.width)))}


def most(rows: int | tuple[int, ...]) -> int:
    """The greatest number of rows that is likely."""
    return rows if isinstance(rows, int) else max(rows)


def decide_tile(tiles: Sequence[Tile], best: Tile, context: KernelContext) -> tuple[Tile, Decision]:
    """The tile that is decided, by vectors and rows."""
    decision = context.decide("tile", ((tile.vectors, tile.rows) for tile in tiles), (best.vectors, best.rows))
    return Tile(best.lanes, *decision.numbers), decision


def _packs(product: Product, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> tuple[Decision, ...]:
    """Whether panels of the right operand are copied before they are used; none where they cannot be."""
    rows, columns, depth = product.rows, product.columns, product.depth
    if product.right.buffer in layouts or rows is None or columns is None or depth is None:
        return ()
    size = product.right.buffer.dtype.bytes * depth * columns
    worth = rows >= PACKED_ROWS and size >= PACKED_SHARE * context.capabilities.core.l2_bytes
    return (context.decide("pack", (0, 1), int(worth)),)


def _schedule(
    s: Schedule, product: Product, tile: Tile, layouts: dict[ir.Buffer, Layout], packed: bool, context: KernelContext
) -> Schedule:
    """
    for shared ..., columns:                  # parallel over what is longest
        panel = b                             # where it is worth it
        for free ..., rows:
            acc[row, vector, lane] = 0
            for k:
                prefetch a part of the next panel
                acc += a * panel              # row and vector unrolled, lane vectorised
            out = after(acc)
    """
    anchor = product.anchor
    matmul, final = anchor.block.name, accumulate_in_registers(s, anchor)
    if len(anchor.buffer.shape) > 1:
        # A vector that is cut off at the end of a row reaches into no other row.
        s.storage_align(anchor.buffer.name if anchor.after else final, len(anchor.buffer.shape) - 2, tile.lanes)
    nest = place_tile(s, product, tile, final)
    s.reorder(nest.k, *nest.tile_rows, nest.vector, nest.lane)
    if product.columns is None:
        s.annotate(nest.columns, REMAINDERS.name, tile.lanes)
    if product.few_rows and nest.rows is not None and layouts:
        s.annotate(nest.rows, REMAINDERS.name, 1)
    init = s.decompose_reduction(matmul, nest.k)
    for part in (init, matmul):
        mark_tile(s, *s.loops(part)[-2 - len(nest.tile_rows) :])
    more: dict[str, Layout] = {}
    if packed:
        more = _pack(s, product, tile, nest.columns, context)
    share_out(s, replace(nest, rows=None) if packed else nest, product, tile, context)
    for part in (init, matmul):
        s.apply(SUM_WHOLE_VECTORS, part, s.loops(part)[-1], tuple(buffer.name for buffer in layouts))
    lay_out(s, layouts, more)
    if layouts and nest.rows is not None and tile.rows > 1:
        # One row alone reads each panel once, at the speed of memory, as it is.
        tiles = min(max(product.expected[0] // tile.rows, 1), AHEAD)
        s.stream(matmul, product.right.buffer.name, nest.columns, nest.k, expected=tiles)
    return s


def place_tile(s: Schedule, product: Product, tile: Tile, final: str) -> ProductNest:
    """
    for shared ..., columns, free ..., rows:
        for row, vector, lane, k: the sum
        for row, vector, lane: out = after(sum)       # unrolled, lane vectorised
    """
    matmul = product.anchor.block.name
    loops = axis_loops(s, final)
    n = loops[-1]
    assert n is not None
    m = None if product.row is None else loops[product.row]
    columns, vector, lane = s.split(n, (None, tile.vectors, tile.lanes))
    rows, row = (None, None) if m is None else s.split(m, (None, tile.rows))
    shared = present(*(loops[place] for place in product.shared))
    free = present(*(loops[place] for place in product.free))
    outside = [*shared, columns, *free, *present(rows)]
    s.reorder(*outside, *present(row), vector, lane)
    s.compute_at(matmul, outside[-1])
    mark_tile(s, *present(row), vector, lane)
    k = axis_loops(s, matmul)[-1]
    assert k is not None
    *tile_rows, n = [loop for loop in s.loops(matmul)[len(outside) :] if loop != k]
    vector, lane = s.split(n, (tile.vectors, tile.lanes))
    return ProductNest(tuple(shared), columns, tuple(free), rows, k, tuple(tile_rows), vector, lane)


def _pack(s: Schedule, product: Product, tile: Tile, columns: Var, context: KernelContext) -> dict[str, Layout]:
    """Copy the right operand: a panel at a time, or, for several threads, which share it, all at once. How the copy lies."""
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


def share_out(s: Schedule, nest: ProductNest, product: Product, tile: Tile, context: KernelContext) -> None:
    """Whole products in parallel where there are several; else columns, so that each thread reads panels of its own and uses each
    for all rows, unless rows are more and panels too few to share out."""
    if context.threads == 1:
        return
    if nest.shared:
        s.parallel(s.fuse(*nest.shared) if len(nest.shared) > 1 else nest.shared[0])
        return
    rows, columns, _ = product.expected
    panels, stripes = -(-columns // tile.width), -(-rows // tile.rows)
    few = panels < SHARES * max(context.threads, 1)
    if few and stripes > panels and not nest.free and nest.rows is not None:
        s.reorder(nest.rows, nest.columns)
        s.parallel(nest.rows)
    else:
        s.parallel(nest.columns)
