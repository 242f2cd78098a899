"""Sums of products on grids of threads: matrix products and convolutions.

A block of threads computes a tile of rows and columns, each thread some of them in registers. Where threads share memory, they
fetch the tiles of both factors for a step of the depth together, in a phase beside the one that computes; else each thread fetches
what it needs itself. Where tiles are few, the depth is cut into parts, which a second kernel adds up.

Instructions for products of small matrices enter in `_through_shared`, behind `_nest_of_sum`: a tensor intrinsic of the target's
takes the place of the loops over `ki` and over a thread's rows and columns, copies of both factors in a scope of the target's own
the place of registers, and a subgroup that of a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlaid import arith
from inlaid.arith import ONE, Const, Var
from inlaid.errors import ScheduleError
from inlaid.schedules.rule import Decision, Given, KernelContext, Offer, Traced
from inlaid.schedules.shape import axis_loops, blocks_of, loop_extent, present
from inlaid.schedules.threads.contraction import Axis, Contraction, extent_of, prepared
from inlaid.schedules.threads.each import bound_elements
from inlaid.schedules.threads.tile_model import Memory, Problem, rank_tilings, shared_bytes
from inlaid.schedules.threads.tiles import TILE_PRODUCT, Side, Tiling, runs_along
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR

COLUMN_BLOCKS, ROW_BLOCKS, BATCHES = "blockIdx.x", "blockIdx.y", "blockIdx.z"
COLUMN_THREADS, ROW_THREADS = "threadIdx.x", "threadIdx.y"
THREAD_AXES = {"mt": ROW_THREADS, "nt": COLUMN_THREADS}
OWN_LOOPS = ("mj", "mv", "nj", "nv")
"""Names of loops of a tile: over threads, and over the rows and columns that a thread has itself."""
PARTS = (1, 2, 4, 8, 16, 32, 64)
"""Into how many parts a depth may be cut."""
BANKS_BYTES, VECTOR_BYTES = 128, 16
"""Bytes of all banks of shared memory, and of the widest access to it: so much longer are the lines of a tile, so that threads that
store a column of it meet in few banks, and vectors stay aligned."""


@dataclass(frozen=True)
class _Plan:
    """A sum of products to schedule: its tiling, the name of shared memory ("": there is none), copies of a tile there, and the
    bytes of a vector."""

    schedule: Schedule
    found: Contraction
    tiling: Tiling
    shared: str
    stages: int
    vector_bytes: int


class ProductRule:
    """Sums of products, as `find_contraction` finds them: of rows and columns, in any order of dimensions and for any size."""

    name = "thread_product"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines sums of a single product, those without columns, which share nothing, those of fewer elements than blocks have
        threads, and those of which the primitives cannot tell that threads store elements of their own."""
        threads = context.capabilities.threads
        assert threads is not None, "a rule for threads schedules for threads"
        made = prepared(program)
        if made is None:
            return None
        s, found = made
        if not found.columns or _known(extent_of(found.depth)) in (0, 1):
            return None
        scope = next((scope for scope in context.capabilities.scopes if scope.owner == "block"), None)
        problem, memory = _problem(found), Memory(0 if scope is None else scope.capacity)
        tilings = rank_tilings(problem, threads, memory)
        if not tilings and scope is not None:  # not even the smallest tiles fit there
            scope, memory = None, Memory(0)
            tilings = rank_tilings(problem, threads, memory)
        if not tilings:
            return None
        best, legal = tilings[0], [_numbers(tiling) for tiling in tilings]
        tile = context.decide("tile", legal, _numbers(best))
        tiling = _tiling(tile.numbers)
        stages = _stages(tiling, problem, memory, found, context)
        plan = _Plan(s, found, tiling, "" if scope is None else scope.name, stages.number, threads.vector_bytes)
        for most in dict.fromkeys((best.parts, 1)):
            parts = context.decide("parts", PARTS, most)
            try:
                scheduled = _schedule(replace(plan, tiling=replace(tiling, parts=parts.number)), context)
            except ScheduleError:
                continue
            schedule = Traced(lambda scheduled=scheduled: scheduled)  # type: ignore[misc]
            return Offer((ROW_MAJOR,) * len(program.params), schedule, decisions=(tile, parts, stages))
        return None


def _known(extent: arith.Expr) -> int | None:
    return extent.value if isinstance(extent, Const) else None


