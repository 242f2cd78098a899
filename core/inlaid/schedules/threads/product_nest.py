"""Build loop nests of tiled contractions from the form of `tiles`, with cooperative fetch or with loads by each thread.

A target with matrix instructions can add a rule over the same form. There a tensor intrinsic replaces the loops over `ki` and over
a thread's rows and columns, a memory scope of the target replaces registers, and a subgroup replaces a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlaid.schedules.shape import axis_loops, loop_extent, present
from inlaid.schedules.threads.contraction import Contraction, ContractionAxis, total_extent
from inlaid.schedules.threads.tiles import Side, Tiling, runs_along
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith
from inlaid_runtime.arith import ONE, Const, Var

COLUMN_BLOCKS, ROW_BLOCKS, BATCHES = "blockIdx.x", "blockIdx.y", "blockIdx.z"
COLUMN_THREADS, ROW_THREADS = "threadIdx.x", "threadIdx.y"
THREAD_AXES = {"mt": ROW_THREADS, "nt": COLUMN_THREADS}
REGISTER_LOOPS = ("mj", "mv", "nj", "nv")
"""Loop names of a tile: thread loops, and loops of the register tile."""
BANKS_BYTES, VECTOR_BYTES = 128, 16
"""Bytes of one row of all shared-memory banks, and of the widest access. Padding lines of a tile by the widest access avoids most
bank conflicts of column stores and keeps vectors aligned."""


@dataclass(frozen=True)
class ContractionPlan:
    """A contraction to schedule. `shared` is the scope of shared memory, "" for none; `stages` the copies of a shared tile, 2 for
    double buffering; `vector_bytes` the width of loads."""

    schedule: Schedule
    contraction: Contraction
    tiling: Tiling
    shared: str
    stages: int
    vector_bytes: int


def static_extent(extent: arith.Expr) -> int | None:
    """Return the value of a constant extent; None for a symbolic extent."""
    return extent.value if isinstance(extent, Const) else None


def axis_name(loop: Var) -> str:
    """Return the name of the axis of a loop, as in `tiles`."""
    return loop.name.removeprefix("v")


def find_block(s: Schedule, name: str) -> ir.Block:
    """Find a block by name."""
    return next(block for block in collect_blocks(s.program) if block.name == name)


def _sides(plan: ContractionPlan) -> tuple[tuple[Side, ir.Expr, tuple[ContractionAxis, ...]], ...]:
    """Return for each factor its side, its expression, and its axes without the depth."""
    contraction, tiling = plan.contraction, plan.tiling
    return ((tiling.rows, contraction.left, contraction.rows), (tiling.columns, contraction.right, contraction.columns))


def nest_of_sum(s: Schedule, total: str, outer_count: int) -> tuple[Var | None, Var | None, str | None]:
    """Order the loops of a tile's reduction: steps, threads, depth of a step, register tile; and decompose its init. The outermost
    `outer_count` loops stay as they are.

    Returns the loops over steps and depth (None for extent 1) and the init block (None if there are no loops)."""
    *_, steps, depth = axis_loops(s, total)
    tile_loops = [loop for loop in s.loops(total)[outer_count:] if loop is not steps and loop is not depth]
    threads = [loop for loop in tile_loops if axis_name(loop) in THREAD_AXES]
    nest = [*present(steps), *threads, *present(depth), *(loop for loop in tile_loops if loop not in threads)]
    if len(nest) > 1:
        s.reorder(*nest)
    return steps, depth, s.decompose_reduction(total, nest[0]) if nest else None


def through_shared(s: Schedule, plan: ContractionPlan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Schedule the reduction of a block's tile, and the cooperative fetches of each step."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, depth, init = nest_of_sum(s, total, len(outside))
    for name, (side, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, plan.shared)
        _fetch_together(s, plan, name, s.loops(name)[len(outside) + (steps is not None) :], side, value, axes)
    if depth is not None:
        for name in factors:
            _load_fragment(s, total, name, depth)
    for name in (*([] if init is None else [init]), total):
        bind_threads(s, name)
        mark_register_tile(s, name)
    if plan.stages > 1 and steps is not None:
        s.software_pipeline(steps, (0, 0, 1))
    for name, (side, value, _) in zip(factors, _sides(plan), strict=True):
        _widen(s, name, side.threads * side.lanes, value.dtype.bytes)


def _load_fragment(s: Schedule, total: str, name: str, depth: Var) -> None:
    """Load a thread's fragment of a shared tile into registers for each depth element, vectorized."""
    fragment = s.cache_read(total, name, "register")
    s.compute_at(fragment, depth)
    loops = s.loops(fragment)
    inner = loops[loops.index(depth) + 1 :]
    if inner:
        _unroll_or_vectorize(s, inner, static_extent(loop_extent(s, inner[-1])) or 1)


