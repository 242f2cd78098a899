"""The microcontroller plugin: what it provides, cheap to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlay.plugins import Capabilities, DeviceStatus, Level, OpRule, StaticMemory, Target, TargetSpec, hookimpl
from inlay_microcontroller.options import CPUS, MicrocontrollerOptions

if TYPE_CHECKING:
    from inlay.schedules.rule import ScheduleRule
    from inlay.tensor.primitives import TensorIntrin
    from inlay_microcontroller.codegen import MicrocontrollerCodegen
    from inlay_microcontroller.export import FirmwareExporter
    from inlay_microcontroller.runtime import MicrocontrollerRuntime

PLUGIN_API_VERSION = 1


def _capabilities(options: MicrocontrollerOptions) -> Capabilities:
    from inlay_microcontroller.rules import DTYPES

    cpu = CPUS[options.cpu]
    speed = cpu.hertz / cpu.cycles
    return Capabilities(
        dtypes=DTYPES,
        dynamic_dims=False,
        peak=2 * speed,
        bandwidth=4 * speed,
        memory=StaticMemory(fast=options.fast),
        standalone=True,
    )


@hookimpl
def inlay_targets() -> Sequence[TargetSpec]:
    """microcontroller."""
    return [TargetSpec("microcontroller", "microcontrollers, as C99", _capabilities, Level.LOOP, MicrocontrollerOptions)]


@hookimpl
def inlay_op_rules(target: Target) -> Sequence[OpRule]:
    """Every operator that has a tensor-level meaning, where its sizes are known."""
    if target.kind != "microcontroller":
        return ()
    from inlay_microcontroller.rules import rules

    return rules()


@hookimpl
def inlay_schedules(target: Target) -> Sequence[ScheduleRule]:
    """The plugin's own rules."""
    if target.kind != "microcontroller":
        return ()
    from inlay_microcontroller.schedules.rules import RULES

    return RULES


@hookimpl
def inlay_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """What kernels of 8-bit numbers are made of."""
    from inlay_microcontroller.intrinsics import intrinsics

    return intrinsics(CPUS[target.options.cpu])


@hookimpl
def inlay_codegen(target: Target) -> MicrocontrollerCodegen:
    """The code generator."""
    from inlay_microcontroller.codegen import MicrocontrollerCodegen

    return MicrocontrollerCodegen(target.options)


@hookimpl
def inlay_runtime(target: Target) -> MicrocontrollerRuntime:
    """The runtime module."""
    from inlay_microcontroller.runtime import MicrocontrollerRuntime

    return MicrocontrollerRuntime(target.options)


@hookimpl
def inlay_exporter(target: Target) -> FirmwareExporter:
    """What writes firmware folders."""
    from inlay_microcontroller.export import FirmwareExporter

    return FirmwareExporter(target.options)


@hookimpl
def inlay_probe(target: Target) -> DeviceStatus:
    """Whether this machine has what running takes."""
    from inlay_microcontroller.runtime import probe

    return probe(target.options)