def _problem(found: Contraction) -> Problem:
    rows, columns, depth, batch = (
        arith.size_hint(arith.unwrap(extent_of(axes))) for axes in (found.rows, found.columns, found.depth, found.batch)
    )
    left, right = found.left.dtype.bytes, found.right.dtype.bytes
    return Problem(rows, columns, depth, batch, left, right, max(found.anchor.buffer.dtype.bytes // 4, 1))


def _numbers(tiling: Tiling) -> tuple[int, ...]:
    sides = (tiling.rows, tiling.columns)
    return (*(number for side in sides for number in (side.threads, side.runs, side.lanes)), tiling.depth)


def _tiling(numbers: tuple[int, ...]) -> Tiling:
    return Tiling(Side(*numbers[:3]), Side(*numbers[3:6]), numbers[6])


def _stages(tiling: Tiling, problem: Problem, memory: Memory, found: Contraction, context: KernelContext) -> Decision:
    """Whether a tile is fetched while the one before is used: it takes one barrier a step instead of two, and twice the memory."""
    depth = _known(extent_of(found.depth))
    able = bool(memory.shared) and depth is not None and 2 * shared_bytes(tiling, problem) <= memory.shared
    return context.decide("stages", (1, 2) if able else (1,), 2 if able else 1)


def _schedule(plan: _Plan, context: KernelContext) -> Schedule:
    """
    for batch, rows, columns, blocks:
        for ty, tx, threads: acc = 0
        for q:
            for ty, tx, threads: left = ...       # the tile of a step, in shared memory
            for ty, tx, threads: right = ...
            for ty, tx, threads: for ki: acc += left * right
        for ty, tx, threads: out = after(acc)

    and, without shared memory,

    for batch, rows, columns, blocks:
        for ty, tx, threads:
            acc = 0
            for q:
                left = ...                        # a thread's own rows, in registers
                right = ...
                acc += left * right               # ki unrolled
            out = after(acc)
    """
    s, tiling = plan.schedule.copy(), plan.tiling
    sides = [(side.threads, side.runs, side.lanes) for side in (tiling.rows, tiling.columns)]
    s.apply(TILE_PRODUCT, *sides, tiling.depth, tiling.parts)
    left, right, total, store, *rest = s.blocks
    outside, threads = _outer_loops(s, store)
    if plan.shared:
        _through_shared(s, plan, (left, right, total), outside)
    else:
        _in_threads(s, plan, (left, right, total), [*outside, *threads])
    _bind_threads(s, store)
    _mark_own(s, store, _stores_vectors(s, store))
    for loop, axis in zip(reversed(outside), (COLUMN_BLOCKS, ROW_BLOCKS, BATCHES), strict=False):
        s.bind(loop, axis)
    if tiling.parts > 1:
        add, final, *rest = rest
        (element,) = s.loops(final)
        grid, thread = s.split(element, (None, context.capabilities.threads.block if context.capabilities.threads else 1))
        s.compute_at(add, thread)
        s.bind(grid, COLUMN_BLOCKS)
        s.bind(thread, COLUMN_THREADS)
    for name in rest:
        s = bound_elements(s, _block(s, name), context)
    return s


def _outer_loops(s: Schedule, store: str) -> tuple[list[Var], list[Var]]:
    """The loops over blocks around what is stored, batches and parts as one, and those over threads."""
    loops = list(s.loops(store))
    names = [_name(loop) for loop in loops]
    first = names.index("mt")
    outside, threads = loops[:first], loops[first : first + 2]
    return ([s.fuse(*outside[:-2]), *outside[-2:]] if first > 3 else outside), threads


def _name(loop: Var) -> str:
    """What a loop goes over, by the names of `tiles`."""
    return loop.name.removeprefix("v")


def _block(s: Schedule, name: str) -> ir.Block:
    return next(block for block in blocks_of(s.program) if block.name == name)


def _sides(plan: _Plan) -> tuple[tuple[Side, ir.Expr, tuple[Axis, ...]], ...]:
    """How both factors are shared out, what they are, and along which axes besides the depth."""
    found, tiling = plan.found, plan.tiling
    return ((tiling.rows, found.left, found.rows), (tiling.columns, found.right, found.columns))


def _nest_of_sum(s: Schedule, total: str, around: int) -> tuple[Var | None, Var | None, str | None]:
    """Put the loops of a tile's sum in order: steps, threads, depth of a step, and each thread's own; its init apart. Steps and
    depth, None where there is one, and the block of the init."""
    *_, steps, depth = axis_loops(s, total)
    own = [loop for loop in s.loops(total)[around:] if loop is not steps and loop is not depth]
    threads = [loop for loop in own if _name(loop) in THREAD_AXES]
    nest = [*present(steps), *threads, *present(depth), *(loop for loop in own if loop not in threads)]
    if len(nest) > 1:
        s.reorder(*nest)
    return steps, depth, s.decompose_reduction(total, nest[0]) if nest else None


def _through_shared(s: Schedule, plan: _Plan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Place the sum of a block's tile, and the phases that fetch a step of it."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, _, init = _nest_of_sum(s, total, len(outside))
    for name, (side, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, plan.shared)
        _fetch_together(s, plan, name, s.loops(name)[len(outside) + (steps is not None) :], side, value, axes)
    for name in (*([] if init is None else [init]), total):
        _bind_threads(s, name)
        _mark_own(s, name)
    if plan.stages > 1 and steps is not None:
        s.software_pipeline(steps, (0, 0, 1))
    for name, (side, value, _) in zip(factors, _sides(plan), strict=True):
        _widen(s, name, side.size, value.dtype.bytes)


def _fetch_together(
    s: Schedule, plan: _Plan, name: str, loops: Sequence[Var], side: Side, value: ir.Expr, axes: tuple[Axis, ...]
) -> None:
    """Share out the elements of a tile among all threads, neighbours to neighbours."""
    if not loops:
        return
    tiling = plan.tiling
    along_depth = runs_along(value, plan.found.depth, axes)
    run, run_axes = (tiling.depth, plan.found.depth) if along_depth else (side.size, axes)
    lanes = _vector(value, run_axes, plan.vector_bytes)
    while lanes > 1 and (run % lanes or tiling.depth * side.size % (tiling.threads * lanes)):
        lanes //= 2
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    _, row, column, lane = s.split(flat, (None, tiling.rows.threads, tiling.columns.threads, lanes))
    s.bind(row, ROW_THREADS)
    s.bind(column, COLUMN_THREADS)
    if lanes > 1:
        s.vectorize(lane)


def _vector(value: ir.Expr, axes: tuple[Axis, ...], vector_bytes: int) -> int:
    """How many neighbours along axes are loaded at once: those of one run of memory, which ends where a vector does."""
    size = _known(extent_of(axes))
    if not isinstance(value, ir.Load) or not axes or size is None or not runs_along(value, axes, ()):
        return 1
    places = [place for place, index in enumerate(value.indices) for axis in axes if index is axis.var]
    together = len(places) == len(axes) and places == list(range(places[0], places[0] + len(axes)))
    within = size if together else _known(axes[-1].extent) or 1
    lanes = max(vector_bytes // value.dtype.bytes, 1)
    while size % lanes or within % lanes:
        lanes //= 2
    return lanes


def _widen(s: Schedule, name: str, size: int, bytes_: int) -> None:
    """Make the lines of a shared tile longer by a vector, so that those of one column lie in several banks."""
    buffer = next(stmt.buffer for stmt in ir.walk_stmts(s.program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.name == name)
    factor, more = min(size & -size, BANKS_BYTES // bytes_), VECTOR_BYTES // bytes_
    if more < factor and len(buffer.shape) > 1:
        s.storage_align(name, len(buffer.shape) - 2, factor, more)


def _in_threads(s: Schedule, plan: _Plan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Place the sum of a thread's own rows and columns, and the loads of a step of it."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, depth, init = _nest_of_sum(s, total, len(outside))
    for name, (_, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, "register")
        loops = s.loops(name)[len(outside) + (steps is not None) :]
        along_depth = runs_along(value, plan.found.depth, axes)
        run = plan.found.depth if along_depth else axes
        vectors = _name(loops[-1]) == ("ki" if along_depth else _name(loops[-1])) if loops else False
        lanes = _vector(value, run, plan.vector_bytes) if vectors else 1
        _unroll_or_vectorize(s, loops, lanes)
    if depth is not None:
        s.unroll(depth)
    for name in (*([] if init is None else [init]), total):
        _mark_own(s, name)


def _unroll_or_vectorize(s: Schedule, loops: Sequence[Var], lanes: int) -> None:
    """Unroll loops but for the innermost, which becomes a vector where it is as long as one, or several."""
    for loop in loops[:-1]:
        s.unroll(loop)
    if loops:
        extent = _known(loop_extent(s, loops[-1]))
        if lanes > 1 and extent is not None and extent % lanes == 0:
            lane = loops[-1]
            if extent > lanes:
                outer, lane = s.split(lane, (None, lanes))
                s.unroll(outer)
            s.vectorize(lane)
        else:
            s.unroll(loops[-1])


def _bind_threads(s: Schedule, name: str) -> None:
    """Bind the loops over rows and columns of threads around a block."""
    for loop in s.loops(name):
        if _name(loop) in THREAD_AXES:
            s.bind(loop, THREAD_AXES[_name(loop)])


def _mark_own(s: Schedule, name: str, vectors: bool = True) -> None:
    """Unroll the loops over a thread's own rows and columns; neighbouring columns become vectors."""
    for loop in s.loops(name):
        if vectors and _name(loop) == "nv" and loop_extent(s, loop) != arith.ONE:
            s.vectorize(loop)
        elif _name(loop) in OWN_LOOPS:
            s.unroll(loop)


def _stores_vectors(s: Schedule, store: str) -> bool:
    """Whether neighbouring columns of a thread are neighbours where they are stored."""
    block = _block(s, store)
    assert isinstance(block.body, ir.Store)
    lane = next(item.var for item in block.iters if _name(item.var) == "nv")
    if not block.body.indices:
        return False
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    steps = [arith.affine(analyzer.simplify(index), lane) for index in block.body.indices]
    return all(step is not None and step[0] == arith.ZERO for step in steps[:-1]) and steps[-1] is not None and steps[-1][0] == ONE
