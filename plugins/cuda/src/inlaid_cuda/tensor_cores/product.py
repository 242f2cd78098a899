"""Schedule of contractions by tensor cores: matrix products, and convolutions as implicit matrix products.

A block of threads computes a tile of rows and columns; each of its warps computes several accumulator fragments. For each step of
the reduction axis ("depth"), all threads fetch the tiles of both operands into shared memory, and warps load fragments from there.
Sums are then copied to shared memory, so that the epilogue runs on vectors of contiguous columns. No schedule depends on how
fragments are distributed over threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import ClassVar

from inlaid.schedules.shape import axis_loops
from inlaid.schedules.threads.contraction import Contraction, ContractionAxis, prepared, total_extent
from inlaid.schedules.threads.product import outer_loops
from inlaid.schedules.threads.product_nest import (
    BATCHES,
    COLUMN_BLOCKS,
    ROW_BLOCKS,
    axis_name,
    find_block,
    static_extent,
    vector_lanes,
)
from inlaid.schedules.threads.tile_model import describe_problem
from inlaid.schedules.threads.tiles import TILE_PRODUCT, runs_along
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_cuda.capabilities import FRAGMENT, SHARED
from inlaid_cuda.tensor_cores.products import LANES_AXIS
from inlaid_cuda.tensor_cores.tiles import BlockTiling, Fetch, WarpTiling, best_stages, fitting_stages, rank_tilings
from inlaid_cuda.tensor_cores.unit import FragmentUnit, find_unit, fragment_depth
from inlaid_cuda.tensor_cores.waits import COPY, MAX_STAGES
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR

WARP_AXES = {"mt": "threadIdx.z", "nt": "threadIdx.y"}
"""Thread axis of each loop over warps: `mt` along rows, `nt` along columns."""
VECTOR_BYTES = 16
BANK_BYTES = 128
"""Total width of all banks of shared memory in bytes."""
SUMS_OFFSET = 32
"""Row stride in bytes of sums in shared memory, modulo the width of all banks. With it, the four rows to which half a warp stores
pairs of sums are in different banks."""
SCATTERED = 4
"""Maximum contiguous elements per fetch from global memory if the elements are not contiguous in shared memory."""
LEAST = 8
"""Minimum rows and columns of products for tensor cores. Smaller products leave more than half of each fragment unused."""


class TensorCoreRule:
    """Schedule rule for contractions (see `find_contraction`) of element types that the tensor cores support."""

    name = "tensor_core_product"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines unsupported element types, a reduction axis of extent 0 or 1, and few rows or columns."""
        match = match_contraction(program, context)
        if match is None:
            return None
        s, contraction, shared = match
        unit = find_unit(context, *element_types(contraction), SHARED)
        if unit is None:
            return None
        threads, problem = context.capabilities.threads, describe_problem(contraction)
        assert threads is not None, "a rule for threads schedules for threads"
        stage_limit, fetch = max_stages(contraction, context), contiguous_fetch(contraction, unit.transposed, threads.vector_bytes)
        tilings = rank_tilings(problem, fetch, threads, shared, stage_limit)
        if not tilings:
            return None
        tile = context.decide("tile", (tiling.numbers for tiling in tilings), tilings[0].numbers)
        tiling = WarpTiling(*tile.numbers)
        legal_stages = fitting_stages(tiling, problem, shared, stage_limit)
        best = best_stages(tiling, problem, fetch, threads.resident, shared, stage_limit)
        stages = context.decide("stages", range(1, legal_stages + 1), best)
        try:
            schedule = ProductSchedule(s.copy(), contraction, unit, tiling, stages.number, threads.vector_bytes).schedule()
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(partial(unchanged, schedule)), decisions=(tile, stages))


def operand_axes(contraction: Contraction) -> tuple[tuple[ir.Expr, tuple[ContractionAxis, ...]], ...]:
    """Return pairs of an operand and its axes without the reduction axis: left with rows, right with columns."""
    return (contraction.left, contraction.rows), (contraction.right, contraction.columns)


