"""Teams of threads that reduce rows cooperatively, through shared memory and subgroup shuffles."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.schedules.shape import axis_loops, loop_extent
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.memory_scopes import SUBGROUP
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError

SUBGROUPS = "threadIdx.y"
STEP = 4
"""Fan-in of the reduction tree. A fan-in of 2 has a shorter chain of additions per level, but twice the barriers."""


@dataclass(frozen=True)
class Team:
    """`size` threads along `axis` that share a row; axis `rows` runs over the rows of a block.

    scope: memory that the team shares. Threads adjacent along x access adjacent elements, which are in different banks.
    lanes: threads of a subgroup, adjacent along x, that read one another's registers; 1 if threads cannot. If a team has several
    subgroups, they are along axis `SUBGROUPS`, and the rows are along a third axis.
    """

    size: int
    axis: str
    rows: str
    scope: str
    lanes: int = 1

    @property
    def result(self) -> str:
        """Memory scope of a value that one thread computes and all threads of the team read."""
        return SUBGROUP if 1 < self.lanes == self.size else self.scope


def reduce_in_team(s: Schedule, name: str, group: Var | None, team: Team, lanes: int = 1) -> None:
    """Reduce rows by a tree over the threads of a team:

    for rows: for k: acc[row] += f(row, k)
    becomes
    for rows: for t in 32, threads: { own = 0; for k: own += f(row, k * 32 + t); part[row, t] = own }
    for rows: for t in 8, threads: less[row, t] = part[row, t] + part[row, t + 8] + part[row, t + 16] + part[row, t + 24]
    for rows: for t in 2, threads: ...
    for rows: acc[row] = last[row, 0] + last[row, 1]

    where `own` is a vector of several `lanes`, which must divide the innermost extent. In a team with subgroups, `part` and `less`
    are registers of scope `SUBGROUP` while only threads of one subgroup read them.
    """
    reducing = reducing_loops(s, name)
    if not reducing:
        raise ScheduleError(f"block {name} must have a reduction loop, found none")
    inner = reducing[-1]
    if len(reducing) > 1 and _shorter(s, inner, team.size * lanes):
        inner = s.fuse(*reducing)
    _, thread = s.split(inner, (None, team.size * lanes))
    vectors = None
    if lanes > 1:
        vectors = s.rfactor(name, thread, _rank(s, name))
        (loop,) = reducing_loops(s, name)
        thread, _ = s.split(loop, (team.size, lanes))
    _store_parts(s, name, thread, group, team, vectors)
    if team.lanes > 1:
        _reduce_subgroups(s, name, group, team)
    else:
        length = team.size
        while length > STEP:
            length //= STEP
            (loop,) = reducing_loops(s, name)
            _, part_loop = s.split(loop, (None, length))
            _store_parts(s, name, part_loop, group, team)
    for loop in reducing_loops(s, name):
        s.unroll(loop)
    work_in_team(s, name, group, team, 0)


def _reduce_subgroups(s: Schedule, name: str, group: Var | None, team: Team) -> None:
    """Reduce partial results by a tree within each subgroup:

    for k in 64: acc[row] += part[row, k]
    becomes
    for g in 2, subgroups: for t in 16, lanes: less[row, g * 16 + t] = part[row, g * 32 + t] + part[row, g * 32 + 16 + t]
    and so on, down to one value per subgroup, in memory that the team shares; in a team of one subgroup, down to two values
    for g in 2: acc[row] += last[row, g]
    """
    has_subgroups = team.size > team.lanes
    lanes = team.lanes
    while lanes > (1 if has_subgroups else 2):
        lanes //= 2
        (loop,) = reducing_loops(s, name)
        if lanes == 1:
            part_loop, _ = s.split(loop, (None, 2))
        elif has_subgroups:
            subgroup, half, lane = s.split(loop, (None, 2, lanes))
            s.reorder(subgroup, lane, half)
            part_loop = s.fuse(subgroup, lane)
        else:
            _, part_loop = s.split(loop, (2, lanes))
        _store_parts(s, name, part_loop, group, team, lanes=lanes)


def work_in_team(s: Schedule, name: str, group: Var | None, team: Team, columns: int, lanes: int = 1) -> None:
    """Bind the loops of a block inside loop `group`: the innermost `columns` loops to the threads of the team, in vectors of
    `lanes`, and the loop around them, if any, to the axis of rows."""
    inner = _inside(s, name, group)
    block = next(block for block in collect_blocks(s.program) if block.name == name)
    reduction_loops = {
        loop for item, loop in zip(block.iters, axis_loops(s, name), strict=True) if item.kind is ir.IterKind.REDUCTION
    }
    inner = [loop for loop in inner if loop not in reduction_loops]
    rows = inner[: len(inner) - columns]
    if len(rows) > 1:
        raise ScheduleError(f"block {name} must have at most one row loop in a group, found {len(rows)}")
    if columns:
        last = inner[-1]
        if lanes > 1:
            last, lane = s.split(last, (None, lanes))
            s.vectorize(lane)
            inner[-1] = last
        if columns > 1 and _shorter(s, last, team.size):
            last = s.fuse(*inner[-columns:])
            inner = [*rows, last]
        extent = loop_extent(s, last)
        count = max(min(team.size, extent.value), 1) if isinstance(extent, arith.Const) else team.size
        outer, thread = s.split(last, (None, count))
        s.reorder(*rows, thread, *inner[len(rows) : -1], outer)
        _bind_team(s, thread, count, team, team.lanes)
    for row in rows:
        s.bind(row, team.rows)


def _bind_team(s: Schedule, thread: Var, count: int, team: Team, lanes: int) -> None:
    """Bind a loop of `count` iterations to the threads of a team, `lanes` of them to each subgroup."""
    if team.lanes == 1 or count <= lanes:
        s.bind(thread, team.axis)
    elif lanes == 1:
        s.bind(thread, SUBGROUPS)
    else:
        subgroup, lane = s.split(thread, (None, lanes))
        s.bind(subgroup, SUBGROUPS)
        s.bind(lane, team.axis)


def _store_parts(
    s: Schedule, name: str, thread: Var, group: Var | None, team: Team, vectors: str | None = None, lanes: int = 0
) -> None:
    """Compute a partial result per iteration of a reduction loop in a register of its thread, and store it once.

    vectors: block that computes partial results in vector lanes first. lanes: threads per subgroup that combine partial results of
    the subgroup; 0 for all threads."""
    axis = _rank(s, name) if team.axis == "threadIdx.x" else 0
    part = s.rfactor(name, thread, axis)
    part_block = next(block for block in collect_blocks(s.program) if block.name == part)
    assert isinstance(part_block.body, ir.Store)
    store_block = s.cache_write(part, "register")
    team_loop = axis_loops(s, store_block)[axis]
    assert team_loop is not None, "a team must have several threads"
    rows = [loop for loop in _inside(s, store_block, group) if loop is not team_loop]
    if len(rows) > 1:
        raise ScheduleError(f"block {part} must have at most one row loop in a group, found {len(rows)}")
    s.reorder(*rows, team_loop)
    s.compute_at(part, team_loop)
    if vectors is not None:
        s.compute_at(vectors, team_loop)
        _reduce_lanes(s, vectors)
    if vectors is not None or lanes:
        for loop in _inside(s, part, team_loop):
            s.unroll(loop)
    for row in rows:
        s.bind(row, team.rows)
    _bind_team(s, team_loop, team.size // team.lanes * lanes or team.size, team, lanes or team.lanes)
    s.set_scope(part_block.body.buffer.name, SUBGROUP if team.lanes > 1 != lanes else team.scope)


def _rank(s: Schedule, name: str) -> int:
    """Return the rank of the buffer that a block writes."""
    block = next(block for block in collect_blocks(s.program) if block.name == name)
    assert isinstance(block.body, ir.Store)
    return len(block.body.indices)


def _reduce_lanes(s: Schedule, vectors: str) -> None:
    """Vectorize the partial results of a thread:

    for lane: { v[lane] = 0; for k: v[lane] += f(k, lane) }    becomes    v[lanes] = 0; for k: v[lanes] += f(k, lanes)
    """
    block = next(block for block in collect_blocks(s.program) if block.name == vectors)
    assert isinstance(block.body, ir.Store)
    s.set_scope(block.body.buffer.name, "register")
    reducing = reducing_loops(s, vectors)
    lane = next(loop for loop in reversed(s.loops(vectors)) if loop not in reducing)
    if reducing:
        s.reorder(*reducing, lane)
        s.vectorize(s.loops(s.decompose_reduction(vectors, reducing[0]))[-1])
    s.vectorize(lane)


def reducing_loops(s: Schedule, name: str) -> list[Var]:
    """Return the reduction loops of a block, outermost first."""
    block = next(block for block in collect_blocks(s.program) if block.name == name)
    kinds = zip(block.iters, axis_loops(s, name), strict=True)
    reductions = {loop for item, loop in kinds if item.kind is ir.IterKind.REDUCTION}
    return [loop for loop in s.loops(name) if loop in reductions]


def _inside(s: Schedule, name: str, outer: Var | None) -> list[Var]:
    """Return the loops of a block inside loop `outer`; all loops of the block for None."""
    loops = list(s.loops(name))
    return loops[loops.index(outer) + 1 :] if outer is not None else loops


def _shorter(s: Schedule, loop: Var, length: int) -> bool:
    extent = loop_extent(s, loop)
    return isinstance(extent, arith.Const) and extent.value < length
