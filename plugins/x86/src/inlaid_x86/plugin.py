"""Hooks of the compile half. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Level, TargetSpec, hookimpl
from inlaid_x86_runtime.options import X86Options, versions

if TYPE_CHECKING:
    from inlaid.plugins import Capabilities, OpRule, Target
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.scheduling.rule import ScheduleRule
    from inlaid_x86.codegen import X86Codegen

PLUGIN_API_VERSION = 3


def _capabilities(options: X86Options) -> Capabilities:
    from inlaid_x86.capabilities import capabilities

    return capabilities(options)


def _surroundings(options: X86Options) -> str:
    """Describe what compiled code depends on besides the options: the features compiled for, and the version of LLVM."""
    import llvmlite

    from inlaid_x86_runtime.cpu import features

    return f"{llvmlite.__version__} {' '.join(features(options))}"


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target x86."""
    description = "x86-64 CPUs, through LLVM"
    requires = ("llvmlite",)
    return [TargetSpec("x86", description, _capabilities, Level.LOOP, X86Options, _surroundings, versions, requires, "inlaid[x86]")]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return the rule that accepts every operator with a tensor expression."""
    if target.kind != "x86":
        return ()
    from inlaid_x86.rules import rules

    return rules()


@hookimpl
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Return the schedule rules for AMX tiles, which make no offers on other processors."""
    if target.kind != "x86":
        return ()
    from inlaid_x86.tiles.conv import TileConvRule
    from inlaid_x86.tiles.matmul import TileMatmulRule

    return (TileMatmulRule(), TileConvRule())


@hookimpl
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """Return the tile and dot product instructions of the processor."""
    from inlaid_x86.instructions import tensor_instructions
    from inlaid_x86_runtime.cpu import features

    return tuple(item.intrinsic for item in tensor_instructions(features(target.options)))


@hookimpl
def inlaid_codegen(target: Target) -> X86Codegen:
    """Create the code generator."""
    from inlaid_x86.codegen import X86Codegen

    return X86Codegen(target.options)