def _fetch_together(
    s: Schedule,
    plan: ContractionPlan,
    name: str,
    loops: Sequence[Var],
    side: Side,
    value: ir.Expr,
    axes: tuple[ContractionAxis, ...],
) -> None:
    """Distribute the elements of a tile over all threads, so that loads are coalesced."""
    if not loops:
        return
    tiling = plan.tiling
    along_depth = runs_along(value, plan.contraction.depth, axes)
    run, run_axes = (tiling.depth, plan.contraction.depth) if along_depth else (side.threads * side.lanes, axes)
    lanes = vector_lanes(value, run_axes, plan.vector_bytes)
    while lanes > 1 and (run % lanes or tiling.depth * side.size % (tiling.threads * lanes)):
        lanes //= 2
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    step, row, column, lane = s.split(flat, (None, tiling.rows.threads, tiling.columns.threads, lanes))
    s.reorder(row, column, step)
    s.bind(row, ROW_THREADS)
    s.bind(column, COLUMN_THREADS)
    if lanes > 1:
        s.vectorize(lane)


def vector_lanes(value: ir.Expr, axes: tuple[ContractionAxis, ...], vector_bytes: int) -> int:
    """Return the vector lanes of loads along axes: elements are contiguous, and no vector crosses their end."""
    size = static_extent(total_extent(axes))
    if not isinstance(value, ir.Load) or not axes or size is None or not runs_along(value, axes, ()):
        return 1
    dims = [position for position, index in enumerate(value.indices) for axis in axes if index is axis.var]
    are_adjacent = len(dims) == len(axes) and dims == list(range(dims[0], dims[0] + len(axes)))
    run_extent = size if are_adjacent else static_extent(axes[-1].extent) or 1
    lanes = max(vector_bytes // value.dtype.bytes, 1)
    while size % lanes or run_extent % lanes:
        lanes //= 2
    return lanes


def _widen(s: Schedule, name: str, size: int, bytes_: int) -> None:
    """Pad the lines of a shared tile by a vector, to avoid bank conflicts along columns."""
    buffer = next(stmt.buffer for stmt in ir.walk_stmts(s.program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.name == name)
    factor, padding = min(size & -size, BANKS_BYTES // bytes_), VECTOR_BYTES // bytes_
    if padding < factor and len(buffer.shape) > 1:
        s.storage_align(name, len(buffer.shape) - 2, factor, padding)


def in_threads(s: Schedule, plan: ContractionPlan, blocks: tuple[str, str, str], outside: list[Var]) -> None:
    """Schedule the reduction of a register tile, and the loads of each step by the thread."""
    *factors, total = blocks
    s.compute_at(total, outside[-1])
    steps, depth, init = nest_of_sum(s, total, len(outside))
    for name, (_, value, axes) in zip(factors, _sides(plan), strict=True):
        s.compute_at(name, outside[-1] if steps is None else steps)
        s.set_scope(name, "register")
        loops = s.loops(name)[len(outside) + (steps is not None) :]
        along_depth = runs_along(value, plan.contraction.depth, axes)
        run = plan.contraction.depth if along_depth else axes
        can_vectorize = axis_name(loops[-1]) == ("ki" if along_depth else axis_name(loops[-1])) if loops else False
        lanes = vector_lanes(value, run, plan.vector_bytes) if can_vectorize else 1
        _unroll_or_vectorize(s, loops, lanes)
    if depth is not None:
        s.unroll(depth)
    for name in (*([] if init is None else [init]), total):
        mark_register_tile(s, name)


def _unroll_or_vectorize(s: Schedule, loops: Sequence[Var], lanes: int) -> None:
    """Unroll loops; vectorize the innermost one if its extent is a multiple of `lanes`."""
    for loop in loops[:-1]:
        s.unroll(loop)
    if loops:
        extent = static_extent(loop_extent(s, loops[-1]))
        if lanes > 1 and extent is not None and extent % lanes == 0:
            lane = loops[-1]
            if extent > lanes:
                outer, lane = s.split(lane, (None, lanes))
                s.unroll(outer)
            s.vectorize(lane)
        else:
            s.unroll(loops[-1])


def bind_threads(s: Schedule, name: str) -> None:
    """Bind the thread loops around a block."""
    for loop in s.loops(name):
        if axis_name(loop) in THREAD_AXES:
            s.bind(loop, THREAD_AXES[axis_name(loop)])


def mark_register_tile(s: Schedule, name: str, vectors: bool = True) -> None:
    """Unroll the loops of the register tile; vectorize the innermost column loop if `vectors`."""
    for loop in s.loops(name):
        if vectors and axis_name(loop) == "nv" and loop_extent(s, loop) != arith.ONE:
            s.vectorize(loop)
        elif axis_name(loop) in REGISTER_LOOPS:
            s.unroll(loop)


def stores_vectors(s: Schedule, store: str) -> bool:
    """Test whether adjacent columns of a thread are contiguous in the store."""
    block = find_block(s, store)
    assert isinstance(block.body, ir.Store)
    lane = next(item.var for item in block.iters if axis_name(item.var) == "nv")
    if not block.body.indices:
        return False
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    steps = [arith.affine(analyzer.simplify(index), lane) for index in block.body.indices]
    return all(step is not None and step[0] == arith.ZERO for step in steps[:-1]) and steps[-1] is not None and steps[-1][0] == ONE
