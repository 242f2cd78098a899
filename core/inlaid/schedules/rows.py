"""Reductions along or across rows on vector CPUs, fused with element-wise prologue and epilogue, so that rows stay in cache.

Examples are softmax, layer normalization, mean, min and max, and sums over adjacent channels.
"""

from __future__ import annotations

from math import prod

from inlaid.plugins.costs import CostConstants
from inlaid.schedules.collapse import collapsed, without_empty
from inlaid.schedules.row_shape import inline_around, is_loose, reduces_across, reduces_along, row_buffers
from inlaid.schedules.shape import axis_loops, loop_extent, present
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.schedule import Schedule, Transform
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR

UNROLLED = 4
"""Vectors per iteration of an element-wise loop."""
STEP = 4
"""Fan-in of the reduction tree over the lanes of a vector. A fan-in of 2 has a shorter chain of additions, but needs twice the
primitives."""
SHORT = 8
"""Maximum steps of a reduction that is unrolled."""


@dataclass(frozen=True)
class _Shape:
    """Structure of a kernel. `across`: it reduces across rows and vectorizes the result axis; else it reduces along rows and
    vectorizes the reduction axis. `rows` are the positions of the row axes among the last block's iteration variables. At most
    `together` rows are processed together, each into at most `accumulators` vectors."""

    across: bool
    rows: tuple[int, ...]
    together: int = 1
    accumulators: int = 1


