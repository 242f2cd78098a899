"""Shadow mode: every region runs on its target and on the reference target, on the same inputs, and the two are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.driver.build import package_alone
from inlaid.driver.compile import cut
from inlaid.errors import InlaidError
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scopes import analyse
from inlaid.graph.transform import map_functions, transform
from inlaid.partitioning.annotate import Candidate, nodes_of
from inlaid.partitioning.outline import region_operators
from inlaid.plugins.contract import COMPOSITE
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.runtime.executable import Executable
from inlaid.settings import DEFAULT, Settings
from inlaid.types import TensorType, TupleType, Type

RELATIVE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest difference by the largest value of the reference, by element type: float32's is the design's bound for whole models,
since a region may be one. Integers are exact."""
ABSOLUTE = 1e-5
"""Difference that counts as none."""
NARROW = 0.25
"""As `RELATIVE`, for floats of eight bits and less."""


@dataclass(frozen=True)
class Difference:
    """The first place where a target differs from the reference: the region, its target, and the `unit` in it that differs by
    itself, on the values that the reference gives it: an operator, or a composite under the name of its rule, with its source
    nodes. `unit` is "" where none differs, only all together. `error` says by how much, or what went wrong; `inputs` are those of
    the unit, or of the region."""

    region: str
    target: str
    unit: str
    nodes: tuple[str, ...]
    error: str
    inputs: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write the inputs of the unit, or of the region, to an .npz file."""
        with path.open("wb") as file:
            arrays: dict[str, Any] = {name: value for name, value in self.inputs.items() if isinstance(value, np.ndarray)}
            np.savez(file, **arrays)

    def __str__(self) -> str:
        together = "all of it together, though no part is wrong by itself"
        what = f"{self.unit} at {', '.join(self.nodes) or '?'}" if self.unit else together
        return f"{self.region} on {self.target} differs from the reference: {what}: {self.error}"


@dataclass(frozen=True)
class Shadowed:
    """What a shadow run gave: the reference's outputs in order, how many region runs were compared, and the first difference."""

    outputs: tuple[Any, ...]
    compared: int
    difference: Difference | None


def shadow(
    module: ir.Module,
    inputs: Mapping[str, Any],
    targets: Sequence[str],
    registry: PluginRegistry | None = None,
    settings: Settings = DEFAULT,
) -> Shadowed:
    """Run a module, region by region, on its targets and on the reference. Later regions get the reference's values, so that a
    difference is found where it arises. Raises as compiling and running do."""
    registry = registry or default_registry()
    partitioned, takers = cut(module, targets, registry, settings=settings)
    watch = _Watch(registry, settings)
    doubles = {name: watch.double(name, partitioned.module[name], takers[n]) for name, n in partitioned.regions.items()}

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, ir.Call) and isinstance(new.callee, ir.GlobalVar) and new.callee.name in doubles:
            return ir.Call(new.type, new.span, doubles[new.callee.name], new.args, Attrs())
        return new

    watched = map_functions(partitioned.module, lambda function: transform(function, visit))  # type: ignore[arg-type, return-value]
    main = watched.main
    outputs = Interpreter(watched).run(main, [inputs[param.name] for param in main.params])
    return Shadowed(outputs if isinstance(outputs, tuple) else (outputs,), watch.compared, watch.difference)


