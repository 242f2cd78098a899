"""Fallback schedule: merge element-wise chains, run outer loops in parallel, and leave inner loops to the vectorizer."""

from __future__ import annotations

from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.collapse import COLLAPSE
from inlaid.schedules.conv_sizes import ConvSizes
from inlaid.schedules.shape import loop_extent, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid.tensor.region import Utilization
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR

SHORT = 8
"""Minimum columns for which windows and products are accumulated row by row."""
REPEATS = 8
"""Maximum repetitions of an element along a row that are unrolled."""
CHUNKS = 64
"""Number of parallel iterations up to which loops are fused. It suffices for any number of threads."""


class GenericRule:
    """Schedules any kernel, as a fallback."""

    name = "generic"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer row-major layouts and the unscheduled program."""
        layouts = (ROW_MAJOR,) * len(program.params)
        return Offer(layouts, Traced(lambda: _schedule(program, context)), utilization=Utilization.SCALAR)

    def estimate(self, sizes: ConvSizes, context: KernelContext) -> float | None:
        """Predict the cycles of a convolution in float32, whose channels are computed one by one: in vectors along a line, bound by
        the latency of additions, or element by element for short lines. None for other element types, to which no model is
        fitted."""
        core, lanes = context.capabilities.core, context.capabilities.vector_bits // 32
        if not sizes.is_float32:
            return None
        height, width = sizes.lines
        if width < lanes:
            return sizes.images * sizes.outputs * sizes.pixels * sizes.depth / (core.units * core.costs.chain_rate)
        waits = core.costs.strided_factor * core.latency if sizes.is_strided else core.latency
        vectors = width // lanes + core.costs.remainder_vectors * (width % lanes > 0)
        return sizes.images * sizes.outputs * height * vectors * sizes.depth * waits


def _schedule(program: ir.LoopProgram, context: KernelContext) -> Schedule:
    s, costs = Schedule(program), context.capabilities.core.costs
    merge_chains(s)
    if context.capabilities.vector_bits:
        # Rows of an image are often shorter than a vector; collapsed they are one long row.
        s.apply(COLLAPSE)
    for block in collect_blocks(s.program):
        if _sums_rows(block, vectors=context.capabilities.vector_bits > 0):
            _add_row_by_row(s, block, costs.column_chunk)
        else:
            _write_repeats(s, block)
    if context.threads != 1:
        for block in collect_blocks(s.program):
            if _has_work(block, costs.parallel_work):
                _parallel(s, block)
    _split_choices(s)
    return s


def _split_choices(s: Schedule) -> None:
    """Split loops along rows at the columns where the condition of a select, such as padding, changes."""
    for block in collect_blocks(s.program):
        loops = s.loops(block.name)
        if loops and isinstance(block.body, ir.Store) and isinstance(block.body.value, ir.Select):
            s.apply(SPLIT_BORDERS, block.name, loops[-1])


def _sums_rows(block: ir.Block, vectors: bool) -> bool:
    """Test whether a reduction's last spatial variable iterates along rows and its reduction variables across rows. If `vectors`,
    also accept windows and products whose reduced elements each contribute to a whole row."""
    if block.init is None or not isinstance(block.body, ir.Store) or not block.body.indices:
        return False
    item = block.iters[len(block.body.indices) - 1]
    if block.body.indices[-1] != item.var:
        return False
    reduced = {item.var for item in block.iters if item.kind is ir.IterKind.REDUCTION}
    loads = [
        n for n in ir.walk_exprs(block.body.value) if isinstance(n, ir.Load) and n.buffer is not block.body.buffer and n.indices
    ]
    if loads and all(load.indices[-1] == item.var and reduced & load.free_vars() for load in loads):
        return True
    if not vectors or (isinstance(item.extent, arith.Const) and item.extent.value < SHORT):
        return False
    moving_loads = [load for load in loads if item.var in load.free_vars()]
    return all(_steps(load, item.var) for load in moving_loads) and any(reduced & load.free_vars() for load in moving_loads)


def _steps(load: ir.Load, column: Var) -> bool:
    """Test whether a load moves along a row with stride 1 or 2 as `column` increases."""
    parts = arith.affine(load.indices[-1], column)
    has_small_stride = parts is not None and parts[0] in (arith.ONE, arith.Const(2)) and column not in arith.free_vars(parts[1])
    return has_small_stride and not any(column in arith.free_vars(index) for index in load.indices[:-1])


def _add_row_by_row(s: Schedule, block: ir.Block, chunk: int) -> None:
    """Interchange the loops of a reduction over rows:

    for column: for rows: acc[column] += row[column]    becomes    for rows: for column: acc[column] += row[column]

    so that the inner loop vectorizes. If columns are the only parallel loop, they are split into chunks of `chunk`.
    """
    # Dimensions of one element have no loop.
    bound = [(v, item.kind) for v, item in zip(block.bindings, block.iters, strict=True) if v != arith.ZERO]
    spatial = [v for v, kind in bound if kind is ir.IterKind.SPATIAL and isinstance(v, Var)]
    rows = [v for v, kind in bound if kind is ir.IterKind.REDUCTION and isinstance(v, Var)]
    is_complete = set(s.loops(block.name)).issuperset(spatial + rows) and len(spatial) + len(rows) == len(bound)
    if not spatial or not rows or not is_complete:
        return
    column = spatial[-1]
    if len(spatial) == 1:
        _, column = s.split(column, (None, chunk))
    s.reorder(*rows, column)
    s.decompose_reduction(block.name, rows[0])


def _write_repeats(s: Schedule, block: ir.Block) -> None:
    """Remove the division from the indices of repeated elements:

    for x in 3 * n: out[x] = row[x // 3]    becomes    for x in n: out[3 * x] = row[x]; out[3 * x + 1] = row[x]; ...
    for x in 3 * n: out[x] = row[x % n]     becomes    for k in 3: for x in n: out[n * k + x] = row[x]

    which needs no divisions; the interleaved stores fill whole vectors.
    """
    loops = s.loops(block.name)
    if not loops or not block.iters or block.bindings[-1] is not loops[-1] or not isinstance(block.body, ir.Store):
        return
    column = block.iters[-1].var
    indices = [index for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) for index in node.indices]
    divisions = {
        (type(part), part.operands[1].value)
        for index in indices
        for part in arith.walk(index)
        if isinstance(part, (arith.FloorDiv, arith.FloorMod))
        and part.operands[0] is column
        and isinstance(part.operands[1], arith.Const)
    }
    if len(divisions) != 1:
        return
    ((kind, count),) = divisions
    if arith.simplify(block.iters[-1].extent % count) != arith.ZERO:
        return
    if kind is arith.FloorMod:
        s.split(loops[-1], (None, count))
    elif count in range(2, REPEATS + 1):
        s.unroll(s.split(loops[-1], (None, count))[1])


def _has_work(block: ir.Block, min_iterations: int) -> bool:
    """Test whether a block is estimated to have enough iterations, or its extents depend on other loops or on data."""
    size = block_size(block)
    is_static = not arith.reads_data(size) and all(isinstance(var, arith.SizeVar) for var in arith.free_vars(size))
    return not is_static or arith.size_hint(arith.unwrap(size)) >= min_iterations


def _parallel(s: Schedule, block: ir.Block) -> None:
    """Fuse outer spatial loops of a block until they have `CHUNKS` iterations, and run them in parallel."""
    loops = s.loops(block.name)
    spatial = {binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.SPATIAL}
    outer_loops: list[Var] = []
    chunks = 1
    for loop in loops:
        if loop not in spatial or chunks >= CHUNKS:
            break
        extent = loop_extent(s, loop)
        outer_loops.append(loop)
        chunks *= extent.value if isinstance(extent, arith.Const) else CHUNKS
    if not outer_loops or chunks == 1:
        return
    try:
        s.parallel(s.fuse(*outer_loops) if len(outer_loops) > 1 else outer_loops[0])
    except ScheduleError:
        # The loop is not parallel: the iterations of an opaque loop program may depend on one another.
        return