def match_contraction(program: ir.LoopProgram, context: KernelContext) -> tuple[Schedule, Contraction, int] | None:
    """Match a contraction with enough rows and columns for tensor cores. Returns its schedule, the contraction, and the bytes of
    shared memory that a block may use. Returns None for any other kernel."""
    scope = next((scope for scope in context.capabilities.scopes if scope.name == SHARED), None)
    shared = 0 if scope is None else scope.capacity - 2 * scope.alignment  # each operand's tiles are aligned
    prepared_schedule = _prepared(program, context.intrinsics) if context.intrinsics and shared else None
    if prepared_schedule is None:
        return None
    s, contraction = prepared_schedule
    sides = [static_extent(total_extent(axes)) for axes in (contraction.rows, contraction.columns)]
    if contraction.inverse is None or static_extent(total_extent(contraction.depth)) in (0, 1):
        return None
    if any(size is not None and size < LEAST for size in sides) or not contraction.columns:
        return None
    return s, contraction, shared


@lru_cache(maxsize=2)
def _prepared(program: ir.LoopProgram, intrinsics: tuple[TensorIntrin, ...]) -> tuple[Schedule, Contraction] | None:
    """Call `prepared`. The result is cached, since the rules for warpgroups and for warps request it one after the other."""
    return prepared(program, intrinsics)


def element_types(contraction: Contraction) -> tuple[str, str, str]:
    """Return the element types of the left operand, of the right operand and of the sums."""
    return contraction.left.dtype.name, contraction.right.dtype.name, contraction.anchor.buffer.dtype.name


def max_stages(contraction: Contraction, context: KernelContext) -> int:
    """Return the maximum number of pipeline stages (tiles of an operand in shared memory). Without asynchronous copies it is two,
    since loads in flight occupy registers. It is one if the extent of the reduction axis is unknown."""
    if static_extent(total_extent(contraction.depth)) is None:
        return 1
    return MAX_STAGES if any(item.name.startswith(COPY) for item in context.intrinsics) else 2


def contiguous_fetch(contraction: Contraction, transposed: Sequence[object], vector_bytes: int) -> Fetch:
    """Return the number of contiguous elements of each operand per access. They are contiguous along the depth, or along the other
    axis if `transposed` allows it: the operand is then contiguous along that axis in shared memory too."""

    def contiguous_elements(value: ir.Expr, axes: tuple[ContractionAxis, ...], can_transpose: object) -> int:
        if runs_along(value, contraction.depth, axes):
            return vector_lanes(value, contraction.depth, vector_bytes)
        return vector_lanes(value, axes, vector_bytes) if can_transpose else 1

    left, right = (
        contiguous_elements(value, axes, can_transpose)
        for (value, axes), can_transpose in zip(operand_axes(contraction), transposed, strict=True)
    )
    return Fetch(left, right)


def unchanged(schedule: Schedule) -> Schedule:
    """Return `schedule`. It was built before the offer, since the rule makes no offer if a primitive rejects it."""
    return schedule


