"""Schedule of contractions by `wgmma` (sm_90a). Used for large tiles if the cost model prefers it to products by warps.

A block has one or two warpgroups. Operand tiles of a step are loaded into shared memory by tensor maps, or fetched by all threads
if an operand is not a plain tensor. Tiles have the layout of matrix descriptors, and warpgroups multiply them from shared memory.
The epilogue is the same as for products by warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from inlaid.plugins.contract import Threads
from inlaid.schedules.shape import axis_loops
from inlaid.schedules.threads.contraction import Contraction
from inlaid.schedules.threads.product_nest import axis_name, find_block
from inlaid.schedules.threads.tile_model import ContractionProblem, describe_problem
from inlaid.schedules.threads.tiles import runs_along
from inlaid.tensor import ir
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_cuda.capabilities import ACCUMULATORS, SHARED
from inlaid_cuda.tensor_cores.product import (
    VECTOR_BYTES,
    WARP_AXES,
    ProductSchedule,
    contiguous_fetch,
    element_types,
    match_contraction,
    max_stages,
    operand_axes,
    unchanged,
)
from inlaid_cuda.tensor_cores.tile_loads import has_tensor_map
from inlaid_cuda.tensor_cores.tiles import (
    BlockTiling,
    Fetch,
    WarpgroupTiling,
    best_stages,
    cycles,
    fitting_stages,
    rank_tilings,
    rank_warpgroup_tilings,
)
from inlaid_cuda.tensor_cores.unit import FragmentUnit
from inlaid_cuda.tensor_cores.wgmma import accumulator_name, chunk_size, has_transposed, product_name
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR


class WarpgroupRule:
    """Schedule rule for contractions (see `find_contraction`) of element types that `wgmma` supports."""

    name = "warpgroup_product"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines targets without wgmma, contractions for which `mma.sync` is predicted to be faster, and
        kernels that `TensorCoreRule` declines."""
        names = {item.name for item in context.intrinsics if item.name.startswith("cuda.wgmma")}
        match = match_contraction(program, context) if names else None
        if match is None:
            return None
        s, contraction, shared = match
        left, right, total = element_types(contraction)
        can_transpose = (has_transposed(left), has_transposed(right))
        threads, problem, stage_limit = (
            context.capabilities.threads,
            describe_problem(contraction),
            max_stages(contraction, context),
        )
        assert threads is not None, "a rule for threads schedules for threads"
        is_across_depth = [not runs_along(value, contraction.depth, axes) for value, axes in operand_axes(contraction)]
        transposed = (can_transpose[0] and is_across_depth[0], can_transpose[1] and is_across_depth[1])
        can_map = int(list(transposed) == is_across_depth and _have_tensor_maps(contraction, program))
        by_map = context.decide("tensor_maps", range(can_map + 1), can_map)
        swizzled = bool(by_map.number)
        fetch = Fetch(1, 1, True) if swizzled else contiguous_fetch(contraction, can_transpose, threads.vector_bytes)
        multiples = [
            chunk_size(element, True) if swizzled and flag else 1 for element, flag in zip((left, right), transposed, strict=True)
        ]
        tilings = rank_warpgroup_tilings(problem, fetch, threads, shared, stage_limit, (multiples[0], multiples[1]))
        if not tilings or not self.prefers(
            tilings[0],
            problem,
            fetch,
            contiguous_fetch(contraction, can_transpose, threads.vector_bytes),
            threads,
            shared,
            stage_limit,
        ):
            return None
        tile = context.decide("tile", (tiling.numbers for tiling in tilings), tilings[0].numbers)
        tiling = WarpgroupTiling(*tile.numbers)
        legal_stages = fitting_stages(tiling, problem, shared, stage_limit)
        best = best_stages(tiling, problem, fetch, threads.resident, shared, stage_limit)
        stages = context.decide("stages", range(1, legal_stages + 1), best)
        unit = _unit(left, right, total, tiling.group_columns, transposed, swizzled)
        if not {unit.zero, unit.product, unit.store} <= names:
            return None
        try:
            kind = _MappedSchedule if swizzled else _WarpgroupSchedule
            schedule = kind(s.copy(), contraction, unit, tiling, stages.number, threads.vector_bytes).schedule()
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(partial(unchanged, schedule)), decisions=(by_map, tile, stages))

    def prefers(
        self,
        best: WarpgroupTiling,
        problem: ContractionProblem,
        warpgroup_fetch: Fetch,
        warp_fetch: Fetch,
        threads: Threads,
        shared: int,
        stage_limit: int,
    ) -> bool:
        """Test whether warpgroup tiling `best` with fetches `warpgroup_fetch` is predicted to be faster than any warp tiling."""

        def time(tiling: BlockTiling, fetch: Fetch) -> float:
            stages = best_stages(tiling, problem, fetch, threads.resident, shared, stage_limit)
            return cycles(tiling, problem, fetch, threads.resident, stages)

        warps = rank_tilings(problem, warp_fetch, threads, shared, stage_limit)
        return not warps or time(best, warpgroup_fetch) < time(warps[0], warp_fetch)


