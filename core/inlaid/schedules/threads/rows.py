"""Reductions along rows or across them, with all that is element-wise around: softmax, norms, means, extremes.

The threads of a block share rows where they share memory; elsewhere a thread has a row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Var
from inlaid.errors import ScheduleError
from inlaid.schedules.collapse import collapsed, without_empty
from inlaid.schedules.row_shape import inline_around, is_loose, reduces_across, reduces_along, row_buffers
from inlaid.schedules.rule import Decision, Given, KernelContext, Offer, Traced
from inlaid.schedules.shape import axis_loops, blocks_of, is_static, loop_extent, present
from inlaid.schedules.threads.cooperate import Team, reduce_in_team, reducing_loops, work_in_team
from inlaid.schedules.threads.elementwise import lanes_of
from inlaid.schedules.threads.grid import BLOCKS, bind_flat, exchanging, expected, shared_scope, threads_of
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR

LEAST = 4
"""Elements of a row for each thread of a team: below, putting partial results together takes longer than what is saved."""

LONG = 64
"""Elements of a row for each thread from which on a second kernel is worth its launch."""


@dataclass(frozen=True)
class _Kernel:
    """`names` are the blocks before the last one, `final`, that have to do with its rows; `scalars` the buffers of a value for each
    row; `rows` the places of the iteration variables of the last block in which reductions differ. `along`: a reduction runs over
    neighbouring elements; else neighbouring rows do."""

    names: tuple[str, ...]
    loose: tuple[str, ...]
    scalars: tuple[str, ...]
    final: str
    rows: tuple[int, ...]
    along: bool


class RowsRule:
    """Reductions of rows, in any number, and element-wise blocks before, between and after them."""

    name = "rows"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines reductions of anything but plain rows, several results, and whatever a primitive refuses."""
        if len(program.outputs) != 1 or program.defines or without_empty(program) is None:
            return None
        if not any(block.init is not None for block in blocks_of(program)):
            return None
        s = collapsed(program)
        try:
            inline_around(s, everything=True)
            kernel = _kernel(s)
            if kernel is None:
                return None
            row, column = _extents(s, kernel)
            team = context.decide("team", _teams(context), _team(context, row, column, kernel.along))
            pieces = _pieces(s, kernel, team.number, context)
            if pieces.number > 1:
                first = _split(s, kernel, pieces.number)
                _schedule(s, first, team.number, context)
                last = _team(context, row, pieces.number, kernel.along)
                _schedule(s, kernel, last, context)
            else:
                _schedule(s, kernel, team.number, context)
            _bind_loose(s, kernel, context)
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: s), decisions=(team, pieces))


def _kernel(s: Schedule) -> _Kernel | None:
    """What a kernel consists of; None where its reductions run neither all along rows nor all across."""
    last = blocks_of(s.program)[-1]
    final = last.name if last.init is None else s.cache_write(last.name)
    *producers, last = blocks_of(s.program)
    reductions = [block for block in producers if block.init is not None]
    if not isinstance(last.body, ir.Store) or last.body.indices != tuple(item.var for item in last.iters):
        return None
    along = all(reduces_along(block, shortest=1) for block in reductions)
    if not along and not all(map(reduces_across, reductions)):
        return None
    scalars = row_buffers(producers)
    used: set[arith.Expr] = set()
    for node in ir.walk_exprs(last.body.value):
        if isinstance(node, ir.Load) and node.buffer.name in scalars:
            used = used.union(*map(arith.free_vars, node.indices))
    rows = tuple(place for place, item in enumerate(last.iters) if item.var in used and item.extent != arith.ONE)
    if not along and not rows:
        return None
    loose = [block.name for block in producers if is_loose(block, scalars)]
    names = [block.name for block in producers if block.name not in loose]
    return _Kernel(tuple(names), tuple(loose), tuple(scalars), final, rows, along)


def _extents(s: Schedule, kernel: _Kernel) -> tuple[int, int]:
    """How many rows there are, and how long the longest of the reductions is, as far as is known."""
    rows = columns = 1
    for block in blocks_of(s.program):
        if block.name == kernel.final:
            for place in kernel.rows:
                rows *= expected(block.iters[place].extent)
        elif block.init is not None:
            length = 1
            for item in block.iters:
                length *= expected(item.extent) if item.kind is ir.IterKind.REDUCTION else 1
            columns = max(columns, length)
    return rows, columns


def _teams(context: KernelContext) -> list[int]:
    """How many threads may share a row: powers of two."""
    threads = threads_of(context)
    return [1 << step for step in range(threads.block.bit_length())] if shared_scope(context) else [1]


