"""Skinny contractions (GEMV and few rows): the threads of a block split the depth and add their partial sums in shared memory.

Each element of the right factor is read once, so the kernel is bound by memory bandwidth and must coalesce loads. Adjacent threads
are along the depth if it is contiguous in the right factor, as in rows of weights, else along the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlaid.plugins.contract import Threads
from inlaid.schedules.shape import loop_extent
from inlaid.schedules.threads.contraction import Contraction
from inlaid.schedules.threads.each import bound_elements
from inlaid.schedules.threads.product_nest import (
    BATCHES,
    COLUMN_BLOCKS,
    COLUMN_THREADS,
    ROW_BLOCKS,
    ROW_THREADS,
    ContractionPlan,
    axis_name,
    find_block,
    in_threads,
    mark_register_tile,
    static_extent,
)
from inlaid.schedules.threads.tile_model import BUSY, ContractionProblem, describe_problem, run_lanes
from inlaid.schedules.threads.tiles import TILE_PRODUCT, Side, Tiling, runs_along
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, KernelContext
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import MemoryScope

SKINNY_ROWS, SYMBOLIC_ROWS = 8, 4
"""Maximum rows of a skinny contraction, and of its version for a symbolic number of rows. Each thread computes all rows."""
RUNS = 4
"""Minimum steps of a thread along the depth, to amortize the final reduction."""
DEEP = 64
"""Minimum depth that is split among threads."""
STEP = 4
"""Depth elements per step of a thread if columns are contiguous. Their loads are independent and in flight together."""


@dataclass(frozen=True)
class _Shares:
    """Shape of a block: threads along the depth, threads along the columns, and columns per thread (`per_thread`)."""

    depth: int
    columns: int
    per_thread: int


def skinny_product(
    s: Schedule, contraction: Contraction, rows: int, scope: MemoryScope, context: KernelContext
) -> tuple[Schedule, Decision] | None:
    """Schedule a contraction of few rows, `rows` per thread; returns the schedule and the decision on the block's shape.

    None if the depth is below `DEEP`, or the partial sums exceed shared memory."""
    threads = context.capabilities.threads
    assert threads is not None, "a rule for threads schedules for threads"
    problem = describe_problem(contraction)
    if problem.depth < DEEP:
        return None
    along_depth = runs_along(contraction.right, contraction.depth, contraction.columns)
    if not along_depth and problem.columns * problem.batch >= threads.resident * BUSY:
        return None  # one thread per column is coalesced as well, and needs no final reduction
    step = run_lanes(problem.depth, problem.right_bytes, threads.vector_bytes) if along_depth else STEP
    legal_shares = _shares(rows, problem, threads, scope.capacity, along_depth, step)
    if not legal_shares:
        return None
    shares = context.decide("shares", map(_numbers, legal_shares), _numbers(legal_shares[0]))
    depth, columns, per_thread = shares.numbers
    tiling = Tiling(Side(1, 1, rows), Side(columns, 1, per_thread), step, depth, joined=True)
    plan = ContractionPlan(s, contraction, tiling, scope.name, 1, threads.vector_bytes)
    try:
        return _schedule(plan, along_depth, context), shares
    except ScheduleError:
        return None


def _numbers(shares: _Shares) -> tuple[int, ...]:
    return shares.depth, shares.columns, shares.per_thread


def _shares(rows: int, problem: ContractionProblem, threads: Threads, capacity: int, along_depth: bool, step: int) -> list[_Shares]:
    """Enumerate the legal block shapes, cheapest first. The cost counts coalescing, occupancy and work per thread, then the partial
    sums to add."""
    steps = -(-problem.depth // step)
    candidates: list[tuple[float, int, _Shares]] = []
    for depth in (1 << power for power in range(1, threads.block.bit_length())):
        columns = threads.block // depth
        while columns > 1 and columns >= 2 * problem.columns:
            columns //= 2
        for per_thread in (1,) if along_depth else (1, 2, 4):
            runs = steps / depth
            if runs < RUNS or depth * columns * per_thread * rows * 4 * problem.words > capacity or per_thread > problem.columns:
                continue
            side_by_side = depth if along_depth else columns
            blocks = -(-problem.columns // (columns * per_thread)) * max(problem.batch, 1)
            occupancy = min(blocks * columns * depth / (threads.resident * BUSY), 1)
            coalescing = min(side_by_side / threads.subgroup, 1)
            cost = runs * per_thread / (occupancy * coalescing) * columns * depth * blocks + depth
            candidates.append((cost, len(candidates), _Shares(depth, columns, per_thread)))
    return [shares for _, _, shares in sorted(candidates, key=lambda item: item[:2])]


def _schedule(plan: ContractionPlan, along_depth: bool, context: KernelContext) -> Schedule:
    """Build the nest:

    for batch, columns, blocks:
        for p, tx, threads: for ty, threads:
            acc = 0
            for q: acc += left * right            # depth step q * parts + p
            parts[p] = acc
        for ty, threads: for tx, threads: out = after(sum over p of parts[p])

    The two thread axes are swapped if columns are contiguous.
    """
    s, tiling = plan.schedule.copy(), plan.tiling
    sides = [(side.threads, side.runs, side.lanes) for side in (tiling.rows, tiling.columns)]
    s.apply(TILE_PRODUCT, *sides, tiling.depth, tiling.parts, True)
    left, right, total, keep, add, final, *epilogues = s.blocks
    part_axis, column_axis = (COLUMN_THREADS, ROW_THREADS) if along_depth else (ROW_THREADS, COLUMN_THREADS)
    loops = {axis_name(loop): loop for loop in s.loops(final)}
    outside = [loops[name] for name in ("b", "mo", "no") if name in loops]
    element_loops = [loop for name, loop in loops.items() if name in ("mt", "mv", "nv")]
    s.reorder(loops["nt"], *element_loops)
    s.compute_at(add, element_loops[-1])
    s.compute_at(keep, outside[-1])
    store_loops = s.loops(keep)
    threads = [loop for loop in store_loops if axis_name(loop) in ("p", "nt")]
    in_threads(s, replace(plan, shared=""), (left, right, total), list(store_loops[: store_loops.index(threads[-1]) + 1]))
    mark_register_tile(s, keep)
    for loop in threads:
        s.bind(loop, part_axis if axis_name(loop) == "p" else column_axis)
    s.set_scope(_written(s, keep), plan.shared)
    s.bind(loops["nt"], column_axis)
    flat = s.fuse(*element_loops)
    if (static_extent(loop_extent(s, flat)) or 0) > tiling.parts:
        _, flat = s.split(flat, (None, tiling.parts))
    s.bind(flat, part_axis)
    for loop, axis in zip(reversed(outside), (COLUMN_BLOCKS, ROW_BLOCKS, BATCHES), strict=False):
        s.bind(loop, axis)
    for name in epilogues:
        s = bound_elements(s, find_block(s, name), context)
    return s


def _written(s: Schedule, name: str) -> str:
    """Return the name of the buffer that a block writes."""
    return find_block(s, name).writes[0].buffer.name
