"""Winograd convolution on vector CPUs: transform the data, one matrix product per tile element, transform the result.

Integer and bfloat16 products use dot-product instructions, which sum groups of neighboring input channels.

Activations have layout N C/v H W v with v lanes per vector; transformed weights are packed in panels of the product's columns.
Tiles are processed in stripes, so that intermediate data stays in a cache; transforms and products accumulate in registers. Batch,
height and width may be symbolic; images that are small at run time have a version of their own (see `small_images`).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from inlaid.ops.winograd import INTEGER, TRANSFORMS, WINDOW
from inlaid.plugins.costs import CostConstants
from inlaid.schedules.conv import choose_pixels
from inlaid.schedules.conv_sizes import ConvSizes
from inlaid.schedules.dot import VectorDot, begin_sum, find_factors, use_instruction
from inlaid.schedules.matmul import between_prefetches
from inlaid.schedules.register_tile import Tile
from inlaid.schedules.shape import (
    Anchor,
    axis_loops,
    constant_extent,
    find_anchor,
    inline_blocks,
    lay_out,
    loop_extent,
    mark_tile,
    present,
)
from inlaid.schedules.small_images import WinogradCost, direct_version
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import find_dots
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout, dtype

ROUNDED = (2,)
"""Tiles whose transformed data may be rounded to bfloat16: their products have 1.9 times the error of direct ones in root mean
square, for uncorrelated data; tiles of 4 have about ten times."""


@dataclass(frozen=True)
class WinogradPlan:
    """Parameters of a Winograd convolution: tiles of `tile` x `tile` outputs, vector lanes of input and output channels, tiles per
    `stripe`, and the register tile of the `product`. `cycles` is the predicted time on one core with weights in its caches, and
    `tile_cycles` that of a tile."""

    tile: int
    lanes_in: int
    lanes_out: int
    stripe: int
    product: Tile
    cycles: float
    tile_cycles: float
    dot: VectorDot


def plan_winograd(
    batch: Dim, inputs: int, outputs: int, height: Dim, width: Dim, tile: int, context: KernelContext, dtype_name: str = "float32"
) -> WinogradPlan | None:
    """Return the cheapest plan of `winograd_plans`; None if there are no plans."""
    return min(
        winograd_plans(batch, inputs, outputs, height, width, tile, context, dtype_name), key=attrgetter("cycles"), default=None
    )


def winograd_plans(
    batch: Dim, inputs: int, outputs: int, height: Dim, width: Dim, tile: int, context: KernelContext, dtype_name: str = "float32"
) -> list[WinogradPlan]:
    """Enumerate plans of an element type, one per stripe size, for results of `height` x `width`, with size hints for symbolic
    dimensions. Empty if channels do not fill vectors or a side of the result is less than two tiles."""
    lanes_in, lanes_out = _lanes(inputs, context), _lanes(outputs, context)
    down, across = (-(-arith.size_hint(side, arith.IMAGE_SIDE) // tile) for side in (height, width))
    dot = _dot(dtype_name, lanes_out, context)
    if not lanes_in or not lanes_out or min(down, across) < 2 or dot is None or lanes_in % dot.group:
        return []
    size, tile_elements, count, depth = dtype(dtype_name).bytes, (tile + 2) ** 2, down * across, dot.groups(inputs)
    weight_bytes = size * tile_elements * inputs * outputs
    tile_bytes = tile_elements * (size * inputs + 4 * outputs)
    costs = context.capabilities.core.costs
    transform = costs.transform_in_cycles * inputs / lanes_in + costs.transform_out_cycles * outputs / lanes_out
    transform_cycles = tile_elements * count * transform
    registers, core = context.capabilities.vector_registers - dot.scratch, context.capabilities.core
    is_static = isinstance(height, int) and isinstance(width, int)
    if is_static:
        rows, stripes = 0, [stripe for stripe in range(2, count + 1) if count % stripe == 0]
    else:
        large_rows, small_rows = (
            choose_pixels(outputs // lanes_out, 1, max_rows, depth, lanes_out, registers, core)[0].pixels
            for max_rows in (core.l1_ways, costs.small_tile_rows)
        )
        fits_in_l2 = weight_bytes + 2 * large_rows * tile_bytes <= core.l2_bytes
        rows, stripes = (
            (small_rows, [2 * small_rows]) if fits_in_l2 else (large_rows, [-(-costs.symbolic_stripe // large_rows) * large_rows])
        )
    plans = []
    for stripe in stripes:
        if stripe * tile_bytes > core.llc_bytes and stripe > stripes[0]:
            break
        run = stripe if is_static else rows
        chosen_tile, cycles = choose_pixels(outputs // lanes_out, 1, run, depth, lanes_out, registers, core)
        # Equal tiles: a remainder of few rows is bound by addition latency (16 rows as 12 + 4 take 1.25 times the time of 8 + 8).
        product = Tile(lanes_out, chosen_tile.vectors, -(-run // -(-run // chosen_tile.pixels)))
        full_runs, rest = divmod(count, run)
        edge_cycles = choose_pixels(outputs // lanes_out, 1, rest, depth, lanes_out, registers, core)[1] if rest else 0
        product_cycles = tile_elements * (full_runs * cycles + edge_cycles)
        stripe_bytes = min(stripe, count) * tile_bytes
        if weight_bytes + stripe_bytes > core.l2_bytes:
            product_cycles = max(product_cycles, weight_bytes / core.llc_rate * -(-count // stripe))
        spill_cycles = 2 * tile_bytes * count / core.llc_rate if stripe_bytes > core.l2_bytes else 0
        image_cycles = product_cycles + transform_cycles + spill_cycles
        total_cycles = arith.size_hint(batch) * image_cycles
        plans.append(WinogradPlan(tile, lanes_in, lanes_out, stripe, product, total_cycles, image_cycles / count, dot))
    return plans


def _lanes(channels: int, context: KernelContext) -> int:
    widest = context.capabilities.vector_bits // 32
    return next((lanes for lanes in (widest, widest // 2) if lanes > 1 and channels % lanes == 0), 0)


def _dot(dtype_name: str, lanes: int, context: KernelContext) -> VectorDot | None:
    """Return the dot product of transformed data and weights of an element type; None if the target has no instruction for it."""
    if dtype_name == "float32":
        return VectorDot(lanes)
    dots = find_dots(dtype_name, dtype_name, "int32" if dtype(dtype_name).is_int else "float32", context)
    return next((VectorDot(dot.lanes, dot.group, dot.intrinsic) for dot in dots if dot.lanes == lanes), None)


class WinogradRule:
    """Schedules `ops.winograd_conv` in float32, or in int16 or bfloat16 by dot-product instructions. Channels must fill vectors."""

    name = "winograd"

    def estimate(self, sizes: ConvSizes, context: KernelContext) -> Iterator[tuple[str, WinogradPlan]]:
        """Yield (element type of transformed weights, cheapest plan) for each tile size. Yields nothing if the algorithm does not
        apply: for groups, strides, dilations, other windows, channels that do not fill vectors, and small images."""
        if sizes.window != (WINDOW, WINDOW) or sizes.groups != 1 or {*sizes.strides, *sizes.dilations} != {1}:
            return
        image_height, image_width = sizes.image
        for dtype_name, tiles in _tile_sizes(sizes.dtypes).items():
            for tile in tiles:
                plan = plan_winograd(sizes.batch, sizes.inputs, sizes.outputs, image_height, image_width, tile, context, dtype_name)
                if plan is not None:
                    yield dtype_name, plan

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels other than Winograd convolutions, and symbolic channels."""
        anchor = find_anchor(program) if context.capabilities.vector_bits else None
        if anchor is None or not _is_winograd(program, anchor):
            return None
        batch, _, height, width = (arith.unwrap(item.extent) for item in anchor.after[1].iters)
        input_tile, out_channels, in_channels = (
            constant_extent(item) for item in (anchor.spatial[0], anchor.spatial[3], anchor.reduced[0])
        )
        factors = find_factors(anchor)
        assert factors is not None
        dtype_name = factors[1].dtype.name
        plans = winograd_plans(batch, in_channels, out_channels, height, width, input_tile - 2, context, dtype_name)
        if not plans:
            return None
        best = min(plans, key=attrgetter("cycles"))
        stripe = context.decide("stripe", (plan.stripe for plan in plans), best.stripe)
        plan = next(plan for plan in plans if plan.stripe == stripe.value)
        layouts = _layouts(program, anchor, plan)
        direct = None
        if dtype_name == "float32" and not (isinstance(height, int) and isinstance(width, int)):
            weight_bytes = dtype(dtype_name).bytes * in_channels * out_channels * input_tile**2
            cost = WinogradCost(plan.tile, plan.tile_cycles, weight_bytes)
            direct = direct_version(program, anchor, layouts, cost, inputs, context)
        if direct is not None:
            layouts[direct.weights] = direct.layout
        params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        schedule = Traced(lambda: _schedule(program, anchor, plan, layouts, context))
        return Offer(params, schedule, versions=() if direct is None else (direct.version,), decisions=(stripe,))


