"""The hooks that a plugin may implement.

A plugin is the module that an entry point of group `inlaid.plugins` names. It imports only the standard library and
`inlaid.plugins`; vendor libraries are imported inside the hooks that need them. Each hook returns data or an object of
`inlaid.plugins.contract`; an implementation may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from inlaid.plugins.contract import Codegen, Conformance, Exporter, OpRule, Phase
    from inlaid.plugins.frontend import Frontend
    from inlaid.plugins.runtime_module import RuntimeModule
    from inlaid.plugins.target import DeviceStatus, Target, TargetSpec
    from inlaid.schedules.rule import ScheduleRule
    from inlaid.tensor.primitives import TensorIntrin

GROUP = "inlaid.plugins"
hookspec = pluggy.HookspecMarker("inlaid")
hookimpl = pluggy.HookimplMarker("inlaid")


@hookspec
def inlaid_targets() -> Sequence[TargetSpec]:
    """The kinds of target that this plugin provides. Called at discovery: must be cheap."""
    raise AssertionError


@hookspec
def inlaid_frontends() -> Sequence[Frontend]:
    """The model formats that this plugin imports. Called at discovery: must be cheap."""
    raise AssertionError


@hookspec
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Operator annotations and composite patterns for a target, in order of priority. Called for every plugin: return an empty
    sequence for targets that are not yours, unless you mean to add to them."""
    raise AssertionError


@hookspec
def inlaid_passes(target: Target, phase: Phase) -> Sequence[Any]:
    """Passes to run for a target in a phase: graph passes before and after partitioning, loop passes before loops are peeled and at
    the end."""
    raise AssertionError


@hookspec
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Schedule rules for a loop-level target, tried in order before the shared ones."""
    raise AssertionError


@hookspec
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """Tensor intrinsics that the code generator of a loop-level target can print. Schedule rules find those that they can use by
    what their loop nests compute, never by their names. Asked only of the plugin that provides the target's kind."""
    raise AssertionError


@hookspec
def inlaid_codegen(target: Target) -> Codegen:
    """The code generator. Asked only of the plugin that provides the target's kind."""
    raise AssertionError


@hookspec
def inlaid_runtime(target: Target, device: int) -> RuntimeModule:
    """The runtime module for device number `device`, 0 where the user names none. Asked only of the plugin that provides the
    target's kind."""
    raise AssertionError


@hookspec
def inlaid_exporter(target: Target) -> Exporter:
    """What writes models as files for programs without Inlaid: `inlaid compile -o folder/`. Asked only of the plugin that provides
    the target's kind; most need none."""
    raise AssertionError


@hookspec
def inlaid_probe(target: Target) -> DeviceStatus:
    """Whether the target can run here. Asked only of the plugin that provides the target's kind; must not raise."""
    raise AssertionError


@hookspec
def inlaid_conformance(target: Target) -> Conformance:
    """Tolerances and expected failures for the conformance suite. Asked only of the plugin that provides the target's kind."""
    raise AssertionError
