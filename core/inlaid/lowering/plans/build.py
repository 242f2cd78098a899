"""Build the execution plans of a partitioned model: the executor's instructions around its regions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid.lowering.plans.aliases import Aliases
from inlaid.lowering.plans.body import flat
from inlaid.lowering.plans.module import HOST, MAIN, ModulePlans
from inlaid.lowering.plans.scope import FunctionScopes, ScopePlan, has_known_shapes
from inlaid_runtime.artifact.plan import Plan
from inlaid_runtime.records import dataclass

OUTPUT_NAMES = "outputs"
"""Function attribute of the entry: the names of its results as a JSON list."""


@dataclass(frozen=True)
class Plans:
    """The plans of a model by name (the entry is "main"), and the weights that they read directly."""

    plans: Mapping[str, Plan]
    constants: Mapping[str, np.ndarray[Any, Any]]


def build_plans(
    module: ir.Module,
    regions: Aliases,
    entry: str = "main",
    donate: Collection[str] = (),
    devices: Mapping[str, str] = MappingProxyType({}),
) -> Plans:
    """Build the plans of a partitioned module: "main" for the entry, and one per global function, branch, loop body and closure.

    `regions` maps the functions that are artifacts to their aliases. Inputs of the entry named in `donate` may be updated in place.
    `devices` gives the target of each region that works in device memory: a value is copied there once. Plans of branches, loop
    bodies and functions have inputs and outputs in a device's memory if only that device reads or writes them; a function that is
    called before its plan is built (recursion) has them all in host memory. Raises `CompileError` for functions as values and
    operators outside of regions."""
    module_plans = ModulePlans(module, regions, devices, {entry: MAIN}, [entry])
    if devices:
        module_plans.plans[MAIN] = Plan(MAIN, (), (), (), ())  # so that it comes first
        module_plans.waiting = _callees_first(module, entry, regions, module_plans.early)
        module_plans.names = {name: module_plans.names.get(name, f"{MAIN}.{name}") for name in module_plans.waiting}
    for name in module_plans.waiting:
        function = module[name]
        builder = FunctionScopes(function, module_plans)
        is_entry = name == entry
        owned = {id(param) for param in function.params if is_entry and param.name in donate}
        names = output_names(function) if is_entry else ()
        body = ScopePlan(builder, module_plans.names[name], builder.scopes.body(function))
        body.begin(tuple(function.params))
        sides = HOST if is_entry or name in module_plans.early else body.sides()
        module_plans.plans[module_plans.names[name]] = body.finish(sides, names, owned)
        module_plans.planned_functions.add(name)
    return Plans(module_plans.plans, module_plans.constants)


def _callees_first(module: ir.Module, entry: str, regions: Collection[str], early: set[str]) -> list[str]:
    """List the functions that the entry runs as plans, callees first except for recursion. Adds to `early` the functions with
    operands or results whose sizes are known only at run time."""
    order: list[str] = []
    visited: set[str] = set()
    stack = [(entry, False)]
    while stack:
        name, expanded = stack.pop()
        if expanded:
            order.append(name)
        elif name not in visited and name in module.functions:
            visited.add(name)
            stack.append((name, True))
            for expr in ir.post_order(module[name]):
                if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar) and expr.callee.name not in regions:
                    stack.append((expr.callee.name, False))
                    early |= set() if has_known_shapes(expr) else {expr.callee.name}
    return order


def output_names(function: ir.Function) -> tuple[str, ...]:
    """Return the names of a function's results: the frontend's names, or output0, output1, ..."""
    count = len(flat(function.body.type))
    names_json = function.attr(OUTPUT_NAMES)
    names = tuple(json.loads(names_json)) if names_json else ()
    return names if len(names) == count else tuple(f"output{number}" for number in range(count))
