"""Hooks of the compile half of the microcontroller plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, Level, OpRule, StaticMemory, Target, TargetSpec, hookimpl
from inlaid_microcontroller.options import CPUS, MicrocontrollerOptions

if TYPE_CHECKING:
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.scheduling.rule import ScheduleRule
    from inlaid_microcontroller.codegen import MicrocontrollerCodegen
    from inlaid_microcontroller.export import FirmwareExporter

PLUGIN_API_VERSION = 3


def _capabilities(options: MicrocontrollerOptions) -> Capabilities:
    from inlaid_microcontroller.rules import DTYPES

    cpu = CPUS[options.cpu]
    speed = cpu.hertz / cpu.cycles
    return Capabilities(
        dtypes=DTYPES,
        dynamic_dims=False,
        branches=True,
        control_flow=True,
        peak=2 * speed,
        bandwidth=4 * speed,
        memory=StaticMemory(fast=options.fast),
        standalone=True,
    )


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target microcontroller."""
    return [TargetSpec("microcontroller", "microcontrollers, as C99", _capabilities, Level.LOOP, MicrocontrollerOptions)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return the rule that accepts every operator with a tensor expression and static sizes."""
    if target.kind != "microcontroller":
        return ()
    from inlaid_microcontroller.rules import rules

    return rules()


@hookimpl
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Return the plugin's schedule rules."""
    if target.kind != "microcontroller":
        return ()
    from inlaid_microcontroller.schedules.rules import RULES

    return RULES


@hookimpl
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """Return the intrinsics of int8 kernels."""
    from inlaid_microcontroller.intrinsics import intrinsics

    return intrinsics(CPUS[target.options.cpu])


@hookimpl
def inlaid_codegen(target: Target) -> MicrocontrollerCodegen:
    """Create the code generator."""
    from inlaid_microcontroller.codegen import MicrocontrollerCodegen

    return MicrocontrollerCodegen(target.options)


@hookimpl
def inlaid_exporter(target: Target) -> FirmwareExporter:
    """Create the exporter of firmware folders."""
    from inlaid_microcontroller.export import FirmwareExporter

    return FirmwareExporter(target.options)
