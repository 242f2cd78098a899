"""Steps of a plan: its instructions with the data that given input sizes determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from inlaid_runtime.arith import Constraint
from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Invoke, Loop, Move, Plan, Wait
from inlaid_runtime.execution.invoked import Invoked, LoadedRegion, RegionLayout
from inlaid_runtime.execution.shapes import picker
from inlaid_runtime.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _InvokeStep:
    """A step that invokes a region. `layout` is the region's layout if the input sizes determine all its sizes, else None; always
    None for a region that allocates its results. `inputs` and `outputs` access the region's values in a run."""

    instruction: Invoke
    region: LoadedRegion
    invoked: Invoked
    layout: RegionLayout | None
    inputs: Callable[[Sequence[Any]], Sequence[Any]]
    outputs: Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RegionStep(_InvokeStep):
    """Runs a region in host memory."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchStep(_InvokeStep):
    """Launches a region on a device."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """A `Move` from or to a device."""

    move: Move
    device: str
    direction: Literal["up", "down", "beside"]


@dataclass(frozen=True, slots=True, eq=False)
class LaunchSteps:
    """Consecutive launches on a device that supports recording, with known sizes. `values` accesses the values that the launches
    read and write; `workspace` is the greatest scratch memory of a launch in bytes."""

    device: str
    steps: tuple[LaunchStep, ...]
    values: Callable[[Sequence[Any]], Sequence[Any]]
    workspace: int


@dataclass(frozen=True, slots=True, eq=False)
class CheckStep:
    """Checks constraints on sizes that earlier steps have determined."""

    constraints: tuple[Constraint, ...]


OtherStep = Call | Branch | Loop | Move | Bind | Assert | Wait | LaunchStep | LaunchSteps | Transfer | CheckStep
"""A step that the executor performs itself."""


def recordable(steps: Sequence[RegionStep | OtherStep], devices: Collection[str]) -> list[RegionStep | OtherStep]:
    """Group consecutive launches on `devices` with known sizes into `LaunchSteps`."""

    def device(step: RegionStep | OtherStep) -> str:
        is_recordable = isinstance(step, LaunchStep) and step.layout is not None and step.region.info.target in devices
        return step.region.info.target if is_recordable and isinstance(step, LaunchStep) else ""

    grouped_steps: list[RegionStep | OtherStep] = []
    for target, group in itertools.groupby(steps, device):
        if not target:
            grouped_steps += group
            continue
        launches = tuple(step for step in group if isinstance(step, LaunchStep))
        numbers = tuple(number for step in launches for number in (*step.instruction.inputs, *step.instruction.outputs))
        workspace = max(step.layout.workspace for step in launches if step.layout is not None)
        grouped_steps.append(LaunchSteps(target, launches, picker(numbers), workspace))
    return grouped_steps


def transfer(plan: Plan, move: Move) -> Transfer | None:
    """Return a move as a transfer from or to a device; None if the value stays on the host."""
    source, target = plan.values[move.source].device, plan.values[move.target].device
    if source or target:
        return Transfer(move, source or target, "beside" if source == target else "down" if source else "up")
    return None
