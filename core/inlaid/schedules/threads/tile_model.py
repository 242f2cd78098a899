"""Which tiles a sum of products is cut into on a grid of threads: a small analytic model of the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from inlaid import arith
from inlaid.plugins.contract import Threads
from inlaid.schedules.threads.contraction import Contraction, extent_of
from inlaid.schedules.threads.tiles import Side, Tiling

OWN = (8, 4, 2, 1)
"""Rows or columns of a thread."""
OTHER_REGISTERS = 28
"""Registers of a thread besides sums and factors: addresses, counters, what is being fetched."""
BUSY = 1 / 4
"""Of the threads that a device holds: so many keep it busy where each has several independent sums."""
LAUNCH = 4000.0
"""Multiply-adds of a thread in the time of one more launch, roughly: 4 microseconds at 1 GHz."""
STEP = 40.0
"""Multiply-adds of a thread in the time of a step besides fetching and computing: barriers, addresses, and waiting for memory."""
SHARED_WORD, MAIN_WORD = 0.5, 4.0
"""Multiply-adds of a thread in the time of a word from shared memory, in vectors, and of one from main memory that another block
has fetched already."""
FIRST_PARTS = 4
"""Steps that a part of the depth has at least."""
MOST_PARTS = 64
KEPT = 24
"""Tilings that are legal for a kernel: those that the model has best."""


@dataclass(frozen=True)
class Problem:
    """Rows, columns and depth of a sum of products, representative ones where they are symbolic, and how many such there are; bytes
    of an element of each factor; words of 32 bits of a sum."""

    rows: int
    columns: int
    depth: int
    batch: int
    left_bytes: int
    right_bytes: int
    words: int = 1


def problem_of(found: Contraction) -> Problem:
    """The sizes of a sum of products."""
    rows, columns, depth, batch = (
        arith.size_hint(arith.unwrap(extent_of(axes))) for axes in (found.rows, found.columns, found.depth, found.batch)
    )
    left, right = found.left.dtype.bytes, found.right.dtype.bytes
    return Problem(rows, columns, depth, batch, left, right, max(found.anchor.buffer.dtype.bytes // 4, 1))


@dataclass(frozen=True)
class Memory:
    """Bytes that the threads of a block share, 0 for none; copies of a tile that lie there at once."""

    shared: int
    stages: int = 1


def lanes_of(own: int, bytes_: int, vector_bytes: int) -> int:
    """Neighbours that a thread has in a run: what one access moves."""
    lanes = 1
    while 2 * lanes <= vector_bytes // bytes_ and own % (2 * lanes) == 0:
        lanes *= 2
    return lanes


def side_of(threads: int, own: int, bytes_: int, vector_bytes: int) -> Side:
    """The rows or columns of a tile, in runs as long as vectors."""
    lanes = lanes_of(own, bytes_, vector_bytes)
    return Side(threads, own // lanes, lanes)


def tilings(problem: Problem, threads: Threads, memory: Memory) -> Iterator[Tiling]:
    """The tilings whose sums fit into registers and whose tiles fit into shared memory. Tiles are at most twice as long as what
    there is to tile, and powers of two deep, so that elements of a tile are told from one another."""
    depths = (32, 16, 8) if memory.shared else (4,)
    least = 1 << max(problem.depth - 1, 0).bit_length()
    for count in (threads.block, threads.block // 2, threads.block // 4):
        across = 1
        while 0 < across <= count:
            if count % across == 0:
                for rows, columns in ((a, b) for a in OWN for b in OWN):
                    tiling = Tiling(
                        side_of(count // across, rows, problem.left_bytes, threads.vector_bytes),
                        side_of(across, columns, problem.right_bytes, threads.vector_bytes),
                        1,
                    )
                    if not memory.shared:
                        tiling = _without_runs(tiling)
                    for depth in depths:
                        found = Tiling(tiling.rows, tiling.columns, min(depth, least))
                        if _fits(found, problem, threads, memory):
                            yield found
            across *= 2


def _without_runs(tiling: Tiling) -> Tiling:
    """Each thread's rows and columns side by side: it fetches them itself."""
    rows, columns = (Side(side.threads, 1, side.own) for side in (tiling.rows, tiling.columns))
    return Tiling(rows, columns, tiling.depth)


