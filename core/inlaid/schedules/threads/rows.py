"""Row reductions, contiguous or strided, with their element-wise prologue and epilogue: softmax, norms, mean, min, max.

On targets with shared memory, a team of threads reduces a row cooperatively; otherwise one thread reduces a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.schedules.collapse import collapsed, without_empty
from inlaid.schedules.row_shape import inline_around, is_loose, reduces_across, reduces_along, row_buffers
from inlaid.schedules.shape import axis_loops, is_static, loop_extent, present
from inlaid.schedules.threads.cooperate import Team, reduce_in_team, reducing_loops, work_in_team
from inlaid.schedules.threads.elementwise import block_lanes
from inlaid.schedules.threads.grid import BLOCKS, bind_flat, device_threads, exchanging, expected, shared_scope, within_shared
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR

LEAST = 4
"""Minimum elements of a row per thread of a team. With fewer, combining the partial results costs more than it saves."""

LONG = 64
"""Minimum elements of a row per thread that amortize the launch of a second kernel."""


@dataclass(frozen=True)
class _RowKernel:
    """The blocks of a row kernel. `final` is the last block; `names` are the blocks fused into its rows, `loose` the blocks that
    are not fused. `scalars` are the buffers with one value per row. `rows` are the positions of the row axes among the iteration
    variables of `final`. `along`: the reduction axis is contiguous; otherwise the row axis is contiguous."""

    names: tuple[str, ...]
    loose: tuple[str, ...]
    scalars: tuple[str, ...]
    final: str
    rows: tuple[int, ...]
    along: bool


class ThreadRowsRule:
    """Schedules kernels with row reductions, and element-wise blocks before, between and after them."""

    name = "rows"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines mixed contiguous and strided reductions, several outputs, and kernels that a schedule
        primitive rejects."""
        if len(program.outputs) != 1 or program.defines or without_empty(program) is None:
            return None
        if not any(block.init is not None for block in collect_blocks(program)):
            return None
        s = collapsed(program)
        try:
            inline_around(s, everything=True)
            kernel = _kernel(s)
            if kernel is None:
                return None
            context = within_shared(context, _thread_bytes(s, kernel), len(kernel.scalars) + 2)
            row, column = _extents(s, kernel)
            team = context.decide("team", _teams(context), _team(context, row, column, kernel.along))
            pieces = _pieces(s, kernel, team.number, context)
            if pieces.number > 1:
                first_kernel = _split(s, kernel, pieces.number)
                _schedule(s, first_kernel, team.number, context)
                last_team = _team(context, row, pieces.number, kernel.along)
                _schedule(s, kernel, last_team, context)
            else:
                _schedule(s, kernel, team.number, context)
            _bind_loose(s, kernel, context)
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: s), decisions=(team, pieces))


def _kernel(s: Schedule) -> _RowKernel | None:
    """Match the blocks of a row kernel; None if its reductions are neither all contiguous nor all strided."""
    last = collect_blocks(s.program)[-1]
    final = last.name if last.init is None else s.cache_write(last.name)
    *producers, last = collect_blocks(s.program)
    reductions = [block for block in producers if block.init is not None]
    if not isinstance(last.body, ir.Store) or last.body.indices != tuple(item.var for item in last.iters):
        return None
    along = all(reduces_along(block, shortest=1) for block in reductions)
    if not along and not all(map(reduces_across, reductions)):
        return None
    scalars = row_buffers(producers)
    loose_blocks: list[str] = []
    row_results: set[ir.Buffer] = set()
    for block in producers:
        assert isinstance(block.body, ir.Store)
        result_reads = [region.buffer for region in block.reads if region.buffer in row_results]
        if not result_reads and is_loose(block, scalars):
            loose_blocks.append(block.name)
            continue
        row_results.add(block.body.buffer)
        scalar_reads = [buffer for buffer in result_reads if buffer.name in scalars]
        if block.body.buffer.name not in scalars and any(buffer.shape == block.body.buffer.shape for buffer in scalar_reads):
            scalars.append(block.body.buffer.name)  # a reduced value combined with an input that has one value per row
    variables: set[arith.Expr] = set()
    for node in ir.walk_exprs(last.body.value):
        if isinstance(node, ir.Load) and node.buffer.name in scalars:
            variables = variables.union(*map(arith.free_vars, node.indices))
    rows = tuple(axis for axis, item in enumerate(last.iters) if item.var in variables and item.extent != arith.ONE)
    if not along and not rows:
        return None
    names = [block.name for block in producers if block.name not in loose_blocks]
    return _RowKernel(tuple(names), tuple(loose_blocks), tuple(scalars), final, rows, along)


def _extents(s: Schedule, kernel: _RowKernel) -> tuple[int, int]:
    """Return the number of rows and the length of the longest reduction, with size hints for symbolic extents."""
    rows = columns = 1
    for block in collect_blocks(s.program):
        if block.name == kernel.final:
            for axis in kernel.rows:
                rows *= expected(block.iters[axis].extent)
        elif block.init is not None:
            length = 1
            for item in block.iters:
                length *= expected(item.extent) if item.kind is ir.IterKind.REDUCTION else 1
            columns = max(columns, length)
    return rows, columns