def _have_tensor_maps(contraction: Contraction, program: ir.LoopProgram) -> bool:
    return all(has_tensor_map(value, axes, contraction.depth, program.inputs) for value, axes in operand_axes(contraction))


def _unit(left: str, right: str, total: str, columns: int, transposed: tuple[bool, bool], swizzled: bool) -> FragmentUnit:
    """Return the instructions of a warpgroup. No instruction loads fragments. `transposed` of the unit only marks the transposed
    operands."""
    product = product_name(left, right, columns, transposed, swizzled)
    transposed_marks = (product if transposed[0] else "", product if transposed[1] else "")
    zero, store = (accumulator_name(kind, total, columns) for kind in ("zero", "store"))
    return FragmentUnit(zero, ("", ""), transposed_marks, product, store)


class _WarpgroupSchedule(ProductSchedule):
    """Schedule of a contraction by warpgroups. Loops over warps become loops over warpgroups."""

    scope: ClassVar[str] = ACCUMULATORS
    swizzled: ClassVar[bool] = False

    def _sum(self, factors: tuple[str, str], total: str, outer: Sequence[Var]) -> Var | None:
        s, outer_count = self.s, len(outer)
        *_, steps, depth = axis_loops(s, total)
        assert depth is not None, "a step covers several elements"
        loops = {axis_name(loop): loop for loop in s.loops(total)[outer_count:] if loop is not steps and loop is not depth}
        nest = [loops[name] for name in (*WARP_AXES, "mj", "mv", "nv") if name in loops]
        s.reorder(*([] if steps is None else [steps]), *nest, depth)
        init = s.decompose_reduction(total, nest[0] if steps is None else steps)
        for number, name in enumerate(factors):
            s.set_scope(name, SHARED)
            self._fetch(name, number, outer, steps)
            self._in_chunks(name, number)
        init_loops = {axis_name(loop): loop for loop in s.loops(init)[outer_count:]}
        s.reorder(*(init_loops[name] for name in (*WARP_AXES, "mj", "mv", "nv") if name in init_loops))
        for block, intrinsic in ((init, self.unit.zero), (total, self.unit.product)):
            self._in_warps(block, outer_count)
            s.tensorize(next(loop for loop in s.loops(block) if axis_name(loop) == "mv"), intrinsic)
        return steps

    def _in_chunks(self, name: str, number: int) -> None:
        """Split the contiguous axis of an operand tile into chunks; the chunk number becomes the outer axis of the tile."""
        buffer = find_block(self.s, name).writes[0].buffer
        chunk = chunk_size(buffer.dtype.name, self.swizzled)
        *outer_axes, across, along = (f"i{axis}" for axis in range(len(buffer.shape)))
        new_axes = ", ".join([*outer_axes, f"({along} // {chunk})", across, f"({along} % {chunk})"])
        self.s.transform_layout(name, f"({', '.join([*outer_axes, across, along])}) -> ({new_axes})")

    def _pad(self, name: str, bytes_: int) -> None:
        """Pad chunks so that adjacent chunks start in different banks."""
        self._align(name, bytes_, VECTOR_BYTES, 2)


class _MappedSchedule(_WarpgroupSchedule):
    """Schedule that fills tiles by plain loops. The pass `load_tiles` later replaces the loops by loads by tensor maps."""

    swizzled: ClassVar[bool] = True

    def _fetch(self, name: str, number: int, outer: Sequence[Var], steps: Var | None) -> None:
        self.s.compute_at(name, outer[-1] if steps is None else steps)

    def _pad(self, name: str, bytes_: int) -> None:
        """Do nothing, since boxes of tensor maps are dense."""
