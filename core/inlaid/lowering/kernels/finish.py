"""The passes that run on the kernels of a target, in order: they lower scheduled kernels to plain loops without blocks, with large
scratch buffers as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inlaid.lowering.kernels.plain import ANY, hoist_scratch, with_checked_registers, without_prefetches, without_vectors
from inlaid.passes.manager import Pass, UnitPass, run_passes
from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.math.floats import FLOAT32, FLOAT64
from inlaid.tensor.transform.align import align_buffers
from inlaid.tensor.transform.bind_parallel import bind_parallel
from inlaid.tensor.transform.block_sums import block_sums
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.divisions import hoist_divisions
from inlaid.tensor.transform.float64_operands import mark_intermediate_float64
from inlaid.tensor.transform.guards import free_registers, nest_guards
from inlaid.tensor.transform.lane_guards import hoist_lane_guards
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.parallel_loops import parallel_loops
from inlaid.tensor.transform.peel import peel_loops
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid.tensor.transform.vthread import lower_vthreads

LoopPass = Pass[ir.LoopProgram]


def kernel_passes(able: Capabilities = ANY, before_peeling: Sequence[LoopPass] = ()) -> tuple[LoopPass, ...]:
    """List the passes over a scheduled kernel of a target with these capabilities. `before_peeling` are the target's own passes of
    `Phase.BEFORE_PEELING`. Later, the passes of `Phase.LOOP` and those of the target's code generator run on the kernels of each
    region, including copies between layouts."""
    threads = able.threads
    in_integers = threads is not None and not able.full_rate_float64
    # With one thread per block, the schedule rules for vector CPUs decide what runs in parallel.
    parallel = threads is not None and threads.block != 1
    total = (FLOAT64 if "float64" in able.dtypes or in_integers else FLOAT32).dtype
    return (
        # Blocks become loop nests. Each buffer is still computed in one nest, with bounds conditions.
        UnitPass("flatten_blocks", flatten_blocks),
        UnitPass("simplify_nests", simplify_program),
        UnitPass("compact_buffers", compact_buffers),
        UnitPass("align_buffers", align_buffers),
        UnitPass("free_registers", free_registers),
        UnitPass("lower_vthreads", lower_vthreads),
        *([UnitPass("drop_prefetches", without_prefetches)] if able.vector_bits and not able.prefetch else ()),
        *before_peeling,
        *([UnitPass("mark_intermediate_float64", mark_intermediate_float64)] if in_integers else ()),
        *([UnitPass("parallel_loops", parallel_loops)] if parallel else ()),
        # Loops are peeled, so that inner loops need no bounds checks.
        UnitPass("peel_loops", peel_loops),
        UnitPass("block_sums", partial(block_sums, total=total)),
        UnitPass("unroll_loops", partial(unroll_loops, keep=able.unrolls)),
        UnitPass("nest_guards", nest_guards),
        *([UnitPass("lane_guards", hoist_lane_guards)] if threads is not None else ()),
        UnitPass("simplify_loops", simplify_program),
        UnitPass("hoist_divisions", hoist_divisions),
        UnitPass("check_registers", with_checked_registers),
        UnitPass("hoist_scratch", partial(hoist_scratch, able=able)),
        *([UnitPass("bind_parallel", partial(bind_parallel, block=threads.block))] if threads is not None else ()),
    )


def copy_passes(able: Capabilities) -> tuple[LoopPass, ...]:
    """List the passes over a copy between layouts, which is not scheduled."""
    return () if able.vector_bits else (UnitPass("serialize_vectors", without_vectors),)


def finish(program: ir.LoopProgram, target_passes: Sequence[LoopPass] = (), able: Capabilities = ANY) -> ir.LoopProgram:
    """Lower a kernel to plain loops with simplified indices, within the target's stack limits, by `kernel_passes`. `target_passes`
    are the target's own passes before peeling. Raises `ScheduleError` for a register buffer with a non-constant index."""
    return run_passes(kernel_passes(able, target_passes), program)