def _thread_bytes(s: Schedule, kernel: _RowKernel) -> int:
    """Return an upper bound of the bytes of shared memory per thread: the partial results of two levels of the tree, the
    second a fourth of the first, and the scalars of a block's rows, of which there are at most half as many as threads."""
    widest = max(region.buffer.dtype.bytes for block in collect_blocks(s.program) for region in block.writes)
    return widest * (2 + -(-len(kernel.scalars) // 2))


def _teams(context: KernelContext) -> list[int]:
    """Return the legal team sizes: powers of two; only 1 without shared memory."""
    threads = device_threads(context)
    return [1 << step for step in range(threads.block.bit_length())] if shared_scope(context) else [1]


def _team(context: KernelContext, rows: int, columns: int, along: bool) -> int:
    """Choose the default team size: as many threads as fill the device over all rows, with at least `LEAST` elements each. A
    subgroup's accesses coalesce along the contiguous axis: within a row, or across rows, which then must share a block."""
    threads = device_threads(context)
    saturating = -(-threads.resident // max(rows, 1))
    max_size = (
        min(max(saturating, threads.subgroup), threads.block) if along else min(saturating, threads.block // threads.subgroup)
    )
    return max(size for size in _teams(context) if size == 1 or size <= min(max_size, columns // LEAST))


def _pieces(s: Schedule, kernel: _RowKernel, team: int, context: KernelContext) -> Decision:
    """Decide into how many pieces rows are split (split-K). A team reduces each piece, and a second kernel combines the results.

    The default fills the device with `LONG` elements per thread; 1 for several reductions, each of which would need two kernels."""
    if sum(block.init is not None for block in collect_blocks(s.program)) != 1:
        return context.decide("pieces", (1,), 1)
    rows, columns = _extents(s, kernel)
    resident = device_threads(context).resident
    # If the row length is symbolic, a superfluous launch costs less than an idle device.
    least = LONG if is_static(s.program) else LEAST
    best = max(min(resident // (max(rows, 1) * team), columns // (least * team)), 1)
    return context.decide("pieces", (1 << step for step in range(resident.bit_length())), 1 << (best.bit_length() - 1))


def _split(s: Schedule, kernel: _RowKernel, pieces: int) -> _RowKernel:
    """Split the reduction axis into pieces by rfactor. Returns the first kernel, which reduces the pieces."""
    block = next(block for block in collect_blocks(s.program) if block.init is not None)
    loops = reducing_loops(s, block.name)
    loop = s.fuse(*loops) if len(loops) > 1 else loops[0]
    piece, _ = s.split(loop, (pieces, None))
    assert isinstance(block.body, ir.Store)
    part = s.rfactor(block.name, piece, len(block.body.indices) if kernel.along else 0)
    store_block = s.cache_write(part)
    partial = next(block for block in collect_blocks(s.program) if block.name == store_block)
    rows = tuple(axis for axis, item in enumerate(partial.iters) if item.extent != arith.ONE)
    return _RowKernel((part,), (), (store_block,), store_block, rows, kernel.along)


def _bind_loose(s: Schedule, kernel: _RowKernel, context: KernelContext) -> None:
    for name in kernel.loose:
        for loop in s.loops(name)[:1]:
            bind_flat(s, loop, device_threads(context).block)


def _schedule(s: Schedule, kernel: _RowKernel, team: int, context: KernelContext) -> None:
    """Build the nest:

    for rows, blocks:
        for each reduction: a partial result per thread, combined by a tree of fewer threads
        for columns, threads: out = g(x, reduced)
    """
    loops = axis_loops(s, kernel.final)
    rows = present(*(loops[axis] for axis in kernel.rows))
    columns = [loop for loop in present(*loops) if loop not in rows]
    if rows and columns:
        s.reorder(*rows, *columns)
    if team == 1:
        _thread_per_row(s, kernel, rows, context)
    else:
        _team_per_row(s, kernel, rows, columns, team, context)


def _thread_per_row(s: Schedule, kernel: _RowKernel, rows: list[Var], context: KernelContext) -> None:
    """Bind one thread per row."""
    if not rows:
        return
    row = s.fuse(*rows) if len(rows) > 1 else rows[0]
    extent = loop_extent(s, row)
    block = device_threads(context).block
    count = max(min(block, extent.value), 1) if isinstance(extent, arith.Const) else block
    outer, row = s.split(row, (None, count))
    for name in reversed(kernel.names):
        s.compute_at(name, row)
    s.bind(outer, BLOCKS)
    s.bind(row, "threadIdx.x")
    for name in kernel.scalars:
        s.set_scope(name, "register")


def _team_per_row(s: Schedule, kernel: _RowKernel, rows: list[Var], columns: list[Var], size: int, context: KernelContext) -> None:
    """Bind a team of threads per row and several rows per block."""
    scope = shared_scope(context)
    assert scope is not None, "a team combines partial results in shared memory"
    width = device_threads(context).vector_bytes if kernel.along else 0
    lanes = {block.name: block_lanes(block, width) for block in collect_blocks(s.program)}
    team = Team(size, "threadIdx.y", "threadIdx.x", scope.name)
    if kernel.along:
        exchange_lanes = min(size, exchanging(context))
        team = Team(size, "threadIdx.x", "threadIdx.z" if 1 < exchange_lanes < size else "threadIdx.y", scope.name, exchange_lanes)
    group = None
    if rows:
        *outer, row = rows
        rows_per_block = device_threads(context).block // size
        extent = loop_extent(s, row)
        while rows_per_block > 1 and isinstance(extent, arith.Const) and rows_per_block >= 2 * extent.value:
            rows_per_block //= 2
        if rows_per_block > 1:
            row, _ = s.split(row, (None, rows_per_block))
        group = s.fuse(*outer, row) if outer else row
        for name in reversed(kernel.names):
            s.compute_at(name, group)
    for name in kernel.names:
        block = next(block for block in collect_blocks(s.program) if block.name == name)
        if block.init is not None:
            reduce_in_team(s, name, group, team, lanes[name])
        else:
            work_in_team(s, name, group, team, 0)
    work_in_team(s, kernel.final, group, team, len(columns), lanes[kernel.final] if columns else 1)
    if group is not None:
        s.bind(group, BLOCKS)
    for name in kernel.scalars:
        s.set_scope(name, team.result)
