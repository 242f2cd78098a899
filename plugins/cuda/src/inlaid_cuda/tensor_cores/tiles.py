"""Choice of tile sizes for tensor cores by an analytical model of a multiprocessor.

Rates are bytes and operations per multiprocessor and cycle of the A100 ("NVIDIA A100 Tensor Core GPU Architecture", 2020). Later
GPUs have higher rates in similar proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from inlaid.plugins.contract import Threads
from inlaid.schedules.threads.tile_model import ContractionProblem
from inlaid_cuda.capabilities import REGISTERS, THREAD_REGISTERS, WARP, WARPGROUP
from inlaid_cuda.tensor_cores.unit import ROW_BYTES, SIDE
from inlaid_cuda.tensor_cores.wgmma import CHUNK_BYTES, COLUMNS, ROWS, STEP_BYTES

OTHER_REGISTERS = 56
"""Registers of a thread for addresses, counters and loads in flight, in addition to accumulators and operands."""
BLOCKS, RESIDENT_WARPS = 32, 64
"""Maximum resident blocks and warps of a multiprocessor."""
SHARED_OF_PROCESSOR = 100 << 10
"""Bytes of shared memory of a multiprocessor: the minimum over all architectures from sm_80."""
PRODUCT_BYTES = 2048.0
"""Multiply-adds per cycle times bytes per operand element: 1024 multiply-adds for 16-bit operands."""
WARPGROUP_PRODUCT_BYTES = 4096.0
"""`PRODUCT_BYTES` of warpgroup products: 2048 multiply-adds for 16-bit operands ("NVIDIA H100 Tensor Core GPU Architecture",
2022)."""
SHARED_BYTES, MAIN_BYTES = 128.0, 32.0
"""Bytes per cycle from shared memory and from the L2 cache."""
LATENCY = 700.0
"""Latency of global memory in cycles. A step waits this long unless pipelining hides it."""
STEP = 60.0
"""Estimated fixed cycles of a step, for its barrier and loop."""
START = 1500.0
"""Cycles of a block before the first step and after the last step."""
OFFSET_BYTES = 16
"""Padding of rows in shared memory in bytes."""
FETCH, ISSUED = 24.0, 128.0
"""FETCH: instructions per access to global memory, including bounds checks and addresses. ISSUED: thread instructions per cycle."""
MAX_FETCHES = 32
"""Maximum accesses of a thread to fetch a tile. More accesses in flight would exceed its registers."""
MAX_WARPS = 8
MAX_PRODUCTS = 32
"""Maximum fragment products of a warp per step, since they are unrolled."""
CANDIDATES = 24
"""Number of best-ranked tilings that are offered as legal decisions."""


@dataclass(frozen=True)
class WarpTiling:
    """Tile of a block: number of warps, and of fragments per warp, along rows and columns; depth of a step."""

    row_warps: int
    row_runs: int
    column_warps: int
    column_runs: int
    depth: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The tiling as the value of a tuning decision."""
        return self.row_warps, self.row_runs, self.column_warps, self.column_runs, self.depth

    @property
    def warps(self) -> tuple[int, int]:
        """Number of warps along rows and columns."""
        return self.row_warps, self.column_warps

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return WARP * self.row_warps * self.column_warps

    @property
    def rate(self) -> float:
        """Multiply-adds per cycle times operand bytes."""
        return PRODUCT_BYTES

    def loaded(self, bytes_: int) -> int:
        """Return the bytes that warps load from shared memory per step."""
        return self.row_warps * self.column_warps * (self.row_runs + self.column_runs) * SIDE * self.depth * bytes_

    @property
    def rows(self) -> tuple[int, int, int]:
        """Tiling of the rows: number of warps or warpgroups, runs per warp or warpgroup, rows per run."""
        return self.row_warps, self.row_runs, SIDE

    @property
    def columns(self) -> tuple[int, int, int]:
        """Tiling of the columns: number of warps or warpgroups, runs per warp or warpgroup, columns per run."""
        return self.column_warps, self.column_runs, SIDE

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return self.row_warps * self.row_runs * SIDE, self.column_warps * self.column_runs * SIDE

    @property
    def registers(self) -> int:
        """Upper estimate of the registers of a thread: accumulators, operands and others."""
        return 8 * self.row_runs * self.column_runs + 4 * (self.row_runs + self.column_runs) + OTHER_REGISTERS

    def shared_bytes(self, bytes_: int, stages: int) -> int:
        """Return the shared memory of a block in bytes: the maximum of `stages` tiles of both operands and a run of sums."""
        sides = ((self.row_warps, self.row_runs), (self.column_warps, self.column_runs))
        tiles = sum(max(self._rows(*side, bytes_), self._transposed(*side, bytes_)) for side in sides)
        return max(stages * tiles, self.row_warps * SIDE * (4 * self.sizes[1] + 2 * ROW_BYTES))

    def _rows(self, warps: int, runs: int, bytes_: int) -> int:
        """Return the bytes of an operand tile whose rows run along the depth."""
        return warps * runs * SIDE * (self.depth * bytes_ + OFFSET_BYTES)

    def _transposed(self, warps: int, runs: int, bytes_: int) -> int:
        """Return the bytes of a transposed operand tile, whose rows run along the other axis."""
        return runs * self.depth * (warps * SIDE * bytes_ + OFFSET_BYTES)