@dataclass
class ProductSchedule:
    """Schedule of a contraction by warps."""

    scope: ClassVar[str] = FRAGMENT
    """Memory scope of the accumulators."""
    s: Schedule
    contraction: Contraction
    unit: FragmentUnit
    tiling: BlockTiling
    stages: int
    vector_bytes: int

    def schedule(self) -> Schedule:
        """Build the schedule:

        for batch, rows, columns, blocks:
            for warps: acc = 0                               # fragments
            for q:
                for warps, lanes: left = ...                 # the tile of a step, in shared memory
                for warps, lanes: right = ...
                for warps: for kj: { a, b = left, right; acc += a * b }
            for mj:
                for warps: sums = acc                        # shared memory
                for warps, lanes: out = after(sums)
        """
        s, tiling = self.s, self.tiling
        s.apply(TILE_PRODUCT, tiling.rows, tiling.columns, tiling.depth, 1)
        left, right, total, store, *rest = s.blocks
        if rest:
            raise ScheduleError(f"expected one block after the sums, found another one, {rest[0]}")
        outer, _ = outer_loops(s, store)
        self._permute(left, ("mj", "ki", "m") if self._transposed(0) else ("mj", "m", "ki"))
        self._permute(right, ("nj", "ki", "n") if self._transposed(1) else ("nj", "n", "ki"))
        dims = self._permute(total, ("mj", "nj", "mv", "nv"))
        s.set_scope(find_block(s, total).writes[0].buffer.name, self.scope)
        self._finish(total, store, dims, outer)
        s.compute_at(total, outer[-1])
        steps = self._sum((left, right), total, outer)
        if self.stages > 1 and steps is not None:
            s.software_pipeline(steps, (0, 0, self.stages - 1))
        for name, (value, _) in zip((left, right), operand_axes(self.contraction), strict=True):
            self._pad(name, value.dtype.bytes)
        for loop, axis in zip(reversed(outer), (COLUMN_BLOCKS, ROW_BLOCKS, BATCHES), strict=False):
            s.bind(loop, axis)
        return s

    def _transposed(self, number: int) -> bool:
        """Test whether an operand is contiguous along its other axis, not along the depth, in global and shared memory."""
        value, axes = operand_axes(self.contraction)[number]
        return bool(self.unit.transposed[number]) and not runs_along(value, self.contraction.depth, axes)

    def _permute(self, name: str, last: Sequence[str]) -> tuple[str, ...]:
        """Permute the dimensions of the buffer that a block writes, so that the loops `last` index the last ones. Returns the names
        of the loops in the order of the dimensions."""
        store = find_block(self.s, name).body
        assert isinstance(store, ir.Store)
        names = [axis_name(index) for index in store.indices if isinstance(index, Var)]
        order = [*(loop for loop in names if loop not in last), *(loop for loop in last if loop in names)]
        if order != names:
            self.s.transform_layout(store.buffer.name, f"({', '.join(names)}) -> ({', '.join(order)})")
        return tuple(order)

    def _pad(self, name: str, bytes_: int) -> None:
        """Pad the rows of an operand tile, so that the elements of a column in adjacent rows are in different banks."""
        self._align(name, bytes_, VECTOR_BYTES)

    def _align(self, name: str, bytes_: int, offset: int, dims: int = 1) -> None:
        """Pad rows (the last `dims` axes) of a shared buffer to `offset` bytes more than a multiple of the bank width."""
        buffer = next(
            stmt.buffer for stmt in ir.walk_stmts(self.s.program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.name == name
        )
        row = arith.product(buffer.shape[-dims:])
        assert isinstance(row, int)
        self.s.storage_align(name, len(buffer.shape) - 1 - dims, min(row & -row, BANK_BYTES // bytes_), offset // bytes_)

    # -- the sum --

    def _sum(self, factors: tuple[str, str], total: str, outer: Sequence[Var]) -> Var | None:
        """Reorder the loops of the sum, tensorize them, and fetch the operands. Returns the loop over steps."""
        s, unit, outer_count = self.s, self.unit, len(outer)
        *_, steps, depth = axis_loops(s, total)
        assert depth is not None, "a step covers at least a row of a fragment"
        loops = {axis_name(loop): loop for loop in s.loops(total)[outer_count:] if loop is not steps and loop is not depth}
        kj, kk = s.split(depth, (None, fragment_depth(self.contraction.left.dtype.name)))
        warps, fragment_loops = ([loops[name] for name in names if name in loops] for names in (WARP_AXES, ("mj", "nj")))
        s.reorder(*([] if steps is None else [steps]), *warps, kj, *fragment_loops, loops["mv"], loops["nv"], kk)
        init = s.decompose_reduction(total, (warps[0] if warps else kj) if steps is None else steps)
        for number, name in enumerate(factors):
            s.set_scope(name, SHARED)
            self._load(name, number, total, kj)
        init_loops = {axis_name(loop): loop for loop in s.loops(init)[outer_count:]}
        s.reorder(*(init_loops[name] for name in (*WARP_AXES, "mj", "nj", "mv", "nv") if name in init_loops))
        for block, intrinsic in ((init, unit.zero), (total, unit.product)):
            self._in_warps(block, outer_count)
            s.tensorize(next(loop for loop in s.loops(block) if axis_name(loop) == "mv"), intrinsic)
        s.unroll(kj)
        for number, name in enumerate(factors):
            self._fetch(name, number, outer, steps)
        return steps

    def _in_warps(self, name: str, outer_count: int) -> None:
        """Bind the loops over warps of a block to thread axes, and unroll the loops over the fragments of a warp."""
        for loop in self.s.loops(name)[outer_count:]:
            if axis_name(loop) in WARP_AXES:
                self.s.bind(loop, WARP_AXES[axis_name(loop)])
            elif axis_name(loop) in ("mj", "nj"):
                self.s.unroll(loop)

    def _load(self, name: str, number: int, total: str, kj: Var) -> None:
        """Load a warp's fragments of an operand for one position along the depth."""
        s, transposed = self.s, self._transposed(number)
        fragment = s.cache_read(total, name, FRAGMENT)
        s.compute_at(fragment, kj)
        loops = s.loops(fragment)
        inner = list(loops[loops.index(kj) + 1 :])
        if transposed:
            buffer = find_block(s, fragment).writes[0].buffer
            *outer_axes, depth, side = (f"i{axis}" for axis in range(len(buffer.shape)))
            s.transform_layout(
                buffer.name, f"({', '.join([*outer_axes, depth, side])}) -> ({', '.join([*outer_axes, side, depth])})"
            )
            inner[-2:] = inner[:-3:-1]
            s.reorder(*inner[-2:])
        for loop in inner[:-2]:
            s.unroll(loop)
        s.tensorize(inner[-2], (self.unit.transposed if transposed else self.unit.rows)[number])

    # -- phases of all threads --

    def _fetch(self, name: str, number: int, outer: Sequence[Var], steps: Var | None) -> None:
        """Distribute the elements of a tile over all threads, so that loads are coalesced."""
        s, (value, axes) = self.s, operand_axes(self.contraction)[number]
        s.compute_at(name, outer[-1] if steps is None else steps)
        loops = s.loops(name)[len(outer) + (steps is not None) :]
        along_depth = runs_along(value, self.contraction.depth, axes)
        size = self.tiling.sizes[number]
        run, run_axes = (self.tiling.depth, self.contraction.depth) if along_depth else (size, axes)
        lanes = vector_lanes(value, run_axes, self.vector_bytes)
        if not (along_depth or self._transposed(number)):
            lanes = min(lanes, SCATTERED)
        while lanes > 1 and (run % lanes or self.tiling.depth * size % (self.tiling.threads * lanes)):
            lanes //= 2
        self._share_out(loops, lanes)

    def _share_out(self, loops: Sequence[Var], lanes: int) -> None:
        """Fuse nested loops and distribute the iterations over all threads. `lanes` adjacent iterations form a vector."""
        s = self.s
        flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
        warp_threads = self.tiling.threads // prod(self.tiling.warps)
        round_loop, row, column, thread, lane = s.split(flat, (None, *self.tiling.warps, warp_threads, lanes))
        s.reorder(row, column, thread, round_loop)
        for loop, axis in ((row, WARP_AXES["mt"]), (column, WARP_AXES["nt"]), (thread, LANES_AXIS)):
            s.bind(loop, axis)
        if lanes > 1:
            s.vectorize(lane)

    def _finish(self, total: str, store: str, dims: Sequence[str], outer: Sequence[Var]) -> None:
        """Schedule the epilogue: for each run of rows, warps store their fragments, then all threads compute the results."""
        s, outer_count = self.s, len(outer)
        acc = find_block(s, total).writes[0].buffer
        loops = {axis_name(loop): loop for loop in s.loops(store)[outer_count:]}
        s.reorder(*(loops[name] for name in ("mj", "mt", "mv", "nj", "nt", "nv") if name in loops))
        sums = s.cache_read(store, acc.name, SHARED)
        s.compute_at(sums, loops.get("mj", outer[-1]))
        fragment_start = outer_count + ("mj" in loops)
        single = [name for name, count in zip(WARP_AXES, self.tiling.warps, strict=True) if count == 1]
        fragment_axes = [name for name in dims if name in ("mt", "nt", "nj", "mv", "nv") and name not in single]
        sum_loops = dict(zip(fragment_axes, s.loops(sums)[fragment_start:], strict=True))
        outer_axes = [name for name in dims if name not in ("mt", "mv", "nj", "nt", "nv")]
        run = f"((nj * {self.tiling.warps[1]}) + nt)" if "nj" in dims else "nt"
        rows, columns = f"((mt * {self.tiling.rows[2]}) + mv)", f"(({run} * {self.tiling.columns[2]}) + nv)"
        s.transform_layout(sums, f"({', '.join(dims)}) -> ({', '.join([*outer_axes, rows, columns])})")
        for name, loop in sum_loops.items():
            if name in WARP_AXES:
                s.bind(loop, WARP_AXES[name])
            elif name == "nj":
                s.unroll(loop)
        s.tensorize(sum_loops["mv"], self.unit.store)
        if "mj" in loops:
            s.unroll(loops["mj"])
        self._align(sums, acc.dtype.bytes, SUMS_OFFSET)
        self._share_out(s.loops(store)[fragment_start:], 4)
