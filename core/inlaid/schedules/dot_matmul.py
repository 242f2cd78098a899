"""Matrix product of narrow operands by dot-product instructions, over a register tile of rows times columns.

The right operand is packed in panels as wide as a tile, K/g N g each: a constant operand at compile time, with zero padding; any
other operand at run time, each panel before its first use.
"""

from __future__ import annotations

from inlaid.schedules.collapse import collapsed
from inlaid.schedules.dot import DotTile, dots_for, with_dots
from inlaid.schedules.matmul import MatmulAxes, decide_tile, find_product, share_out, tile_nest
from inlaid.schedules.register_tile import Tile, cycles, list_tiles
from inlaid.schedules.shape import accumulate_in_registers, find_anchor
from inlaid.schedules.split_groups import SPLIT_GROUPS
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import Dot
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class _DotMatmulTiling:
    """A product, its instruction and its tile. `constant`: the right operand is packed at compile time."""

    product: MatmulAxes
    dot: Dot
    tile: Tile
    constant: bool
    decision: Decision

    @property
    def packed(self) -> Layout:
        """Layout of the right operand for the instruction. Panels are contiguous if the depth is known."""
        k, n = self.product.anchor.reduced[0].var, len(self.product.right.indices) - 1
        depth_axis, depth = self.product.right.indices.index(k), self.product.depth
        panel = () if depth is None else ((depth_axis, _round_up(depth, self.dot.group)),)
        return Layout((*panel, (n, self.tile.width), (depth_axis, self.dot.group)))


class DotMatmulRule:
    """Schedules out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] for narrow operands; b may be constant."""

    name = "dot_matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines products without an instruction, with fewer columns than lanes, or with empty results."""
        if not context.intrinsics or 0 in program.outputs[0].shape:
            return None
        right = {intrinsic.semantics.params[1].dtype for intrinsic in context.intrinsics if len(intrinsic.semantics.params) > 1}
        if right.isdisjoint(buffer.dtype for buffer in program.inputs):
            return None
        s = collapsed(program, context.intrinsics)
        product = find_product(s.program)
        if product is None and (anchor := find_anchor(s.program)) and (dots := dots_for(anchor, context)):
            s = collapsed(program, context.intrinsics, (SPLIT_GROUPS, min(dot.lanes for dot in dots), dots[-1].group))
            product = find_product(s.program)
        merged = s.program
        if product is None or not _is_plain(merged, product):
            return None
        dot = next((dot for dot in dots_for(product.anchor, context) if dot.lanes <= product.expected[1]), None)
        if dot is None:
            return None
        position = merged.inputs.index(product.right.buffer)
        constant = inputs[position].constant and len(product.right.indices) == len(program.inputs[position].shape) == 2
        tile, decision = _choose_tile(product, dot, context)
        plan = _DotMatmulTiling(product, dot, tile, constant, decision)
        layouts = {product.right.buffer: plan.packed} if constant else {}
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in merged.params)
        return Offer(params, Traced(lambda: _schedule(s.copy(), plan, layouts, context)), decisions=(decision,))


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


def _round_up(extent: int, size: int) -> int:
    """Round an extent up to a multiple of a size."""
    return -(-extent // size) * size


def _choose_tile(product: MatmulAxes, dot: Dot, context: KernelContext) -> tuple[Tile, Decision]:
    """Choose the tile that minimizes cycles. A partial panel of columns costs as much as a full one."""
    _, columns, depth = product.expected
    rows = product.likely_rows(context.capabilities.core.costs)
    counts = (rows,) if isinstance(rows, int) else rows
    threads = 1 if product.shared else max(context.threads, 1)
    able = context.capabilities
    tiles = list_tiles(max(counts), columns, dot.lanes, able.vector_registers - dot.intrinsic.scratch, able.core)
    if max(counts) == 1:
        # Panels are read at memory speed; starting a panel costs about as much as one vector.
        best = min(tiles, key=lambda tile: -(-columns // tile.width) * (tile.vectors + 1))
        return decide_tile(tiles, best, context)
    steps = -(-depth // dot.group)

    def cost(tile: Tile) -> float:
        padded_columns = _round_up(columns, tile.width)
        return sum(cycles(count, padded_columns, steps, tile, able.core, threads) / count for count in counts)

    return decide_tile(tiles, min(tiles, key=cost), context)


def _schedule(s: Schedule, plan: _DotMatmulTiling, layouts: dict[ir.Buffer, Layout], context: KernelContext) -> Schedule:
    """Build the nest:

    for shared ..., columns:                  # parallel: see `share_out`
        panel = b                             # if b is not constant
        for free ..., rows:
            total[row, vector, lane] = 0
            for group of k:
                prefetch a part of the next panel
                dot(a, panel, total)          # row and vector unrolled
            out = after(total)
    """
    product, tile, matmul = plan.product, plan.tile, plan.product.anchor.block.name
    copied = _copies(s, plan, context)
    right = copied or product.right.buffer.name
    anchor = find_anchor(s.program)
    assert anchor is not None
    final = accumulate_in_registers(s, anchor)
    nest = tile_nest(s, product, tile, final)
    k, part = s.split(nest.k, (None, plan.dot.group))
    s.reorder(k, *nest.tile_rows, nest.vector, nest.lane, part)
    more: dict[str, Layout] = {}
    if copied is not None:
        more[right] = plan.packed
        _interleave(s, copied, plan, nest.columns, context)
    share_out(s, nest, product, tile, context)
    dots = DotTile(plan.dot, tile.vectors, tile.rows)
    with_dots(s, matmul, k, (*nest.tile_rows, nest.vector), nest.lane, dots, layouts, more)
    # With a single row, each panel is read once at memory speed anyway: no prefetch. A constant of symbolic depth, such as a
    # broadcast weight, has no constant number of cache lines.
    if plan.constant and product.depth is not None and nest.rows is not None and tile.rows > 1:
        name = next(block.name for block in collect_blocks(s.program) if any(region.buffer.name == right for region in block.reads))
        s.stream(name, right, nest.columns, k)
    return s


def _copies(s: Schedule, plan: _DotMatmulTiling, context: KernelContext) -> str | None:
    """Copy operands that do not fill whole groups or panels, with zero padding, and a right operand that is not constant. Returns
    the name of the right operand's copy, None if it is not copied."""
    anchor, earlier_blocks = plan.product.anchor, s.blocks
    left, right = plan.product.left.buffer.name, plan.product.right.buffer.name
    sizes = {anchor.spatial[-1]: plan.tile.width, anchor.reduced[0]: plan.dot.group}
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
    if plan.constant:
        return None
    return copies[right].name if right in copies else s.cache_read(anchor.block.name, right)


def _interleave(s: Schedule, block: str, plan: _DotMatmulTiling, columns: Var, context: KernelContext) -> None:
    """Pack the right operand in groups: one panel at a time, or all panels at once if several threads share them."""
    if context.threads == 1:
        s.compute_at(block, columns)
    k, n = s.loops(block)[-2:]
    k, part = s.split(k, (None, plan.dot.group))
    n, lane = s.split(n, (None, plan.dot.lanes))
    s.reorder(k, n, lane, part)
    s.unroll(part)
    s.vectorize(lane)
    if context.threads != 1:
        s.parallel(s.loops(block)[0])