@dataclass(frozen=True)
class WarpgroupTiling:
    """Tile of a block: numbers of warpgroups along rows and columns, runs of 64 rows and columns per warpgroup, depth of a step."""

    row_groups: int
    row_runs: int
    column_groups: int
    group_columns: int
    depth: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The tiling as the value of a tuning decision."""
        return self.row_groups, self.row_runs, self.column_groups, self.group_columns, self.depth

    @property
    def warps(self) -> tuple[int, int]:
        """Number of warpgroups along rows and columns."""
        return self.row_groups, self.column_groups

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return WARPGROUP * self.row_groups * self.column_groups

    @property
    def rate(self) -> float:
        """Multiply-adds per cycle times operand bytes."""
        return WARPGROUP_PRODUCT_BYTES

    @property
    def rows(self) -> tuple[int, int, int]:
        """Tiling of the rows: number of warps or warpgroups, runs per warp or warpgroup, rows per run."""
        return self.row_groups, self.row_runs, ROWS

    @property
    def columns(self) -> tuple[int, int, int]:
        """Tiling of the columns: number of warps or warpgroups, runs per warp or warpgroup, columns per run."""
        return self.column_groups, 1, self.group_columns

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return self.row_groups * self.row_runs * ROWS, self.column_groups * self.group_columns

    @property
    def registers(self) -> int:
        """Number of registers of a thread: accumulators and others."""
        return self.row_runs * self.group_columns // 2 + OTHER_REGISTERS

    def loaded(self, bytes_: int) -> int:
        """Return the bytes that warpgroups read from shared memory per step. They read the right operand once per run of rows."""
        read = self.row_runs * (ROWS + self.group_columns)
        return self.row_groups * self.column_groups * read * self.depth * bytes_

    def shared_bytes(self, bytes_: int, stages: int) -> int:
        """Return an upper bound of the shared memory of a block in bytes, with chunks padded by 16 bytes."""
        rows, columns = self.sizes
        chunks = max(STEP_BYTES // CHUNK_BYTES * self.row_runs, rows // 8) + max(STEP_BYTES // CHUNK_BYTES, columns // 8)
        tiles = (rows + columns) * STEP_BYTES + chunks * CHUNK_BYTES
        return max(stages * tiles, self.row_groups * ROWS * (4 * columns + 2 * ROW_BYTES))


BlockTiling = WarpTiling | WarpgroupTiling
AnyTiling = TypeVar("AnyTiling", WarpTiling, WarpgroupTiling)


@dataclass(frozen=True)
class Fetch:
    """Contiguous elements per access to the left and right operand. `by_map`: tensor maps, not threads, load tiles."""

    left: int
    right: int
    by_map: bool = False

    def accesses(self, tiling: BlockTiling) -> float:
        """Return the number of accesses of threads to global memory per step; 0 if tensor maps load tiles."""
        if self.by_map:
            return 0.0
        rows, columns = tiling.sizes
        return tiling.depth * (rows / self.left + columns / self.right)


def _tilings(problem: ContractionProblem) -> Iterator[WarpTiling]:
    """Yield tilings of at most eight warps. Rows and columns are less than twice those of the problem, or one fragment."""
    least = ROW_BYTES // problem.left_bytes
    depths = [least * count for count in (1, 2, 4) if count == 1 or least * count < 2 * problem.depth]
    for row_warps, column_warps in ((a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a * b <= MAX_WARPS):
        for row_runs, column_runs in ((a, b) for a in (1, 2, 4) for b in (1, 2, 4)):
            for depth in depths:
                tiling = WarpTiling(row_warps, row_runs, column_warps, column_runs, depth)
                sides = zip(tiling.sizes, (problem.rows, problem.columns), strict=True)
                small = all(size == SIDE or size < 2 * extent for size, extent in sides)
                if small and row_runs * column_runs * depth // least <= MAX_PRODUCTS:
                    yield tiling


def _warpgroup_tilings(problem: ContractionProblem) -> Iterator[WarpgroupTiling]:
    """Yield tilings of one or two warpgroups. Rows and columns are less than twice those of the problem, or minimal."""
    depth = STEP_BYTES // problem.left_bytes
    for row_groups, column_groups in ((1, 1), (2, 1), (1, 2)):
        for row_runs in (1, 2):
            for columns in COLUMNS:
                tiling = WarpgroupTiling(row_groups, row_runs, column_groups, columns, depth)
                if tiling.sizes[0] < 2 * max(problem.rows, ROWS) and tiling.sizes[1] < 2 * max(problem.columns, COLUMNS[0]):
                    yield tiling


def cycles(tiling: BlockTiling, problem: ContractionProblem, fetch: Fetch, resident: int, stages: int) -> float:
    """Predict the cycles of all blocks on a device that holds at most `resident` threads at once."""
    bytes_ = problem.left_bytes
    (rows, columns), warps = tiling.sizes, tiling.threads // WARP
    blocks = max(
        min(
            BLOCKS,
            RESIDENT_WARPS // warps,
            REGISTERS // (tiling.threads * tiling.registers),
            SHARED_OF_PROCESSOR // tiling.shared_bytes(bytes_, stages),
        ),
        1,
    )
    processors = max(resident // (RESIDENT_WARPS * WARP), 1)
    grid = -(-max(problem.rows, 1) // rows) * -(-max(problem.columns, 1) // columns) * max(problem.batch, 1)
    concurrent = min(blocks, -(-grid // processors))
    fetched = (rows + columns) * tiling.depth * bytes_
    flow = max(
        rows * columns * tiling.depth * bytes_ / tiling.rate,
        (fetched + tiling.loaded(bytes_)) / SHARED_BYTES,
        fetched / MAIN_BYTES,
        fetch.accesses(tiling) * FETCH / ISSUED,
    )
    step = STEP + (max(concurrent * flow, LATENCY / (stages - 1)) if stages > 1 else concurrent * flow + LATENCY)
    finish = rows * columns * 12 / MAIN_BYTES
    return -(-grid // (processors * concurrent)) * (START + concurrent * finish + -(-problem.depth // tiling.depth) * step)


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def rank_tilings(
    problem: ContractionProblem, fetch: Fetch, threads: Threads, shared: int, stage_limit: int
) -> tuple[WarpTiling, ...]:
    """Return the warp tilings with the least predicted time, best first."""
    return _ranked(_tilings(problem), problem, fetch, threads, shared, stage_limit)


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def rank_warpgroup_tilings(
    problem: ContractionProblem, fetch: Fetch, threads: Threads, shared: int, stage_limit: int, multiples: tuple[int, int] = (1, 1)
) -> tuple[WarpgroupTiling, ...]:
    """Return the warpgroup tilings with the least predicted time, best first. `multiples`: divisors of their rows and columns."""
    fitting = (item for item in _warpgroup_tilings(problem) if not (ROWS % multiples[0] or item.group_columns % multiples[1]))
    return _ranked(fitting, problem, fetch, threads, shared, stage_limit)


def _ranked(
    tilings: Iterable[AnyTiling], problem: ContractionProblem, fetch: Fetch, threads: Threads, shared: int, stage_limit: int
) -> tuple[AnyTiling, ...]:
    timed: list[tuple[float, int, AnyTiling]] = []
    for number, tiling in enumerate(tilings):
        stages = best_stages(tiling, problem, fetch, threads.resident, shared, stage_limit)
        fits = tiling.registers <= THREAD_REGISTERS and tiling.threads * tiling.registers <= REGISTERS
        fetches_fit = fetch.accesses(tiling) <= MAX_FETCHES * tiling.threads
        if stages and fits and fetches_fit and tiling.threads <= threads.block:
            timed.append((cycles(tiling, problem, fetch, threads.resident, stages), number, tiling))
    return tuple(tiling for _, _, tiling in sorted(timed, key=lambda item: item[:2])[:CANDIDATES])


def fitting_stages(tiling: BlockTiling, problem: ContractionProblem, shared: int, stage_limit: int) -> int:
    """Return the maximum number of stages (tiles of an operand) that fit shared memory, at most `stage_limit` and the number of
    steps."""
    stage_limit = min(stage_limit, max(-(-problem.depth // tiling.depth), 1))
    return next((stages for stages in range(stage_limit, 0, -1) if tiling.shared_bytes(problem.left_bytes, stages) <= shared), 0)


def best_stages(
    tiling: BlockTiling, problem: ContractionProblem, fetch: Fetch, resident: int, shared: int, stage_limit: int
) -> int:
    """Return the number of stages with the least predicted time, the smallest among equals; 0 if no stage fits shared memory."""
    legal_stages = range(1, fitting_stages(tiling, problem, shared, stage_limit) + 1)
    return min(legal_stages, key=lambda stages: cycles(tiling, problem, fetch, resident, stages), default=0)
