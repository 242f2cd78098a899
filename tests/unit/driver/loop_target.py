"""A loop-level target that generates no code: what reaches its code generator, and the passes before it, are what tests look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tests.plugin_registry import registry_with

from inlaid import ops
from inlaid.driver.compile import cut
from inlaid.driver.context import DriverContext
from inlaid.graph.ir import Module
from inlaid.passes.manager import Instrument
from inlaid.plugins import Accept, Capabilities, Codegen, Form, Level, OpRule, Phase, Region, TargetSpec, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.region import RegionProgram
from inlaid.tensor.scheduling.rule import ScheduleRule

KIND = "loops"
DTYPES = ("float32", "int32", "int8", "uint8", "bool")


def make_registry(
    passes: Mapping[Phase, Sequence[Any]] = MappingProxyType({}),
    form: Form | None = None,
    rules: Sequence[ScheduleRule] = (),
    intrinsics: Sequence[TensorIntrin] = (),
    **facts: Any,
) -> PluginRegistry:
    """A registry with the target, which takes all operators, and the reference. `passes`, schedule `rules` and `intrinsics` are its
    own, `form` is how it stores what crosses borders, `facts` are capabilities."""

    class Bordered(Codegen):
        def borders(self, region):
            return None if form is None else region.stored_as(form)

        def compile(self, unit, context):
            raise NotImplementedError

    @hookimpl
    def inlaid_targets():
        return [TargetSpec(KIND, "of a test", lambda options: Capabilities(DTYPES, **facts), Level.LOOP)]

    @hookimpl
    def inlaid_op_rules(target):
        return [OpRule("*", "all", lambda call: Accept())] if target.kind == KIND else ()

    @hookimpl
    def inlaid_passes(target, phase):
        return passes.get(phase, ()) if target.kind == KIND else ()

    @hookimpl
    def inlaid_schedules(target):
        return rules if target.kind == KIND else ()

    @hookimpl
    def inlaid_intrinsics(target):
        return intrinsics

    @hookimpl
    def inlaid_codegen(target):
        return Bordered()

    return registry_with(KIND, inlaid_targets, inlaid_op_rules, inlaid_passes, inlaid_schedules, inlaid_intrinsics, inlaid_codegen)


def lowered(
    module: Module,
    registry: PluginRegistry,
    instruments: Sequence[Instrument[Module]] = (),
    kernel_instruments: Sequence[Instrument[LoopProgram]] = (),
) -> RegionProgram:
    """The one region of a model as its code generator gets it."""
    partitioned, candidates = cut(module, [KIND], registry)
    (name,) = partitioned.regions
    region = Region(name, partitioned.module[name], candidates[0].target)
    watched = {"instruments": instruments, "kernel_instruments": kernel_instruments}
    program = DriverContext(region.target, registry, ops.TABLE, **watched).unit(region)
    assert isinstance(program, RegionProgram)
    return program
