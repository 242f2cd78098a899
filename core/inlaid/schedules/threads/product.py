"""Tiled contractions on grids of threads: matrix products and convolutions.

A block of threads computes a tile, and each thread a register tile within it. With shared memory, the threads cooperatively fetch
the tiles of both factors for each depth step; otherwise each thread loads its operands. If tiles are too few to fill the device,
the depth is split (split-K) and a second kernel adds the parts. Contractions of few rows use the schedule of `dots`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from inlaid.schedules.threads.contraction import Contraction, is_window, prepared, total_extent
from inlaid.schedules.threads.dots import SKINNY_ROWS, SYMBOLIC_ROWS, skinny_product
from inlaid.schedules.threads.each import bound_elements
from inlaid.schedules.threads.product_nest import (
    BATCHES,
    COLUMN_BLOCKS,
    COLUMN_THREADS,
    ROW_BLOCKS,
    ContractionPlan,
    axis_name,
    bind_threads,
    find_block,
    in_threads,
    mark_register_tile,
    static_extent,
    stores_vectors,
    through_shared,
)
from inlaid.schedules.threads.tile_model import ContractionProblem, Memory, describe_problem, rank_tilings, shared_bytes
from inlaid.schedules.threads.tiles import TILE_PRODUCT, Side, Tiling
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, InputInfo, KernelContext, Offer, Traced, Version
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR, MemoryScope

PARTS = (1, 2, 4, 8, 16, 32, 64)
"""Legal split-K factors."""


class ProductRule:
    """Schedules contractions (see `find_contraction`) with any layout of operands, and static or symbolic extents."""

    name = "thread_product"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines contractions of depth 1, without columns, without operand reuse (depthwise windows), or with
        fewer outputs than threads in a block, and if primitives cannot prove that threads store distinct elements."""
        match = prepared(program)
        if match is None:
            return None
        s, contraction = match
        if not contraction.columns or static_extent(total_extent(contraction.depth)) in (0, 1) or is_window(contraction):
            return None
        scope = next((scope for scope in context.capabilities.scopes if scope.owner == "block"), None)
        rows, layouts = total_extent(contraction.rows), (ROW_MAJOR,) * len(program.params)
        row_count, skinny = static_extent(rows), None
        if scope is not None and (row_count is None or 0 < row_count <= SKINNY_ROWS):
            skinny = skinny_product(s, contraction, SYMBOLIC_ROWS if row_count is None else row_count, scope, context)
        if skinny is None:
            return _tiled(s, contraction, context, scope, Offer(layouts, Traced(s.copy)))
        schedule = Traced(partial(_unchanged, skinny[0]))
        if row_count is not None:
            return Offer(layouts, schedule, decisions=skinny[1:])
        version = Version(arith.compare("<=", rows, SYMBOLIC_ROWS), schedule, skinny[1:])
        return _tiled(s, contraction, context, scope, Offer(layouts, schedule, versions=(version,)))


def _tiled(s: Schedule, contraction: Contraction, context: KernelContext, scope: MemoryScope | None, offer: Offer) -> Offer | None:
    """Offer the tiled schedule, with the layouts and versions of `offer`; None if no tiling is legal."""
    threads, problem = context.capabilities.threads, describe_problem(contraction)
    assert threads is not None, "a rule for threads schedules for threads"
    memory = Memory(0 if scope is None else scope.capacity)
    tilings = rank_tilings(problem, threads, memory)
    if not tilings and scope is not None:  # the smallest tiles exceed shared memory
        scope, memory = None, Memory(0)
        tilings = rank_tilings(problem, threads, memory)
    if not tilings:
        return None
    best = tilings[0]
    tile = context.decide("tile", map(_numbers, tilings), _numbers(best))
    tiling = _tiling(tile.numbers)
    stages = _stages(tiling, problem, memory, contraction, context)
    plan = ContractionPlan(s, contraction, tiling, "" if scope is None else scope.name, stages.number, threads.vector_bytes)
    for default_parts in dict.fromkeys((best.parts, 1)):
        parts = context.decide("parts", PARTS, default_parts)
        try:
            scheduled = _schedule(replace(plan, tiling=replace(tiling, parts=parts.number)), context)
        except ScheduleError:
            continue
        return replace(offer, schedule=Traced(partial(_unchanged, scheduled)), decisions=(tile, parts, stages))
    return None


