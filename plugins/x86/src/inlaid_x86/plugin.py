"""The x86-64 plugin: what it provides, cheap to import.

This module and those that run packages are part of the distribution inlaid-runtime, those that compile of inlaid-x86: hooks import
the latter when they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Level, TargetSpec, hookimpl
from inlaid_x86.options import X86Options, versions

if TYPE_CHECKING:
    from inlaid.plugins import Capabilities, DeviceStatus, OpRule, Target
    from inlaid.schedules.rule import ScheduleRule
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid_x86.codegen import X86Codegen
    from inlaid_x86.runtime import X86Runtime

PLUGIN_API_VERSION = 2


def _capabilities(options: X86Options) -> Capabilities:
    from inlaid_x86.capabilities import capabilities

    return capabilities(options)


def _surroundings(options: X86Options) -> str:
    """What code depends on besides the options: the features compiled for, and LLVM."""
    import llvmlite

    from inlaid_x86.cpu import features

    return f"{llvmlite.__version__} {' '.join(features(options))}"


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """x86."""
    what = "x86-64 CPUs, through LLVM"
    requires = ("inlaid_x86.codegen", "llvmlite")
    return [TargetSpec("x86", what, _capabilities, Level.LOOP, X86Options, _surroundings, versions, requires, "inlaid[x86]")]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Every operator that has a tensor-level meaning."""
    if target.kind != "x86":
        return ()
    from inlaid_x86.rules import rules

    return rules()


@hookimpl
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Rules for matrix tiles, which decline on processors without them."""
    if target.kind != "x86":
        return ()
    from inlaid_x86.tiles.conv import TileConvRule
    from inlaid_x86.tiles.matmul import TileMatmulRule

    return (TileMatmulRule(), TileConvRule())


@hookimpl
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """The products of tiles and the dot products that the processor has."""
    from inlaid_x86.cpu import features
    from inlaid_x86.instructions import tensor_instructions

    return tuple(each.intrinsic for each in tensor_instructions(features(target.options)))


@hookimpl
def inlaid_codegen(target: Target) -> X86Codegen:
    """The code generator."""
    from inlaid_x86.codegen import X86Codegen

    return X86Codegen(target.options)


@hookimpl
def inlaid_runtime(target: Target) -> X86Runtime:
    """The runtime module."""
    from inlaid_x86.runtime import X86Runtime

    return X86Runtime(target.options)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Whether this machine is an x86-64 one with Linux."""
    from inlaid_x86.cpu import probe

    return probe()