class _Watch:
    """Compares regions as they run, until one differs."""

    def __init__(self, registry: PluginRegistry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings
        self.compared = 0
        self.difference: Difference | None = None

    def double(self, name: str, region: ir.Function, taker: Candidate) -> Operator:
        """An operator that does what a region does, by the reference, and compares."""
        interpreter = Interpreter()
        compiled: list[Executable] = []

        def run(attrs: Attrs, *values: Any) -> Any:
            wanted = interpreter.run(region, values)
            if self.difference is None:
                self.compared += 1
                if not compiled:
                    compiled.append(self._native(region, taker))
                error = _compare(region.body.type, compiled[0], values, wanted)
                if error is not None:
                    self.difference = self._locate(name, region, taker, values, error)
            return wanted

        return Operator(name, lambda attrs, *types: region.body.type, reference=run, arity=(0, None))

    def _native(self, function: ir.Function, taker: Candidate) -> Executable:
        return Executable(package_alone(function, taker, self.registry, self.settings), registry=self.registry)

    def _locate(self, name: str, region: ir.Function, taker: Candidate, values: Sequence[Any], error: str) -> Difference:
        """The first unit of a region, in the order in which they run, that differs by itself, on the reference's values."""
        found = partial(Difference, name, str(taker.target))
        units = [expr for expr in analyse(region).body(region).order if isinstance(expr, (ir.Call, ir.Loop, ir.If))]
        everything = {param.name: value for param, value in zip(region.params, values, strict=True)}
        if len(units) == 1:
            return found(*_named(units[0]), error, everything)
        results = Interpreter().run(ir.function(region.params, ir.tuple_(units)), values)
        known: dict[int, Any] = {id(param): value for param, value in zip(region.params, values, strict=True)}
        known.update((id(unit), wanted) for unit, wanted in zip(units, results, strict=True))
        for unit in units:
            if isinstance(unit, ir.Call):
                alone, given = _alone(unit, known)
                try:
                    compiled = self._native(alone, taker)
                except InlaidError:
                    continue  # the target wants more around it: nothing is known of it by itself
                wrong = _compare(unit.type, compiled, given, known[id(unit)])
                if wrong is not None:
                    inputs = {param.name: value for param, value in zip(alone.params, given, strict=True)}
                    return found(*_named(unit), wrong, inputs)
        return found("", (), error, everything)


def _alone(unit: ir.Call, known: Mapping[int, Any]) -> tuple[ir.Function, list[Any]]:
    """A call as a function of what it reads, constants excepted, and the values of that."""
    moving = [arg for arg in dict.fromkeys(unit.args) if not isinstance(arg, ir.Constant)]
    params = [ir.var(f"x{number}", arg.type) for number, arg in enumerate(moving)]
    inside = dict(zip(moving, params, strict=True))
    args = tuple(inside.get(arg, arg) for arg in unit.args)
    call = ir.Call(unit.type, unit.span, unit.callee, args, unit.attrs)
    return ir.function(params, call), [_value(arg, known) for arg in moving]


def _named(unit: ir.Expr) -> tuple[str, tuple[str, ...]]:
    """What a unit of a region is called, and its source nodes."""
    match unit:
        case ir.Call(callee=Operator() as operator):
            return operator.name, nodes_of((unit,))
        case ir.Call(callee=ir.Function() as function):
            return f"composite {function.attr(COMPOSITE)}", nodes_of(region_operators(function))
    return "loop" if isinstance(unit, ir.Loop) else "branch", nodes_of(
        [expr for expr in ir.post_order(unit) if isinstance(expr, ir.Call)]
    )


def _value(expr: ir.Expr, known: Mapping[int, Any]) -> Any:
    match expr:
        case ir.Constant(data=data):
            return data
        case ir.TupleItem(tuple=inner, index=index):
            return _value(inner, known)[index]
        case ir.Tuple(fields=fields):
            return tuple(_value(field, known) for field in fields)
    return known[id(expr)]


def _compare(type_: Type, compiled: Executable, values: Sequence[Any], wanted: Any) -> str | None:
    """What differs between results and those of the reference, in words; None where nothing does."""
    try:
        found = compiled.run({spec.name: value for spec, value in zip(compiled.inputs, values, strict=True)}).values()
    except InlaidError as error:
        return f"it failed: {error}"
    parts = flat(type_, wanted)
    for (part, expected), actual in zip(parts, found, strict=True):
        if isinstance(part, TensorType) and isinstance(actual, np.ndarray):
            wrong = deviation(part, np.asarray(expected), actual)
            if wrong is not None:
                return wrong if len(parts) == 1 else f"in a result of type {part!r}, {wrong}"
    return None


def flat(type_: Type, value: Any) -> list[tuple[Type, Any]]:
    """The parts of a value, tuples taken apart, with their types."""
    if isinstance(type_, TupleType):
        return [part for field, item in zip(type_.fields, value, strict=True) for part in flat(field, item)]
    return [(type_, value)]


def deviation(
    type_: TensorType,
    wanted: np.ndarray[Any, Any],
    found: np.ndarray[Any, Any],
    relative: float | None = None,
    absolute: float = ABSOLUTE,
) -> str | None:
    """How an array differs from the one of a type that is wanted, in words; None where it does not. Floats may differ by
    `relative` (None: what whole models may differ by) of the greatest magnitude and `absolute`."""
    if wanted.shape != found.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    if not type_.dtype.is_float:
        wrong = int(np.count_nonzero(wanted != found))
        return f"{wrong} of {wanted.size} elements" if wrong else None
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not same[~finite].all():
        return "NaN or infinity in other places"
    worst = float(np.max(np.abs(a[finite] - b[finite])))
    share = RELATIVE.get(type_.dtype.name, NARROW) if relative is None else relative
    allowed = share * float(np.max(np.abs(a[finite]))) + absolute
    return f"by {worst:.3g}, where {allowed:.3g} is allowed" if worst > allowed else None
