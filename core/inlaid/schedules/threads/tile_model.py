"""Analytic cost model that ranks the tilings of a contraction on a grid of threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from inlaid.plugins.contract import Threads
from inlaid.schedules.threads.contraction import Contraction, total_extent
from inlaid.schedules.threads.tiles import Side, Tiling
from inlaid_runtime import arith

REGISTER_TILE_SIDES = (8, 4, 2, 1)
"""Candidate numbers of rows or columns of a register tile."""
OTHER_REGISTERS = 28
"""Registers of a thread in addition to accumulators and operands: addresses, counters, loads in flight."""
BUSY = 1 / 4
"""Occupancy that saturates the device, given several independent accumulators per thread."""
LAUNCH = 4000.0
"""Cost of a launch in multiply-adds of a thread: 4 microseconds at 1 GHz."""
STEP = 40.0
"""Fixed cost of a depth step in multiply-adds of a thread: barriers, addresses and memory latency."""
SHARED_WORD, MAIN_WORD = 0.5, 4.0
"""Cost of a 32-bit word in multiply-adds of a thread: in a vector load from shared memory, and from main memory through a cache."""
FIRST_PARTS = 4
"""Minimum depth steps per part of a split depth."""
MAX_PARTS = 64
OFFERED_TILINGS = 24
"""Number of best-ranked tilings that are offered as legal decisions."""


@dataclass(frozen=True)
class ContractionProblem:
    """Extents of a contraction, with size hints for symbolic ones; element bytes of each factor; 32-bit words of an accumulator."""

    rows: int
    columns: int
    depth: int
    batch: int
    left_bytes: int
    right_bytes: int
    words: int = 1


def describe_problem(contraction: Contraction) -> ContractionProblem:
    """Describe a contraction to the cost model."""
    rows, columns, depth, batch = (
        arith.size_hint(arith.unwrap(total_extent(axes)))
        for axes in (contraction.rows, contraction.columns, contraction.depth, contraction.batch)
    )
    left, right = contraction.left.dtype.bytes, contraction.right.dtype.bytes
    return ContractionProblem(rows, columns, depth, batch, left, right, max(contraction.anchor.buffer.dtype.bytes // 4, 1))


@dataclass(frozen=True)
class Memory:
    """Shared memory: bytes per block (0 for none), and `stages`, the copies of a tile for double buffering."""

    shared: int
    stages: int = 1


def run_lanes(count: int, bytes_: int, vector_bytes: int) -> int:
    """Return the vector lanes of a thread's `count` contiguous elements: a power of two that divides `count`."""
    lanes = 1
    while 2 * lanes <= vector_bytes // bytes_ and count % (2 * lanes) == 0:
        lanes *= 2
    return lanes


