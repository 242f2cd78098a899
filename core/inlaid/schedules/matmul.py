"""Matrix product on vector CPUs: a register tile of rows times columns is accumulated over the whole inner dimension.

Sums are dot products on vectors (see `dot`): multiply-adds of `SUM_TYPES`, or instructions for narrow operands. The right
operand is read in contiguous panels as wide as a tile, K/g N g each for groups of g: a constant operand is packed at compile time;
a panel of any other operand is copied before its first use if an instruction needs it or enough rows use the panel.
"""

from __future__ import annotations

from inlaid.plugins.costs import CostConstants
from inlaid.schedules.collapse import collapsed
from inlaid.schedules.dot import VectorDot, begin_sum, find_factors, instructions, use_instruction
from inlaid.schedules.last_tile import SUM_WHOLE_VECTORS
from inlaid.schedules.register_tile import Tile, choose_tile, cycles, likely_counts, list_tiles
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
from inlaid.schedules.split_groups import SPLIT_GROUPS
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
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

SUM_TYPES = ("float32", "float64", "int32", "int64")
"""Element types of sums."""


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


@dataclass(frozen=True)
class _MatmulTiling:
    """A product, its dot product and its tile. `constant`: the right operand is packed at compile time; `copied`: panels of it are
    packed before use."""

    product: MatmulAxes
    dot: VectorDot
    tile: Tile
    constant: bool
    copied: bool

    @property
    def packed(self) -> Layout:
        """Layout of the packed right operand. Panels are contiguous if the depth is known."""
        k, n = self.product.anchor.reduced[0].var, len(self.product.right.indices) - 1
        axis, depth = self.product.right.indices.index(k), self.product.depth
        panel = () if depth is None else ((axis, _round_up(depth, self.dot.group)),)
        return Layout((*panel, (n, self.tile.width), *self.dot.interleaved(axis)))

    @property
    def streamed(self) -> bool:
        """Whether the next panel is prefetched. With a single row, each panel is read once at memory speed anyway. A constant of
        symbolic depth, such as a broadcast weight, has no constant number of cache lines."""
        return self.constant and self.product.depth is not None and self.product.row is not None and self.tile.rows > 1

    def tiles_per_prefetch(self, costs: CostConstants) -> int:
        """Return the number of row tiles over which the next panel is prefetched. An instruction has fewer steps, with more bytes
        each: one tile suffices."""
        tiles = 1 if self.dot.interleaves else max(self.product.expected[0] // self.tile.rows, 1)
        return tiles if self.product.rows is not None else min(tiles, costs.prefetch_tiles)


class MatmulRule:
    """Schedules out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]. Sums are in one of `SUM_TYPES`, and operands of that
    type or narrower; b may be constant."""

    name = "matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels other than products, fewer columns than half a vector, and empty results."""
        match = None if 0 in program.outputs[0].shape else _match(program, context)
        if match is None:
            return None
        s, product, dot = match
        constant = _is_constant(program, s.program, product, dot, inputs)
        tile, tile_decision = _choose_tile(product, dot, not constant and not dot.interleaves, context)
        packs = () if constant or dot.interleaves else _packs(product, context)
        plan = _MatmulTiling(product, dot, tile, constant, (dot.interleaves and not constant) or any(item.number for item in packs))
        layouts = {product.right.buffer: plan.packed} if constant else {}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in s.program.params)
        versions: tuple[Version, ...] = ()
        if constant and dot.peels and product.row is not None and product.rows is None:
            # A single row (each step of an LSTM with batch 1) needs more vectors per tile to hide the latency of additions.
            max_vectors = context.capabilities.core.costs.row_vectors
            panels = context.decide("panels", range(1, max_vectors + 1), max(max_vectors // tile.vectors, 1))
            row_plan = replace(plan, tile=replace(tile, vectors=panels.number * tile.vectors, rows=1))
            is_single_row = arith.compare("==", product.anchor.spatial[product.row].extent, 1)
            versions = (
                Version(is_single_row, Traced(lambda: _schedule(s.copy(), row_plan, layouts, context)), (tile_decision, panels)),
            )
        schedule = Traced(lambda: _schedule(s.copy(), plan, layouts, context))
        return Offer(params, schedule, versions=versions, decisions=(tile_decision, *packs))

    def estimate(self, rows: int, columns: int, depth: int, context: KernelContext) -> float:
        """Predict the cycles of a product in float32 on one core."""
        capabilities = context.capabilities
        lanes = capabilities.vector_bits // 32
        tile = choose_tile(rows, columns, depth, lanes, capabilities.vector_registers, capabilities.core)
        return depth * cycles(rows, columns, depth, tile, capabilities.core)


def _constant(extent: arith.Expr) -> int | None:
    return extent.value if isinstance(extent, arith.Const) else None


def _round_up(extent: int, size: int) -> int:
    """Round an extent up to a multiple of a size."""
    return -(-extent // size) * size


def _match(program: ir.LoopProgram, context: KernelContext) -> tuple[Schedule, MatmulAxes, VectorDot] | None:
    """Match a kernel as a matrix product, after merging its axes, and choose the widest dot product whose lanes the columns fill:
    an instruction, else a multiply-add. The groups of a 1x1 convolution of narrow operands are a batch of products."""
    if not context.capabilities.vector_bits and not context.intrinsics:
        return None
    s = collapsed(program, context.intrinsics)
    anchor = find_anchor(s.program)
    if anchor is None:
        return None
    product, dots = find_product(anchor), instructions(anchor, context)
    multiply_adds = [] if product is None else _multiply_adds(product, context)
    if product is None and dots:
        s = collapsed(program, context.intrinsics, (SPLIT_GROUPS, min(dot.lanes for dot in dots), dots[-1].group))
        anchor = find_anchor(s.program)
        assert anchor is not None
        product, dots = find_product(anchor), instructions(anchor, context)
    if product is None:
        return None
    filled_dots = [dot for dot in dots if dot.lanes <= product.expected[1]] if _is_plain(s.program, product) else []
    return next(((s, product, dot) for dot in (*filled_dots, *multiply_adds)), None)


def find_product(anchor: Anchor) -> MatmulAxes | None:
    """Match a kernel's reduction as a matrix product; None if it is not a matrix product."""
    if anchor.before or len(anchor.reduced) != 1 or not anchor.spatial:
        return None
    factors = find_factors(anchor)
    if factors is None or anchor.buffer.dtype.name not in SUM_TYPES:
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


def _is_plain(program: ir.LoopProgram, product: MatmulAxes) -> bool:
    """Test whether the left operand is contiguous along k, and the right operand is an input that is row-major in (k, n)."""
    k, n = product.anchor.reduced[0].var, product.anchor.spatial[-1].var
    left, right = product.left, product.right
    return (
        left.indices[-1] == k
        and right.indices[-2:] == (k, n)
        and right.buffer in program.inputs
        and left.buffer is not right.buffer
    )


def _multiply_adds(product: MatmulAxes, context: KernelContext) -> list[VectorDot]:
    """Return the multiply-add to use, if any: of whole vectors if columns fill more than half a vector, of half vectors if they
    fill exactly half. A partial last vector of a row costs less than half vectors."""
    widest = context.capabilities.vector_bits // product.anchor.buffer.dtype.bits
    columns = product.expected[1]
    if 0 < widest < 2 * columns:
        return [VectorDot(widest)]
    return [VectorDot(widest // 2)] if widest > 2 and 2 * columns == widest else []


def _is_constant(
    program: ir.LoopProgram, merged_program: ir.LoopProgram, product: MatmulAxes, dot: VectorDot, inputs: tuple[InputInfo, ...]
) -> bool:
    """Test whether the right operand is a constant matrix that can be packed. Multiply-adds read a constant of symbolic depth, such
    as a broadcast weight, unpacked."""
    right = product.right.buffer
    if right not in merged_program.inputs or (product.depth is None and not dot.interleaves):
        return False
    position = merged_program.inputs.index(right)
    return inputs[position].constant and len(right.shape) == len(program.inputs[position].shape) == 2


def _choose_tile(product: MatmulAxes, dot: VectorDot, unpacked: bool, context: KernelContext) -> tuple[Tile, Decision]:
    """Choose the tile that minimizes cycles, and record it as a decision (vectors, rows). `unpacked`: the right operand is read as
    it lies."""
    capabilities, threads = context.capabilities, 1 if product.shared else max(context.threads, 1)
    rows, columns, depth = product.likely_rows(capabilities.core.costs), product.expected[1], dot.groups(product.expected[2])
    registers = capabilities.vector_registers - dot.scratch
    best = choose_tile(rows, columns, depth, dot.lanes, registers, capabilities.core, threads, dot.interleaves, unpacked)
    tiles = list_tiles(max(likely_counts(rows)), columns, dot.lanes, registers, capabilities.core, unpacked)
    decision = context.decide("tile", ((tile.vectors, tile.rows) for tile in tiles), (best.vectors, best.rows))
    return Tile(best.lanes, *decision.numbers), decision


def _packs(product: MatmulAxes, context: KernelContext) -> tuple[Decision, ...]:
    """Decide whether to copy panels of the right operand before use; no decision if they cannot be copied."""
    rows, columns, depth = product.rows, product.columns, product.depth
    if rows is None or columns is None or depth is None:
        return ()
    size = product.right.buffer.dtype.bytes * depth * columns
    cpu_core = context.capabilities.core
    is_worthwhile = rows >= cpu_core.costs.packed_rows and size >= cpu_core.costs.packed_share * cpu_core.l2_bytes
    return (context.decide("pack", (0, 1), int(is_worthwhile)),)


def _schedule(s: Schedule, plan: _MatmulTiling, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> Schedule:
    """Build the nest:

    for shared ..., columns:                  # parallel: see `share_out`
        panel = b                             # if copied: see `_pack`
        for free ..., rows:
            acc[row, vector, lane] = 0
            for groups of k:
                prefetch a part of the next panel
                for k:
                    acc += dot(a, panel)      # row and vector unrolled, lane vectorized
            out = after(acc)
    """
    product, tile, dot, costs = plan.product, plan.tile, plan.dot, context.capabilities.core.costs
    matmul, right = product.anchor.block.name, _copies(s, plan, context)
    anchor = find_anchor(s.program)
    assert anchor is not None
    final = accumulate_in_registers(s, anchor)
    if dot.peels and len(anchor.buffer.shape) > 1:
        # Align rows, so that the last vector of a row does not overlap the next row.
        s.storage_align(anchor.buffer.name if anchor.after else final, len(anchor.buffer.shape) - 2, tile.lanes)
    nest = tile_nest(s, product, tile, final)
    tiles = plan.tiles_per_prefetch(costs)
    if dot.interleaves:
        outer, *inner = s.split(nest.k, (None, dot.group))
        s.reorder(outer, *nest.tile_rows, nest.vector, nest.lane, *inner)
    else:
        outer, *inner = between_prefetches(s, nest.k, tile, tiles, costs) if plan.streamed else (nest.k,)
        s.reorder(outer, *inner, *nest.tile_rows, nest.vector, nest.lane)
    if dot.peels and product.columns is None:
        s.annotate(nest.columns, REMAINDERS.name, tile.lanes)
    if dot.peels and product.rows_may_be_small and nest.rows is not None and layouts:
        s.annotate(nest.rows, REMAINDERS.name, 1)
    local_layouts: dict[str, Layout] = {}
    if plan.copied:
        local_layouts[right] = plan.packed
        _pack(s, right, plan, nest.columns, context)
    init = begin_sum(s, matmul, outer, (*nest.tile_rows, nest.vector), nest.lane, dot)
    share_out(s, nest if dot.interleaves or not plan.copied else replace(nest, rows=None), product, tile, context)
    for block in (init, matmul) if dot.peels else ():
        s.apply(SUM_WHOLE_VECTORS, block, s.loops(block)[-1], tuple(buffer.name for buffer in layouts))
    lay_out(s, layouts, local_layouts)
    use_instruction(s, nest.lane, dot)
    if plan.streamed:
        name = next(block.name for block in collect_blocks(s.program) if any(region.buffer.name == right for region in block.reads))
        s.stream(name, right, nest.columns, outer, expected=tiles)
    return s


def _copies(s: Schedule, plan: _MatmulTiling, context: KernelContext) -> str:
    """Copy operands that do not fill whole groups or panels of an instruction, with zero padding, and a right operand that is
    packed before use. Returns the name of the right operand or its copy."""
    anchor, earlier_blocks = plan.product.anchor, s.blocks
    left, right = plan.product.left.buffer.name, plan.product.right.buffer.name
    sizes = {anchor.spatial[-1]: plan.tile.width, anchor.reduced[0]: plan.dot.group} if plan.dot.interleaves else {}
    multiples = tuple(sizes.get(item, 1) for item in anchor.block.iters)
    if any(arith.simplify(item.extent % size) != arith.ZERO for item, size in sizes.items()):
        s.pad(anchor.block.name, multiples, (right,) if plan.constant else ())
    copies = {
        region.buffer.name: block
        for block in collect_blocks(s.program)
        if block.name not in earlier_blocks
        for region in block.reads
    }
    if left in copies:
        loops = s.loops(copies[left].name)
        _, lane = s.split(loops[-1], (None, context.capabilities.vector_bits // 8 // plan.product.left.dtype.bytes))
        s.vectorize(lane)
        if context.threads != 1 and len(loops) > 1:
            s.parallel(loops[0])
    if not plan.copied:
        return right
    return copies[right].name if right in copies else s.cache_read(anchor.block.name, right)


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


def _pack(s: Schedule, block: str, plan: _MatmulTiling, columns: Var, context: KernelContext) -> None:
    """Schedule the copy that packs the right operand into panels: one panel at a time, or all panels at once if several threads
    share them."""
    if context.threads == 1:
        s.compute_at(block, columns)
    k, n = s.loops(block)[-2:]
    n, lane = s.split(n, (None, plan.dot.lanes))
    if plan.dot.interleaves:
        k, part = s.split(k, (None, plan.dot.group))
        s.reorder(k, n, lane, part)
        s.unroll(part)
    s.vectorize(lane)
    if context.threads != 1:
        s.parallel(s.loops(block)[0])


def share_out(s: Schedule, nest: ProductNest, product: MatmulAxes, tile: Tile, context: KernelContext) -> None:
    """Distribute a product over threads: whole products of a batch if there are several; else columns, so that each thread reads
    separate panels and reuses each for all rows; or rows, if panels are too few and there are more row tiles."""
    if context.threads == 1:
        return
    if nest.shared:
        s.parallel(s.fuse(*nest.shared) if len(nest.shared) > 1 else nest.shared[0])
        return
    rows, columns, _ = product.expected
    panels, row_tiles = -(-columns // tile.width), -(-rows // tile.rows)
    too_few_panels = panels < context.capabilities.core.costs.product_panels * max(context.threads, 1)
    if too_few_panels and row_tiles > panels and not nest.free and nest.rows is not None:
        s.reorder(nest.rows, nest.columns)
        s.parallel(nest.rows)
    else:
        s.parallel(nest.columns)
