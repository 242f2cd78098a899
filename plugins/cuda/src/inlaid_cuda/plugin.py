"""The CUDA plugin: what it provides, cheap to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, DeviceStatus, Level, OpRule, RuntimeModule, Target, TargetSpec, hookimpl
from inlaid_cuda.options import CudaOptions

if TYPE_CHECKING:
    from inlaid_cuda.codegen import CudaCodegen

PLUGIN_API_VERSION = 2


def _capabilities(options: CudaOptions) -> Capabilities:
    from inlaid_cuda.capabilities import capabilities

    return capabilities(options)


def _surroundings(options: CudaOptions) -> str:
    from inlaid_cuda.capabilities import surroundings

    return surroundings(options)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """cuda."""
    return [TargetSpec("cuda", "NVIDIA GPUs", _capabilities, Level.LOOP, CudaOptions, _surroundings)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Every operator that has a tensor-level meaning, on tensors of bounded sizes."""
    if target.kind != "cuda":
        return ()
    from inlaid.lowering.claims import rule_for_loops, unbounded

    return (rule_for_loops("cuda", unbounded, _capabilities(target.options)),)


@hookimpl
def inlaid_codegen(target: Target) -> CudaCodegen:
    """The code generator, which needs neither driver nor device."""
    from inlaid_cuda.codegen import CudaCodegen

    return CudaCodegen(target.options)