def _team(context: KernelContext, rows: int, columns: int, along: bool) -> int:
    """Threads for a row: as many as fill the device with all rows, and no more than have `LEAST` elements each. A subgroup reads
    neighbouring elements at once: those of a row, or those of neighbouring rows, which then have to be in one block."""
    threads = threads_of(context)
    wanted = -(-threads.resident // max(rows, 1))
    most = min(max(wanted, threads.subgroup), threads.block) if along else min(wanted, threads.block // threads.subgroup)
    return max(size for size in _teams(context) if size == 1 or size <= min(most, columns // LEAST))


def _pieces(s: Schedule, kernel: _Kernel, team: int, context: KernelContext) -> Decision:
    """Into how many pieces to cut rows, each of which a team of its own reduces, before another kernel puts their results together:
    as many as fill the device, of `LONG` elements a thread. Several reductions would each take two kernels: rows stay whole."""
    if sum(block.init is not None for block in blocks_of(s.program)) != 1:
        return context.decide("pieces", (1,), 1)
    rows, columns = _extents(s, kernel)
    resident = threads_of(context).resident
    # Where nobody knows how long rows are, a launch too many costs less than a device that is idle.
    least = LONG if is_static(s.program) else LEAST
    best = max(min(resident // (max(rows, 1) * team), columns // (least * team)), 1)
    return context.decide("pieces", (1 << step for step in range(resident.bit_length())), 1 << (best.bit_length() - 1))


def _split(s: Schedule, kernel: _Kernel, pieces: int) -> _Kernel:
    """Reduce pieces of rows. The kernel that does so, before the one that is left."""
    block = next(block for block in blocks_of(s.program) if block.init is not None)
    loops = reducing_loops(s, block.name)
    loop = s.fuse(*loops) if len(loops) > 1 else loops[0]
    piece, _ = s.split(loop, (pieces, None))
    assert isinstance(block.body, ir.Store)
    part = s.rfactor(block.name, piece, len(block.body.indices) if kernel.along else 0)
    stored = s.cache_write(part)
    made = next(block for block in blocks_of(s.program) if block.name == stored)
    rows = tuple(place for place, item in enumerate(made.iters) if item.extent != arith.ONE)
    return _Kernel((part,), (), (stored,), stored, rows, kernel.along)


def _bind_loose(s: Schedule, kernel: _Kernel, context: KernelContext) -> None:
    for name in kernel.loose:
        for loop in s.loops(name)[:1]:
            bind_flat(s, loop, threads_of(context).block)


def _schedule(s: Schedule, kernel: _Kernel, team: int, context: KernelContext) -> None:
    """
    for rows, blocks:
        for each reduction: its partial results, by thread; these, by fewer threads; the reduction, by one
        for columns, threads: out = g(x, reduced)
    """
    loops = axis_loops(s, kernel.final)
    rows = present(*(loops[place] for place in kernel.rows))
    columns = [loop for loop in present(*loops) if loop not in rows]
    if rows and columns:
        s.reorder(*rows, *columns)
    if team == 1:
        _alone(s, kernel, rows, context)
    else:
        _together(s, kernel, rows, columns, team, context)


def _alone(s: Schedule, kernel: _Kernel, rows: list[Var], context: KernelContext) -> None:
    """A thread for each row."""
    if not rows:
        return
    row = s.fuse(*rows) if len(rows) > 1 else rows[0]
    extent = loop_extent(s, row)
    block = threads_of(context).block
    count = max(min(block, extent.value), 1) if isinstance(extent, arith.Const) else block
    outer, row = s.split(row, (None, count))
    for name in reversed(kernel.names):
        s.compute_at(name, row)
    s.bind(outer, BLOCKS)
    s.bind(row, "threadIdx.x")
    for name in kernel.scalars:
        s.set_scope(name, "register")


def _together(s: Schedule, kernel: _Kernel, rows: list[Var], columns: list[Var], size: int, context: KernelContext) -> None:
    """Several threads for each row, and several rows for each block."""
    scope = shared_scope(context)
    assert scope is not None, "threads put partial results together in memory that they share"
    width = threads_of(context).vector_bytes if kernel.along else 0
    lanes = {block.name: lanes_of(block, width) for block in blocks_of(s.program)}
    team = Team(size, "threadIdx.y", "threadIdx.x", scope.name)
    if kernel.along:
        exchanged = min(size, exchanging(context))
        team = Team(size, "threadIdx.x", "threadIdx.z" if 1 < exchanged < size else "threadIdx.y", scope.name, exchanged)
    group = None
    if rows:
        *outer, row = rows
        beside = threads_of(context).block // size
        extent = loop_extent(s, row)
        while beside > 1 and isinstance(extent, arith.Const) and beside >= 2 * extent.value:
            beside //= 2
        if beside > 1:
            row, _ = s.split(row, (None, beside))
        group = s.fuse(*outer, row) if outer else row
        for name in reversed(kernel.names):
            s.compute_at(name, group)
    for name in kernel.names:
        block = next(block for block in blocks_of(s.program) if block.name == name)
        if block.init is not None:
            reduce_in_team(s, name, group, team, lanes[name])
        else:
            work_in_team(s, name, group, team, 0)
    work_in_team(s, kernel.final, group, team, len(columns), lanes[kernel.final] if columns else 1)
    if group is not None:
        s.bind(group, BLOCKS)
    for name in kernel.scalars:
        s.set_scope(name, team.result)