@dataclass(frozen=True)
class RowsRule:
    """Schedules kernels with reductions along or across rows, and element-wise blocks before, between and after them. `copies`:
    also accept inputs that must be copied to row-major layout first."""

    name = "rows"
    copies: bool = False

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines mixed contiguous and strided reductions, several outputs, and kernels that a schedule
        primitive rejects."""
        if not context.capabilities.vector_bits or len(program.outputs) != 1 or program.defines:
            return None
        if not any(block.init is not None for block in collect_blocks(program)):
            return None
        if not self.copies and any(item.layout != ROW_MAJOR for item in inputs):
            return None
        if without_empty(program) is None:
            return None
        costs = context.capabilities.core.costs
        together = context.decide("rows", (1, *reversed(costs.rows_together)), costs.rows_together[0])
        accumulators = context.decide("accumulators", (1, 2, 4, costs.row_accumulators), costs.row_accumulators)
        try:
            scheduled = _schedule(collapsed(program), together.number, accumulators.number, context)
        except ScheduleError:
            return None
        decisions = (together, accumulators)
        layouts = (ROW_MAJOR,) * len(program.params)
        return None if scheduled is None else Offer(layouts, Traced(lambda: scheduled), decisions=decisions)


def _schedule(s: Schedule, together: int, accumulators: int, context: KernelContext) -> Schedule | None:
    """Build the nest; for a reduction along rows:

    for rows / 4:                             # parallel
        for rows of 4: for columns: part[vector, lane] += f(x)    # vector unrolled, lane vectorized; then combined
        for rows of 4: for columns: out = g(x, reduced)
    """
    inline_around(s)
    last = collect_blocks(s.program)[-1]
    final = last.name if last.init is None else s.cache_write(last.name)
    producers = collect_blocks(s.program)[:-1]
    scalars = row_buffers(producers)
    shape = _shape(s.program, producers, final, scalars)
    if shape is None:
        return None
    shape = replace(shape, together=together, accumulators=accumulators)
    lanes = context.capabilities.vector_bits // (8 * _width(s.program))
    names = [block.name for block in producers if not is_loose(block, scalars)]
    are_grouped = (_across if shape.across else _along)(s, names, final, shape, lanes, context)
    for name in () if are_grouped else scalars:
        s.set_scope(name, "register")
    s.apply(IN_PLACE)
    return s


# --- analysis ---------------------------------------------------------------------------------------------------------


def _shape(program: ir.LoopProgram, producers: list[ir.Block], final: str, scalars: list[str]) -> _Shape | None:
    reductions = [block for block in producers if block.init is not None]
    last = next(block for block in collect_blocks(program) if block.name == final)
    assert isinstance(last.body, ir.Store)
    if last.body.indices != tuple(item.var for item in last.iters):
        return None
    variables: set[arith.Expr] = set()
    for node in ir.walk_exprs(last.body.value):
        if isinstance(node, ir.Load) and node.buffer.name in scalars:
            variables = variables.union(*map(arith.free_vars, node.indices))
    rows = tuple(axis for axis, item in enumerate(last.iters) if item.var in variables and item.extent != arith.ONE)
    loop_axes = [axis for axis, item in enumerate(last.iters) if item.extent != arith.ONE]
    if all(map(reduces_along, reductions)):
        return _Shape(False, rows) if tuple(loop_axes[: len(rows)]) == rows else None
    if all(map(reduces_across, reductions)):
        return _Shape(True, rows) if rows and rows[-1] == loop_axes[-1] else None
    return None


def _width(program: ir.LoopProgram) -> int:
    """Return the bytes of the widest value in the blocks, at least 4, since narrower values are widened."""
    values = [block.body.value for block in collect_blocks(program) if isinstance(block.body, ir.Store)]
    return max(4, *(node.dtype.bytes for node in ir.walk_exprs(*values) if not isinstance(node, ir.Index)))


def _vectors(extent: arith.Expr, lanes: int, max_vectors: int) -> int:
    """Choose the number of vectors per iteration for an extent: a power of two."""
    if not isinstance(extent, arith.Const):
        return min(max_vectors, UNROLLED)
    vector_count = -(-extent.value // lanes)
    return next(
        count for count in (8, 4, 2, 1) if count <= max_vectors and (count < vector_count or count == 1 or count <= vector_count)
    )


# --- along rows -------------------------------------------------------------------------------------------------------


def _along(s: Schedule, names: list[str], final: str, shape: _Shape, lanes: int, context: KernelContext) -> bool:
    """Schedule a reduction along rows. Returns whether several rows are processed together."""
    loops = axis_loops(s, final)
    rows = present(*(loops[axis] for axis in shape.rows))
    columns = [loop for loop in present(*loops) if loop not in rows]
    row = group = outer = None
    if rows:
        row = outer = s.fuse(*rows) if len(rows) > 1 else rows[0]
        together = (
            _together(
                loop_extent(s, row), [loop_extent(s, loop) for loop in columns], shape.together, context.capabilities.core.costs
            )
            if names
            else 1
        )
        if together > 1:
            group, row = s.split(row, (None, together))
            outer = group
        for name in reversed(names):
            s.compute_at(name, outer)
    work = 0
    for name in names:
        block = next(block for block in collect_blocks(s.program) if block.name == name)
        row_loop = row if group is None else _after(s, name, group)[0]
        if block.init is not None:
            work = max(work, _work(block))
            _reduce_row(s, name, row_loop, lanes, group, shape.accumulators)
        else:
            _vectorize_last(s, name, row_loop, lanes)
    if columns:
        _vectorize_last(s, final, row, lanes)
    if outer is not None and context.threads != 1 and work >= context.capabilities.core.costs.parallel_work:
        s.parallel(outer)
    return group is not None


def _after(s: Schedule, name: str, outer: Var | None) -> list[Var]:
    """Return the loops of a block inside loop `outer`; all loops of the block for None."""
    loops = list(s.loops(name))
    return loops[loops.index(outer) + 1 :] if outer is not None else loops


def _together(rows: arith.Expr, columns: list[arith.Expr], max_rows: int, costs: CostConstants) -> int:
    """Return the number of rows to process together, so that the results stay in the L1 cache."""
    if not columns or prod(arith.size_hint(arith.unwrap(extent)) for extent in columns) > costs.long_row:
        return 1
    is_static = isinstance(rows, arith.Const)
    return next(
        (
            count
            for count in costs.rows_together
            if count <= max_rows and (not is_static or arith.simplify(rows % count) == arith.ZERO)
        ),
        1,
    )


def _reduce_row(s: Schedule, name: str, row: Var | None, lanes: int, group: Var | None, max_vectors: int) -> None:
    """Reduce a row by vector accumulators and a tree:

    for k: acc += f(k)
    becomes
    for k_0: part[p] += f(k_0, p)             # p: several vectors, unrolled, lanes vectorized
    one[p] = part[p] + part[lanes + p] + ...  # a vector
    less[p] = one[p] + one[lanes / 4 + p] + one[lanes / 2 + p] + one[lanes * 3 / 4 + p]     # and so on
    acc = less[0] + ...
    """
    inner = _after(s, name, row)
    count = sum(
        item.kind is ir.IterKind.REDUCTION and item.extent != arith.ONE
        for item in next(block for block in collect_blocks(s.program) if block.name == name).iters
    )
    if len(inner) != count:
        raise ScheduleError(f"block {name} must reduce one row per iteration, found loops over several")
    length = lanes * _vectors(loop_extent(s, inner[-1]), lanes, max_vectors)
    _, piece = s.split(inner[-1], (None, length))
    parts = {s.rfactor(name, piece): length}
    while length > STEP:
        length = lanes if length > lanes else length // STEP
        _, lane = s.split(s.loops(name)[-1], (None, length))
        parts[s.rfactor(name, lane)] = length
    if group is not None:
        # The final value is read after the group of rows, so its partial results are computed directly before it.
        row_loop = _after(s, name, group)[0]
        for part in reversed(parts):
            s.compute_at(part, row_loop)
    s.unroll(s.loops(name)[-1])
    first = next(iter(parts))
    for part, length in parts.items():
        block = next(block for block in collect_blocks(s.program) if block.name == part)
        loops = [(item.kind, loop) for item, loop in zip(block.iters, axis_loops(s, part), strict=True) if loop is not None]
        reducing = [loop for kind, loop in loops if kind is ir.IterKind.REDUCTION]
        *_, lane = [loop for kind, loop in loops if kind is ir.IterKind.SPATIAL]
        if reducing:
            s.reorder(*reducing, lane)
        # Initialize outside of every inner loop that may run no iteration, including unbound loops of extent 0 or 1.
        bound = zip(block.iters, block.bindings, strict=True)
        rows = [arith.free_vars(binding) for item, binding in bound if item.kind is ir.IterKind.SPATIAL and binding is not lane]
        nest = s.loops(part)
        outside = max((number for number, loop in enumerate(nest, 1) if any(loop in variables for variables in rows)), default=0)
        init = s.decompose_reduction(part, nest[outside])
        for loop in reducing if part != first else ():
            s.unroll(loop)
        _mark(s, part, length, lanes)
        _mark(s, init, length, lanes)
        assert isinstance(block.body, ir.Store)
        s.set_scope(block.body.buffer.name, "register")


def _mark(s: Schedule, block: str, length: int, lanes: int) -> None:
    """Vectorize the innermost loop of a block, which has constant extent `length`, and unroll its vectors."""
    loop = s.loops(block)[-1]
    if length > lanes:
        vector, loop = s.split(loop, (length // lanes, lanes))
        s.unroll(vector)
    s.vectorize(loop)


def _vectorize_last(s: Schedule, name: str, row: Var | None, lanes: int) -> None:
    """Vectorize the innermost loop of an element-wise block, several vectors per iteration."""
    inner = _after(s, name, row)
    if not inner:
        return
    extent = loop_extent(s, inner[-1])
    # One vector per iteration for symbolic lengths: of several, the last ones would often be empty.
    count = _vectors(extent, lanes, UNROLLED) if isinstance(extent, arith.Const) else 1
    _, vector, lane = s.split(inner[-1], (None, count, lanes))
    s.unroll(vector)
    s.vectorize(lane)


# --- across rows ------------------------------------------------------------------------------------------------------


def _across(s: Schedule, names: list[str], final: str, shape: _Shape, lanes: int, context: KernelContext) -> bool:
    """Schedule a reduction across rows; returns False, since rows are not grouped:

    for rows outside, columns:                # parallel
        for k: acc[vector, lane] += f(k)      # vector unrolled, lane vectorized
        out = g(acc)
    """
    loops = axis_loops(s, final)
    rows = present(*(loops[lane] for lane in shape.rows))
    other_loops = [loop for loop in present(*loops) if loop not in rows]
    *outer, column = rows
    max_vectors = shape.accumulators if len(names) == 1 and not other_loops else UNROLLED
    length = lanes * _vectors(loop_extent(s, column), lanes, max_vectors)
    piece, lane = s.split(column, (None, length))
    s.reorder(*outer, piece, *other_loops, lane)
    for name in reversed(names):
        s.compute_at(name, piece)
    for name in names:
        block = next(block for block in collect_blocks(s.program) if block.name == name)
        if block.init is not None:
            _reduce_columns(s, name, piece, length, lanes)
        else:
            _mark(s, name, length, lanes)
    _mark(s, final, length, lanes)
    work = max(_work(block) for block in collect_blocks(s.program))
    if context.threads != 1 and work >= context.capabilities.core.costs.parallel_work:
        extents = [loop_extent(s, loop) for loop in outer]
        is_symbolic = not all(isinstance(extent, arith.Const) for extent in extents)
        count = prod(extent.value for extent in extents if isinstance(extent, arith.Const))
        if outer and (is_symbolic or count >= max(context.threads, 2)):
            s.parallel(s.fuse(*outer) if len(outer) > 1 else outer[0])
        else:
            s.parallel(piece)
    return False


def _work(block: ir.Block) -> int:
    return arith.size_hint(arith.unwrap(block_size(block)))


def _reduce_columns(s: Schedule, name: str, piece: Var, length: int, lanes: int) -> None:
    loops = s.loops(name)
    inner = loops[loops.index(piece) + 1 :]
    block = next(block for block in collect_blocks(s.program) if block.name == name)
    reduced = [
        binding
        for item, binding in zip(block.iters, block.bindings, strict=True)
        if item.kind is ir.IterKind.REDUCTION and binding in inner
    ]
    spatial = [loop for loop in inner if loop not in reduced]
    if len(spatial) != 1:
        raise ScheduleError(f"block {name} must have one spatial loop over columns, found {len(spatial)}")
    if not reduced:
        _mark(s, name, length, lanes)
        return
    s.reorder(*reduced, spatial[0])  # type: ignore[arg-type]
    init = s.decompose_reduction(name, reduced[0])  # type: ignore[arg-type]
    _mark(s, name, length, lanes)
    _mark(s, init, length, lanes)
    extent = loop_extent(s, reduced[-1])  # type: ignore[arg-type]
    if isinstance(extent, arith.Const) and extent.value <= SHORT:
        s.unroll(reduced[-1])  # type: ignore[arg-type]


# --- memory -----------------------------------------------------------------------------------------------------------


def store_in_place(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace an intermediate buffer by the output if the last block reads it only at the elements that it writes.

    t[i] = exp(x[i]); s += t[i]; out[i] = t[i] / s    becomes    out[i] = exp(x[i]); s += out[i]; out[i] = out[i] / s
    """
    (output,) = program.outputs
    last = collect_blocks(program)[-1]
    assert isinstance(last.body, ir.Store)
    loads = [node for node in ir.walk_exprs(last.body.value) if isinstance(node, ir.Load)]
    local_buffers = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    for buffer in local_buffers:
        buffer_loads = [load for load in loads if load.buffer is buffer]
        fits_output = buffer.shape == output.shape and buffer.dtype is output.dtype and not buffer.scope
        if buffer_loads and fits_output and all(load.indices == last.body.indices for load in buffer_loads):

            def update(stmt: ir.Stmt) -> ir.Stmt | None:
                if isinstance(stmt, ir.Alloc) and stmt.buffer is output:
                    return stmt.body
                if isinstance(stmt, ir.Block) and any(region.buffer is output for region in (*stmt.reads, *stmt.writes)):
                    return with_footprint(stmt)
                return None

            body = Rewriter(buffers={buffer: output}, stmt=update).stmt(program.body)
            return replace(program, body=body)
    return program


IN_PLACE = Transform("store_in_place", store_in_place)