def _unchanged(schedule: Schedule) -> Schedule:
    """Return a schedule that was built before the offer, so that a rule declines if a primitive rejects the schedule."""
    return schedule


def _numbers(tiling: Tiling) -> tuple[int, ...]:
    sides = (tiling.rows, tiling.columns)
    return (*(number for side in sides for number in (side.threads, side.runs, side.lanes)), tiling.depth)


def _tiling(numbers: tuple[int, ...]) -> Tiling:
    return Tiling(Side(*numbers[:3]), Side(*numbers[3:6]), numbers[6])


def _stages(
    tiling: Tiling, problem: ContractionProblem, memory: Memory, contraction: Contraction, context: KernelContext
) -> Decision:
    """Decide on double buffering of the shared tiles: one barrier per step instead of two, for twice the memory."""
    depth = static_extent(total_extent(contraction.depth))
    double_buffers = bool(memory.shared) and depth is not None and 2 * shared_bytes(tiling, problem) <= memory.shared
    return context.decide("stages", (1, 2) if double_buffers else (1,), 2 if double_buffers else 1)


def _schedule(plan: ContractionPlan, context: KernelContext) -> Schedule:
    """Build the nest; with shared memory

    for batch, rows, columns, blocks:
        for ty, tx, threads: acc = 0
        for q:
            for ty, tx, threads: left = ...       # cooperative fetch of a step into shared memory
            for ty, tx, threads: right = ...
            for ty, tx, threads: for ki: acc += left * right
        for ty, tx, threads: out = after(acc)

    and, without shared memory,

    for batch, rows, columns, blocks:
        for ty, tx, threads:
            acc = 0
            for q:
                left = ...                        # the thread's rows, in registers
                right = ...
                acc += left * right               # ki unrolled
            out = after(acc)
    """
    s, tiling = plan.schedule.copy(), plan.tiling
    sides = [(side.threads, side.runs, side.lanes) for side in (tiling.rows, tiling.columns)]
    s.apply(TILE_PRODUCT, *sides, tiling.depth, tiling.parts)
    left, right, total, store, *other_blocks = s.blocks
    outside, threads = outer_loops(s, store)
    if plan.shared:
        through_shared(s, plan, (left, right, total), outside)
    else:
        in_threads(s, plan, (left, right, total), [*outside, *threads])
    bind_threads(s, store)
    mark_register_tile(s, store, stores_vectors(s, store))
    for loop, axis in zip(reversed(outside), (COLUMN_BLOCKS, ROW_BLOCKS, BATCHES), strict=False):
        s.bind(loop, axis)
    if tiling.parts > 1:
        add, final, *other_blocks = other_blocks
        (element,) = s.loops(final)
        grid, thread = s.split(element, (None, context.capabilities.threads.block if context.capabilities.threads else 1))
        s.compute_at(add, thread)
        s.bind(grid, COLUMN_BLOCKS)
        s.bind(thread, COLUMN_THREADS)
    for name in other_blocks:
        s = bound_elements(s, find_block(s, name), context)
    return s


def outer_loops(s: Schedule, store: str) -> tuple[list[Var], list[Var]]:
    """Return the loops over blocks around the store, with batches and parts fused, and the loops over threads."""
    loops = list(s.loops(store))
    names = [axis_name(loop) for loop in loops]
    first = names.index("mt")
    outside, threads = loops[:first], loops[first : first + 2]
    return ([s.fuse(*outside[:-2]), *outside[-2:]] if first > 3 else outside), threads
