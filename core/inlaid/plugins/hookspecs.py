"""Hooks of the compile half of a plugin. The run half has its own, `inlaid_runtime.plugins.hookspecs`.

A compile module imports only the standard library, `inlaid.plugins` and types of the runtime; hooks import the vendor libraries
that they need. Hooks return data or objects of `inlaid.plugins.contract`. An implementation may omit parameters that it does not
use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_runtime.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from inlaid.graph.ir import Module
    from inlaid.passes.manager import Pass
    from inlaid.plugins.contract import Codegen, Conformance, Exporter, OpRule, Phase
    from inlaid.plugins.frontend import Frontend
    from inlaid.plugins.target_spec import TargetSpec
    from inlaid.tensor.ir import LoopProgram
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.scheduling.rule import ScheduleRule
    from inlaid_runtime.plugins.target import Target

GROUP = "inlaid.plugins"
"""Group of the entry points that name compile modules."""


@hookspec
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target kinds of this plugin. Called at discovery, so it must be cheap."""
    raise AssertionError


@hookspec
def inlaid_frontends() -> Sequence[Frontend]:
    """Declare the model formats of this plugin. Called at discovery, so it must be cheap."""
    raise AssertionError


@hookspec
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return the operator rules and composite patterns for a target, in order of priority. Called for every plugin: return an empty
    sequence for targets of other plugins, unless you mean to extend them."""
    raise AssertionError


@hookspec
def inlaid_passes(target: Target, phase: Phase) -> Sequence[Pass[Module] | Pass[LoopProgram]]:
    """Return passes for a target and phase: graph passes before and after partitioning, loop passes before and after peeling."""
    raise AssertionError


@hookspec
def inlaid_schedules(target: Target) -> Sequence[ScheduleRule]:
    """Return the schedule rules of a loop-level target, tried in order before the shared rules."""
    raise AssertionError


@hookspec
def inlaid_intrinsics(target: Target) -> Sequence[TensorIntrin]:
    """Return the tensor intrinsics that the code generator of a loop-level target can emit. Schedule rules select an intrinsic by
    its semantic loop nest, never by name. Called only for the target's own plugin."""
    raise AssertionError


@hookspec
def inlaid_codegen(target: Target) -> Codegen:
    """Create the code generator. Called only for the target's own plugin."""
    raise AssertionError


@hookspec
def inlaid_exporter(target: Target) -> Exporter:
    """Create the exporter for programs without Inlaid (`inlaid compile -o folder`). Called only for the target's own plugin; most
    targets need none."""
    raise AssertionError


@hookspec
def inlaid_conformance(target: Target) -> Conformance:
    """Return tolerances, expected failures and examples for the conformance suite. Called only for the target's own plugin."""
    raise AssertionError