def split_side(threads: int, per_thread: int, bytes_: int, vector_bytes: int) -> Side:
    """Split a thread's `per_thread` rows or columns into runs of one vector each."""
    lanes = run_lanes(per_thread, bytes_, vector_bytes)
    return Side(threads, per_thread // lanes, lanes)


def tilings(problem: ContractionProblem, threads: Threads, memory: Memory) -> Iterator[Tiling]:
    """Enumerate the tilings that fit registers and shared memory.

    A tile is smaller than twice the extent that it tiles. Its depth is a power of two, so the race check can separate elements."""
    depths = (32, 16, 8) if memory.shared else (4,)
    depth_bound = 1 << max(problem.depth - 1, 0).bit_length()
    for count in (threads.block, threads.block // 2, threads.block // 4):
        column_threads = 1
        while 0 < column_threads <= count:
            if count % column_threads == 0:
                for rows, columns in ((a, b) for a in REGISTER_TILE_SIDES for b in REGISTER_TILE_SIDES):
                    tiling = Tiling(
                        split_side(count // column_threads, rows, problem.left_bytes, threads.vector_bytes),
                        split_side(column_threads, columns, problem.right_bytes, threads.vector_bytes),
                        1,
                    )
                    if not memory.shared:
                        tiling = _without_runs(tiling)
                    for depth in depths:
                        candidate = Tiling(tiling.rows, tiling.columns, min(depth, depth_bound))
                        if _fits(candidate, problem, threads, memory):
                            yield candidate
            column_threads *= 2


def _without_runs(tiling: Tiling) -> Tiling:
    """Make each thread's rows and columns one contiguous run, which the thread loads without shared memory."""
    rows, columns = (Side(side.threads, 1, side.per_thread) for side in (tiling.rows, tiling.columns))
    return Tiling(rows, columns, tiling.depth)


def _fits(tiling: Tiling, problem: ContractionProblem, threads: Threads, memory: Memory) -> bool:
    for side, extent in ((tiling.rows, problem.rows), (tiling.columns, problem.columns)):
        if side.size >= 2 * max(extent, 1) and side.size > 1:
            return False
    accumulators = tiling.rows.per_thread * tiling.columns.per_thread * problem.words
    factors = tiling.rows.per_thread + tiling.columns.per_thread
    if accumulators + factors * (1 if memory.shared else tiling.depth) + OTHER_REGISTERS > max(
        threads.registers, OTHER_REGISTERS + 3
    ):
        return False
    return not memory.shared or memory.stages * shared_bytes(tiling, problem) <= memory.shared


def shared_bytes(tiling: Tiling, problem: ContractionProblem) -> int:
    """Return the bytes of both tiles of a step, including padding."""
    rows, columns = tiling.rows.size + 16, tiling.columns.size + 16
    return tiling.depth * (rows * problem.left_bytes + columns * problem.right_bytes)


def blocks_of_grid(tiling: Tiling, problem: ContractionProblem) -> int:
    """Return the number of blocks of the grid without split-K."""
    tiles = -(-max(problem.rows, 1) // tiling.rows.size) * -(-max(problem.columns, 1) // tiling.columns.size)
    return tiles * max(problem.batch, 1)


def slots(tiling: Tiling, threads: Threads) -> int:
    """Return the number of concurrent blocks that saturate the device."""
    return max(int(threads.resident * BUSY) // tiling.threads, 1)


def parts_for(tiling: Tiling, problem: ContractionProblem, threads: Threads, shared: bool) -> int:
    """Choose the split-K factor of least predicted time among powers of two, up to the factor that saturates the device."""
    steps = -(-problem.depth // tiling.depth)
    max_parts = min(slots(tiling, threads) // blocks_of_grid(tiling, problem), steps // FIRST_PARTS, MAX_PARTS)
    options = [1]
    while 2 * options[-1] <= max_parts:
        options.append(2 * options[-1])
    return min(options, key=lambda parts: seconds(tiling, problem, threads, parts, shared))


def seconds(tiling: Tiling, problem: ContractionProblem, threads: Threads, parts: int = 1, shared: bool = True) -> float:
    """Predict the time in multiply-adds of a thread. Blocks run in waves of `slots`."""
    steps = -(-problem.depth // tiling.depth)
    rounds = -(-blocks_of_grid(tiling, problem) * parts // slots(tiling, threads))
    rows, columns = tiling.rows, tiling.columns
    words = (rows.size * problem.left_bytes + columns.size * problem.right_bytes) / 4 / tiling.threads
    if shared:
        step_cost = rows.per_thread * columns.per_thread + SHARED_WORD * (rows.per_thread + columns.per_thread) + MAIN_WORD * words
    else:
        step_cost = (
            rows.per_thread * columns.per_thread
            + MAIN_WORD * (rows.per_thread * problem.left_bytes + columns.per_thread * problem.right_bytes) / 4 / 2
        )
    time = rounds * -(-steps // parts) * (tiling.depth * step_cost + (STEP if shared else STEP / 2))
    if parts > 1:
        elements = max(problem.rows * problem.columns * problem.batch, 1)
        time += LAUNCH + elements * (2 * parts + 1) * MAIN_WORD / (threads.resident * BUSY)
    return time


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def rank_tilings(problem: ContractionProblem, threads: Threads, memory: Memory) -> tuple[Tiling, ...]:
    """Return the `OFFERED_TILINGS` best tilings with split-K factors, cheapest first; empty for outputs smaller than a block of
    threads."""
    shared = bool(memory.shared)
    timed_tilings = [
        (seconds(tiling, problem, threads, parts, shared), number, Tiling(tiling.rows, tiling.columns, tiling.depth, parts))
        for number, tiling in enumerate(dict.fromkeys(tilings(problem, threads, memory)))
        for parts in (parts_for(tiling, problem, threads, shared),)
    ]
    return tuple(tiling for _, _, tiling in sorted(timed_tilings, key=lambda item: item[:2])[:OFFERED_TILINGS])