def _tile_sizes(dtypes: tuple[str, str, str]) -> dict[str, tuple[int, ...]]:
    """Return the tile sizes for each element type of transformed weights. `dtypes` are those of data, weights and accumulator."""
    _, weights, total = dtypes
    if dtype(total).is_int:
        return {INTEGER: tuple(TRANSFORMS)}
    return {"float32": tuple(TRANSFORMS)} | ({weights: ROUNDED} if weights != "float32" else {})


def _is_winograd(program: ir.LoopProgram, anchor: Anchor) -> bool:
    """Test whether a kernel is products[a, b, n, o, t] += tiles[a, b, n, c, t] * u[a, b, c, o] between the transform blocks."""
    factors = find_factors(anchor)
    if (
        len(anchor.spatial) != 5
        or len(anchor.reduced) != 1
        or factors is None
        or anchor.buffer.dtype.name not in ("float32", "int32")
    ):
        return False
    (a, b, n, o, t), c = (item.var for item in anchor.spatial), anchor.reduced[0].var
    data, weights = factors
    if anchor.buffer.dtype.name not in ("float32", "int32"):
        return False
    if data.indices != (a, b, n, c, t) or weights.indices != (a, b, c, o) or weights.buffer not in program.inputs:
        return False
    if not all(isinstance(dim, int) for dim in weights.buffer.shape):
        return False
    before, after = [block.name for block in anchor.before], [block.name for block in anchor.after]
    return before[-2:] == ["rows", "tiles"] and before[:-2] in ([], ["pad"]) and after[:2] == ["columns", "winograd"]


