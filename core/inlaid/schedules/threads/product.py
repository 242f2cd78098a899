"""Tiled contractions on grids of threads: matrix products and convolutions.

A block of threads computes a tile, and each thread a register tile within it. With shared memory, the threads cooperatively fetch
the tiles of both factors for each depth step; otherwise each thread loads its operands. If tiles are too few to fill the device,
the depth is split (split-K) and a second kernel adds the parts. Contractions of few rows use the schedule of `dots`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from inlaid.schedules.threads.contraction import Contraction, extent_of, is_window, prepared
from inlaid.schedules.threads.dots import FEW, SOME, few_rows
from inlaid.schedules.threads.each import bound_elements
from inlaid.schedules.threads.product_nest import (
    BATCHES,
    COLUMN_BLOCKS,
    COLUMN_THREADS,
    ROW_BLOCKS,
    ProductPlan,
    bind_threads,
    block_of,
    in_threads,
    known_extent,
    loop_of,
    mark_own,
    stores_vectors,
    through_shared,
)
from inlaid.schedules.threads.tile_model import Memory, Problem, problem_of, rank_tilings, shared_bytes
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

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines contractions of depth 1, without columns, without operand reuse (depthwise windows), or with
        fewer outputs than threads in a block, and if primitives cannot prove that threads store distinct elements."""
        made = prepared(program)
        if made is None:
            return None
        s, found = made
        if not found.columns or known_extent(extent_of(found.depth)) in (0, 1) or is_window(found):
            return None
        scope = next((scope for scope in context.capabilities.scopes if scope.owner == "block"), None)
        rows, layouts = extent_of(found.rows), (ROW_MAJOR,) * len(program.params)
        known, few = known_extent(rows), None
        if scope is not None and (known is None or 0 < known <= FEW):
            few = few_rows(s, found, SOME if known is None else known, scope, context)
        if few is None:
            return _tiled(s, found, context, scope, Offer(layouts, Traced(s.copy)))
        schedule = Traced(partial(_made, few[0]))
        if known is not None:
            return Offer(layouts, schedule, decisions=few[1:])
        version = Version(arith.compare("<=", rows, SOME), schedule, few[1:])
        return _tiled(s, found, context, scope, Offer(layouts, schedule, versions=(version,)))


def _tiled(s: Schedule, found: Contraction, context: KernelContext, scope: MemoryScope | None, offer: Offer) -> Offer | None:
    """Offer the tiled schedule, with the layouts and versions of `offer`; None if no tiling is legal."""
    threads, problem = context.capabilities.threads, problem_of(found)
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
    stages = _stages(tiling, problem, memory, found, context)
    plan = ProductPlan(s, found, tiling, "" if scope is None else scope.name, stages.number, threads.vector_bytes)
    for most in dict.fromkeys((best.parts, 1)):
        parts = context.decide("parts", PARTS, most)
        try:
            made = _schedule(replace(plan, tiling=replace(tiling, parts=parts.number)), context)
        except ScheduleError:
            continue
        return replace(offer, schedule=Traced(partial(_made, made)), decisions=(tile, parts, stages))
    return None


def _made(schedule: Schedule) -> Schedule:
    """Return a schedule that was built before the offer, so that a rule declines if a primitive rejects the schedule."""
    return schedule


def _numbers(tiling: Tiling) -> tuple[int, ...]:
    sides = (tiling.rows, tiling.columns)
    return (*(number for side in sides for number in (side.threads, side.runs, side.lanes)), tiling.depth)


def _tiling(numbers: tuple[int, ...]) -> Tiling:
    return Tiling(Side(*numbers[:3]), Side(*numbers[3:6]), numbers[6])


def _stages(tiling: Tiling, problem: Problem, memory: Memory, found: Contraction, context: KernelContext) -> Decision:
    """Decide on double buffering of the shared tiles: one barrier per step instead of two, for twice the memory."""
    depth = known_extent(extent_of(found.depth))
    able = bool(memory.shared) and depth is not None and 2 * shared_bytes(tiling, problem) <= memory.shared
    return context.decide("stages", (1, 2) if able else (1,), 2 if able else 1)


def _schedule(plan: ProductPlan, context: KernelContext) -> Schedule:
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
    left, right, total, store, *rest = s.blocks
    outside, threads = outer_loops(s, store)
    if plan.shared:
        through_shared(s, plan, (left, right, total), outside)
    else:
        in_threads(s, plan, (left, right, total), [*outside, *threads])
    bind_threads(s, store)
    mark_own(s, store, stores_vectors(s, store))
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
        s = bound_elements(s, block_of(s, name), context)
    return s


def outer_loops(s: Schedule, store: str) -> tuple[list[Var], list[Var]]:
    """Return the loops over blocks around the store, with batches and parts fused, and the loops over threads."""
    loops = list(s.loops(store))
    names = [loop_of(loop) for loop in loops]
    first = names.index("mt")
    outside, threads = loops[:first], loops[first : first + 2]
    return ([s.fuse(*outside[:-2]), *outside[-2:]] if first > 3 else outside), threads
