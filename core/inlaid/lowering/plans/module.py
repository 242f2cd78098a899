"""The plans of a module under construction: their names, their order, and the memories of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid.lowering.plans.aliases import Aliases
from inlaid_runtime.artifact.plan import Plan
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass, field

MAIN = "main"
"""Name of the entry's plan."""
Sides = tuple[Sequence[str], Sequence[str]]
"""Devices of the inputs, then of the outputs, of a plan; "" is the host."""
HOST: Sides = ((), ())
"""All inputs and outputs on the host."""


@dataclass
class ModulePlans:
    """The plans of a module under construction. `names` maps functions to plan names. `waiting` lists the functions in planning
    order. `planned_functions` are functions whose plans exist. `early` are functions with all inputs and outputs on the host, since
    they are called before they are planned or with tensors of unknown sizes."""

    module: ir.Module
    regions: Aliases
    devices: Mapping[str, str]
    names: dict[str, str]
    waiting: list[str]
    plans: dict[str, Plan] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    planned_functions: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)

    def sides(self, name: str) -> Sides:
        """Return the devices of the inputs and outputs of a function's plan."""
        if name in self.planned_functions:
            return io_devices(self.plans[self.names[name]])
        self.early.add(name)
        return HOST

    def plan_name(self, name: str) -> str:
        """Return the name of a function's plan. Raises `CompileError` if the module lacks the function."""
        if name not in self.module.functions:
            function_names = ", ".join(f"@{function_name}" for function_name in self.module.functions)
            raise CompileError(f"the module has no function @{name}; it has {function_names}")
        if name not in self.names:
            self.names[name] = f"{MAIN}.{name}"
            self.waiting.append(name)
        return self.names[name]


def io_devices(plan: Plan) -> Sides:
    """Return the devices of the inputs and outputs of a plan."""
    inputs, outputs = ([plan.values[number].device for _, number in side] for side in (plan.inputs, plan.outputs))
    return inputs, outputs