def _layouts(program: ir.LoopProgram, anchor: Anchor, plan: WinogradPlan) -> dict[ir.Buffer, Layout]:
    factors = find_factors(anchor)
    assert factors is not None
    weights, result = factors[1].buffer, anchor.after[-1].writes[0].buffer
    depth = constant_extent(anchor.reduced[0])
    layouts = {weights: Layout(((2, depth), (3, plan.product.width), *plan.dot.interleaved(2)))}
    layouts[anchor.before[0].reads[0].buffer] = Layout(((1, plan.lanes_in),))
    for buffer in program.params:
        if buffer.shape == result.shape:
            layouts[buffer] = Layout(((1, plan.lanes_out),))
    return layouts


def _schedule(
    program: ir.LoopProgram, anchor: Anchor, plan: WinogradPlan, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> Schedule:
    """Build the nest:

    for n, stripe:
        for channels, tiles:                  # parallel, by groups of tiles
            pad = x                           # of one tile, lane vectorized
            tiles = transform(pad)            # in registers, lane vectorized
        for elements of a tile:                 # parallel
            for columns, rows of the product:
                acc = 0
                for channel:
                    prefetch a part of the next panel of u
                    acc += tiles * u          # row and vector unrolled, lane vectorized
                products = acc
        for outputs, tiles:                   # parallel, by groups of tiles
            y = after(transform(products))    # in registers, lane vectorized
    """
    s, costs = Schedule(program, context.intrinsics, annotation_keys=(REMAINDERS,)), context.capabilities.core.costs
    *pads, rows, tiles = (block.name for block in anchor.before)
    product = anchor.block.name
    columns, element, *after = (block.name for block in anchor.after)
    final = element
    if after:
        *inner, final = after
        inline_blocks(s, inner)
        s.set_scope(element, "register")
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    channel, lane = s.split(channel, (None, plan.lanes_out))
    down, i = _split_side(s, y, plan.tile)
    across, j = _split_side(s, x, plan.tile)
    s.reorder(*present(n), channel, down, across, i, j, lane)
    stripe, t = s.split(s.fuse(down, across), (None, plan.stripe))
    s.reorder(*present(n), stripe, channel, t)
    tile_group, across = s.split(t, (None, _group(plan.stripe, costs)))
    mark_tile(s, i, j, lane)
    if after:
        s.compute_at(element, across)
        *_, tile_group_in, i, j = s.loops(element)
        s.reorder(i, j, tile_group_in)
        mark_tile(s, i, j, tile_group_in)
    s.set_scope(columns, "register")
    s.compute_at(columns, across)
    _mark_transform(s, columns)
    store_block = s.cache_write(product, "register")
    s.compute_at(store_block, stripe)
    # This must precede tiling the product by rows, since the last tile may exceed the stripe.
    s.compute_at(product, stripe)
    s.compute_at(tiles, stripe)
    is_symbolic = not isinstance(loop_extent(s, stripe), arith.Const)
    element_loop, panel, rows_of_tiles, depth, element_lane = _product(s, product, store_block, plan, is_symbolic, costs)
    a, b, c, t = s.loops(tiles)[-4:]
    c, lane = s.split(c, (None, plan.lanes_in))
    tile_group_in, across = s.split(t, (None, _group(plan.stripe, costs)))
    s.reorder(c, tile_group_in, across, a, b, lane)
    mark_tile(s, a, b, lane)
    s.set_scope(rows, "register")
    s.compute_at(rows, across)
    _mark_transform(s, rows)
    blocked_in, blocked_out = Layout(((3, plan.lanes_in),)), Layout(((3, plan.lanes_out),))
    local_layouts = {
        "products": blocked_out,
        store_block: blocked_out,
        "columns": blocked_out,
        "tiles": blocked_in,
        "rows": blocked_in,
    }
    local_layouts["winograd"] = Layout(((1, plan.lanes_out),))
    for pad in pads:
        s.compute_at(pad, across)
        *_, lane, i, j = s.loops(pad)
        s.reorder(i, j, lane)
        s.vectorize(lane)
        local_layouts[pad] = Layout(((1, plan.lanes_in),))
    if is_symbolic:
        full_strips = plan.dot.peels and context.capabilities.vector_registers >= costs.strip_registers
        s.annotate(rows_of_tiles, REMAINDERS.name, 0 if full_strips else 1)
    if context.threads != 1:
        s.parallel(element_loop)
        for loops in ((c, tile_group_in), (channel, tile_group)):
            s.parallel(s.fuse(*loops))
    lay_out(s, layouts, local_layouts)
    factors = find_factors(anchor)
    assert factors is not None
    weights = factors[1].buffer.name
    use_instruction(s, element_lane, plan.dot)
    product = next(block.name for block in collect_blocks(s.program) if any(item.buffer.name == weights for item in block.reads))
    s.stream(product, weights, panel, depth, each=is_symbolic)
    return s


def _group(stripe: int, costs: CostConstants) -> int:
    """Return the number of consecutive tiles that a thread transforms: the largest divisor of `stripe` up to
    `transformed_tiles`."""
    return max(size for size in range(1, costs.transformed_tiles + 1) if stripe % size == 0)


def _split_side(s: Schedule, loop: Var | None, size: int) -> tuple[Var, Var]:
    assert loop is not None
    outer, inner = s.split(loop, (None, size))
    return outer, inner


def _mark_transform(s: Schedule, block: str) -> None:
    """Unroll the transform of one side of a tile, so that all uses of a load are adjacent."""
    outer, other, lane = s.loops(block)[-3:]
    s.reorder(other, outer, lane)
    mark_tile(s, other, outer, lane)


def _product(
    s: Schedule, product: str, store_block: str, plan: WinogradPlan, is_symbolic: bool, costs: CostConstants
) -> tuple[Var, Var, Var, Var, Var]:
    """Schedule the product inside a stripe; returns its loops over tile elements, panels, row tiles, input channels and lanes."""
    shape = plan.product
    a, b, o, t = s.loops(store_block)[-4:]
    columns, vector, lane = s.split(o, (None, shape.vectors, shape.lanes))
    rows, row = s.split(t, (None, shape.rows))
    s.reorder(a, b, columns, rows, row, vector, lane)
    mark_tile(s, row, vector, lane)
    element_loop = s.fuse(a, b)
    s.compute_at(product, rows)
    n, row, c = s.loops(product)[-3:]
    vector, lane = s.split(n, (shape.vectors, shape.lanes))
    c, *part = s.split(c, (None, plan.dot.group)) if plan.dot.interleaves else (c,)
    steps: list[Var] = []
    if not plan.dot.interleaves:
        # If the number of row tiles is symbolic, each prefetches the whole panel, but at least half of the prefetches hit the
        # cache.
        c, *steps = between_prefetches(s, c, shape, 2 if is_symbolic else -(-plan.stripe // shape.rows), costs)
    s.reorder(c, *steps, row, vector, lane, *part)
    begin_sum(s, product, c, (row, vector), lane, plan.dot)
    return element_loop, columns, rows, c, lane
