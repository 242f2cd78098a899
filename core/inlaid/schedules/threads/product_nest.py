"""The loops of a sum of products over tiles, from the form that `tiles` gives it: fetched together, or by each thread for itself.

A target's instructions on small matrices have a rule of the target's own over the same form: a tensor intrinsic takes the place of
the loops over `ki` and over a thread's rows and columns, copies of both factors in a scope of the target's own that of registers,
and a subgroup that of a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import ONE, Const, Var
from inlaid.schedules.shape import axis_loops, blocks_of, loop_extent, present
from inlaid.schedules.threads.contraction import Axis, Contraction, extent_of
from inlaid.schedules.threads.tiles import Side, Tiling, runs_along
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule

COLUMN_BLOCKS, ROW_BLOCKS, BATCHES = "blockIdx.x", "blockIdx.y", "blockIdx.z"
COLUMN_THREADS, ROW_THREADS = "threadIdx.x", "threadIdx.y"
THREAD_AXES = {"mt": ROW_THREADS, "nt": COLUMN_THREADS}
OWN_LOOPS = ("mj", "mv", "nj", "nv")
"""Names of loops of a tile: over threads, and over the rows and columns that a thread has itself."""
BANKS_BYTES, VECTOR_BYTES = 128, 16
"""Bytes of all banks of shared memory, and of the widest access to it: so much longer are the lines of a tile, so that threads that
store a column of it meet in few banks, and vectors stay aligned."""


@dataclass(frozen=True)
class ProductPlan:
    """A sum of products to schedule: its tiling, the name of shared memory ("": there is none), copies of a tile there, and the
    bytes of a vector."""

    schedule: Schedule
    found: Contraction
    tiling: Tiling
    shared: str
    stages: int
    vector_bytes: int


def known_extent(extent: arith.Expr) -> int | None:
    """A constant extent; None for a symbolic one."""
    return extent.value if isinstance(extent, Const) else None


def loop_of(loop: Var) -> str:
    """What a loop goes over, by the names of `tiles`."""
    return loop.name.removeprefix("v")


def block_of(s: Schedule, name: str) -> ir.Block:
    """The block of a name."""
    return next(block for block in blocks_of(s.program) if block.name == name)


def _sides(plan: ProductPlan) -> tuple[tuple[Side, ir.Expr, tuple[Axis, ...]], ...]:
    """How both factors are shared out, what they are, and along which axes besides the depth."""
    found, tiling = plan.found, plan.tiling
    return ((tiling.rows, found.left, found.rows), (tiling.columns, found.right, found.columns))


def nest_of_sum(s: Schedule, total: str, around: int) -> tuple[Var | None, Var | None, str | None]:
    """Put the loops of a tile's sum in order: steps, threads, depth of a step, and each thread's own; its init apart. Steps and
    depth, None where there is one, and the block of the init."""
    *_, steps, depth = axis_loops(s, total)
    own = [loop for loop in s.loops(total)[around:] if loop is not steps and loop is not depth]
    threads = [loop for loop in own if loop_of(loop) in THREAD_AXES]
    nest = [*present(steps), *threads, *present(depth), *(loop for loop in own if loop not in threads)]
    if len(nest) > 1:
        s.reorder(*nest)
    return steps, depth, s.decompose_reduction(total, nest[0]) if nest else None


def through_shared(s: Schedule, plan: ProductPlan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Place the sum of a block's tile, and the phases that fetch a step of it."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, depth, init = nest_of_sum(s, total, len(outside))
    for name, (side, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, plan.shared)
        _fetch_together(s, plan, name, s.loops(name)[len(outside) + (steps is not None) :], side, value, axes)
    if depth is not None:
        for name in factors:
            _keep_own(s, total, name, depth)
    for name in (*([] if init is None else [init]), total):
        bind_threads(s, name)
        mark_own(s, name)
    if plan.stages > 1 and steps is not None:
        s.software_pipeline(steps, (0, 0, 1))
    for name, (side, value, _) in zip(factors, _sides(plan), strict=True):
        _widen(s, name, side.threads * side.lanes, value.dtype.bytes)


def _keep_own(s: Schedule, total: str, name: str, depth: Var) -> None:
    """Load what a thread needs of a shared tile for one place along the depth into registers, by vectors."""
    fragment = s.cache_read(total, name, "register")
    s.compute_at(fragment, depth)
    loops = s.loops(fragment)
    inner = loops[loops.index(depth) + 1 :]
    if inner:
        _unroll_or_vectorize(s, inner, known_extent(loop_extent(s, inner[-1])) or 1)


def _fetch_together(
    s: Schedule, plan: ProductPlan, name: str, loops: Sequence[Var], side: Side, value: ir.Expr, axes: tuple[Axis, ...]
) -> None:
    """Share out the elements of a tile among all threads, neighbours to neighbours."""
    if not loops:
        return
    tiling = plan.tiling
    along_depth = runs_along(value, plan.found.depth, axes)
    run, run_axes = (tiling.depth, plan.found.depth) if along_depth else (side.threads * side.lanes, axes)
    lanes = vector_lanes(value, run_axes, plan.vector_bytes)
    while lanes > 1 and (run % lanes or tiling.depth * side.size % (tiling.threads * lanes)):
        lanes //= 2
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    turn, row, column, lane = s.split(flat, (None, tiling.rows.threads, tiling.columns.threads, lanes))
    s.reorder(row, column, turn)
    s.bind(row, ROW_THREADS)
    s.bind(column, COLUMN_THREADS)
    if lanes > 1:
        s.vectorize(lane)


def vector_lanes(value: ir.Expr, axes: tuple[Axis, ...], vector_bytes: int) -> int:
    """How many neighbours along axes are loaded at once: those of one run of memory, which ends where a vector does."""
    size = known_extent(extent_of(axes))
    if not isinstance(value, ir.Load) or not axes or size is None or not runs_along(value, axes, ()):
        return 1
    places = [place for place, index in enumerate(value.indices) for axis in axes if index is axis.var]
    together = len(places) == len(axes) and places == list(range(places[0], places[0] + len(axes)))
    within = size if together else known_extent(axes[-1].extent) or 1
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


def in_threads(s: Schedule, plan: ProductPlan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Place the sum of a thread's own rows and columns, and the loads of a step of it."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, depth, init = nest_of_sum(s, total, len(outside))
    for name, (_, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, "register")
        loops = s.loops(name)[len(outside) + (steps is not None) :]
        along_depth = runs_along(value, plan.found.depth, axes)
        run = plan.found.depth if along_depth else axes
        vectors = loop_of(loops[-1]) == ("ki" if along_depth else loop_of(loops[-1])) if loops else False
        lanes = vector_lanes(value, run, plan.vector_bytes) if vectors else 1
        _unroll_or_vectorize(s, loops, lanes)
    if depth is not None:
        s.unroll(depth)
    for name in (*([] if init is None else [init]), total):
        mark_own(s, name)


def _unroll_or_vectorize(s: Schedule, loops: Sequence[Var], lanes: int) -> None:
    """Unroll loops but for the innermost, which becomes a vector where it is as long as one, or several."""
    for loop in loops[:-1]:
        s.unroll(loop)
    if loops:
        extent = known_extent(loop_extent(s, loops[-1]))
        if lanes > 1 and extent is not None and extent % lanes == 0:
            lane = loops[-1]
            if extent > lanes:
                outer, lane = s.split(lane, (None, lanes))
                s.unroll(outer)
            s.vectorize(lane)
        else:
            s.unroll(loops[-1])


def bind_threads(s: Schedule, name: str) -> None:
    """Bind the loops over rows and columns of threads around a block."""
    for loop in s.loops(name):
        if loop_of(loop) in THREAD_AXES:
            s.bind(loop, THREAD_AXES[loop_of(loop)])


def mark_own(s: Schedule, name: str, vectors: bool = True) -> None:
    """Unroll the loops over a thread's own rows and columns; neighbouring columns become vectors."""
    for loop in s.loops(name):
        if vectors and loop_of(loop) == "nv" and loop_extent(s, loop) != arith.ONE:
            s.vectorize(loop)
        elif loop_of(loop) in OWN_LOOPS:
            s.unroll(loop)


def stores_vectors(s: Schedule, store: str) -> bool:
    """Whether neighbouring columns of a thread are neighbours where they are stored."""
    block = block_of(s, store)
    assert isinstance(block.body, ir.Store)
    lane = next(item.var for item in block.iters if loop_of(item.var) == "nv")
    if not block.body.indices:
        return False
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    steps = [arith.affine(analyzer.simplify(index), lane) for index in block.body.indices]
    return all(step is not None and step[0] == arith.ZERO for step in steps[:-1]) and steps[-1] is not None and steps[-1][0] == ONE
