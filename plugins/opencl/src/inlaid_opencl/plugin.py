"""Hooks of the compile half of the OpenCL plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, Level, OpRule, Target, TargetSpec, hookimpl
from inlaid_opencl.options import OpenCLOptions

if TYPE_CHECKING:
    from inlaid_opencl.codegen import OpenCLCodegen

PLUGIN_API_VERSION = 3


def _capabilities(options: OpenCLOptions) -> Capabilities:
    from inlaid_opencl.capabilities import capabilities

    return capabilities(options)


def _surroundings(options: OpenCLOptions) -> str:
    from inlaid_opencl.capabilities import surroundings

    return surroundings(options)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target `opencl`."""
    return [TargetSpec("opencl", "OpenCL devices", _capabilities, Level.LOOP, OpenCLOptions, _surroundings)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return the rule that accepts every operator with a loop program."""
    if target.kind != "opencl":
        return ()
    from inlaid.lowering.loop_rule import loop_rule

    return (loop_rule("opencl", capabilities=_capabilities(target.options)),)


@hookimpl
def inlaid_codegen(target: Target) -> OpenCLCodegen:
    """Create the code generator, which needs no driver or device."""
    from inlaid_opencl.codegen import OpenCLCodegen

    return OpenCLCodegen(target.options)