def _fits(tiling: Tiling, problem: Problem, threads: Threads, memory: Memory) -> bool:
    for side, extent in ((tiling.rows, problem.rows), (tiling.columns, problem.columns)):
        if side.size >= 2 * max(extent, 1) and side.size > 1:
            return False
    own = tiling.rows.own * tiling.columns.own * problem.words
    factors = tiling.rows.own + tiling.columns.own
    if own + factors * (1 if memory.shared else tiling.depth) + OTHER_REGISTERS > max(threads.registers, OTHER_REGISTERS + 3):
        return False
    return not memory.shared or memory.stages * shared_bytes(tiling, problem) <= memory.shared


def shared_bytes(tiling: Tiling, problem: Problem) -> int:
    """Bytes of one step's tiles, padding included."""
    rows, columns = tiling.rows.size + 16, tiling.columns.size + 16
    return tiling.depth * (rows * problem.left_bytes + columns * problem.right_bytes)


def blocks_of_grid(tiling: Tiling, problem: Problem) -> int:
    """Blocks without parts of the depth."""
    tiles = -(-max(problem.rows, 1) // tiling.rows.size) * -(-max(problem.columns, 1) // tiling.columns.size)
    return tiles * max(problem.batch, 1)


def slots(tiling: Tiling, threads: Threads) -> int:
    """Blocks that keep the device busy."""
    return max(int(threads.resident * BUSY) // tiling.threads, 1)


def parts_for(tiling: Tiling, problem: Problem, threads: Threads, shared: bool) -> int:
    """Into how many parts the depth is best cut: as many as make the device busy, where that saves more than adding up takes."""
    steps = -(-problem.depth // tiling.depth)
    most = min(slots(tiling, threads) // blocks_of_grid(tiling, problem), steps // FIRST_PARTS, MOST_PARTS)
    options = [1]
    while 2 * options[-1] <= most:
        options.append(2 * options[-1])
    return min(options, key=lambda parts: seconds(tiling, problem, threads, parts, shared))


def seconds(tiling: Tiling, problem: Problem, threads: Threads, parts: int = 1, shared: bool = True) -> float:
    """Time in multiply-adds of a thread: blocks run in rounds of as many as keep the device busy."""
    steps = -(-problem.depth // tiling.depth)
    rounds = -(-blocks_of_grid(tiling, problem) * parts // slots(tiling, threads))
    rows, columns = tiling.rows, tiling.columns
    words = (rows.size * problem.left_bytes + columns.size * problem.right_bytes) / 4 / tiling.threads
    if shared:
        each = rows.own * columns.own + SHARED_WORD * (rows.own + columns.own) + MAIN_WORD * words
    else:
        each = rows.own * columns.own + MAIN_WORD * (rows.own * problem.left_bytes + columns.own * problem.right_bytes) / 4 / 2
    time = rounds * -(-steps // parts) * (tiling.depth * each + (STEP if shared else STEP / 2))
    if parts > 1:
        elements = max(problem.rows * problem.columns * problem.batch, 1)
        time += LAUNCH + elements * (2 * parts + 1) * MAIN_WORD / (threads.resident * BUSY)
    return time


@cache
def rank_tilings(problem: Problem, threads: Threads, memory: Memory) -> tuple[Tiling, ...]:
    """The tilings that take the least time, with parts of the depth, best first; none for sums of fewer elements than blocks have
    threads."""
    shared = bool(memory.shared)
    timed = [
        (seconds(tiling, problem, threads, parts, shared), number, Tiling(tiling.rows, tiling.columns, tiling.depth, parts))
        for number, tiling in enumerate(dict.fromkeys(tilings(problem, threads, memory)))
        for parts in (parts_for(tiling, problem, threads, shared),)
    ]
    return tuple(tiling for _, _, tiling in sorted(timed, key=lambda item: item[:2])[:KEPT])
