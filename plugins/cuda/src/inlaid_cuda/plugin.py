"""Hooks of the compile half of the CUDA plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inlaid.plugins import Capabilities, Level, OpRule, Phase, Target, TargetSpec, hookimpl
from inlaid_cuda.options import CudaOptions

if TYPE_CHECKING:
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.scheduling.rule import ScheduleRule
    from inlaid_cuda.codegen import CudaCodegen

PLUGIN_API_VERSION = 3


def _capabilities(options: CudaOptions) -> Capabilities:
    from inlaid_cuda.capabilities import capabilities

    return capabilities(options)


def _surroundings(options: CudaOptions) -> str:
    from inlaid_cuda.capabilities import surroundings

    return surroundings(options)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target `cuda`."""
    return [TargetSpec("cuda", "NVIDIA GPUs", _capabilities, Level.LOOP, CudaOptions, _surroundings)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return the rule that accepts every operator with a loop program."""
    if target.kind != "cuda":
        return ()
    from inlaid.lowering.loop_rule import loop_rule

    return (loop_rule("cuda", capabilities=_capabilities(target.options)),)


@hookimpl
def inlaid_passes(target: Target, phase: Phase) -> Sequence[Any]:
    """Return the passes for asynchronous copies to shared memory and for tile loads by tensor maps, if supported."""
    if target.kind != "cuda" or phase not in (Phase.BEFORE_PEELING, Phase.LOOP):
        return ()
    from inlaid.passes.manager import UnitPass
    from inlaid_cuda.tensor_cores.copies import copy_asynchronously
    from inlaid_cuda.tensor_cores.instructions import has_copies, has_wgmma
    from inlaid_cuda.tensor_cores.tile_loads import load_tiles

    if phase is Phase.BEFORE_PEELING:
        return (UnitPass("load_tiles", load_tiles),) if has_wgmma(target.options) else ()
    return (UnitPass("copy_asynchronously", copy_asynchronously),) if has_copies(target.options) else ()


@hookimpl
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Return the schedule rules for tensor cores, which make no offers on devices without them."""
    if target.kind != "cuda":
        return ()
    from inlaid_cuda.tensor_cores.product import TensorCoreRule
    from inlaid_cuda.tensor_cores.warpgroups import WarpgroupRule

    return (WarpgroupRule(), TensorCoreRule())


@hookimpl
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """Return the tensor-core instructions of the architecture."""
    from inlaid_cuda.tensor_cores.instructions import target_intrinsics

    return target_intrinsics(target.options)


@hookimpl
def inlaid_codegen(target: Target) -> CudaCodegen:
    """Create the code generator, which needs no driver or device."""
    from inlaid_cuda.codegen import CudaCodegen

    return CudaCodegen(target.options)
