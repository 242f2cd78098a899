"""Shadow mode: every region runs on its target and on the reference target, on the same inputs, and the two are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlay.driver.compile import compile_module, cut
from inlay.errors import InlayError
from inlay.graph import ir
from inlay.graph.interp import Interpreter
from inlay.graph.operator import Attrs, Operator
from inlay.graph.transform import map_functions, transform
from inlay.partitioning.compose import dissolve
from inlay.partitioning.outline import region_operators
from inlay.plugins.registry import PluginRegistry, default_registry
from inlay.settings import DEFAULT, Settings
from inlay.types import TensorType, TupleType, Type

RELATIVE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest difference by the largest value of the reference, by element type: float32's is the design's bound for whole models,
since a region may be one. Integers are exact."""
ABSOLUTE = 1e-5
"""Difference that counts as none."""
NARROW = 0.25
"""As `RELATIVE`, for floats of eight bits and less."""


@dataclass(frozen=True)
class Difference:
    """The first place where a target differs from the reference: the region, its target, and the operator in it that differs by
    itself, on the values that the reference gives it, with its source node; `operator` is "" where no operator does, only all
    together. `error` says by how much, or what went wrong; `inputs` are those of the operator, or of the region."""

    region: str
    target: str
    operator: str
    node: str
    error: str
    inputs: Mapping[str, np.ndarray[Any, Any]]

    def save(self, path: Path) -> None:
        """Write the inputs of the operator, or of the region, to an .npz file."""
        with path.open("wb") as file:
            arrays: dict[str, Any] = {name: value for name, value in self.inputs.items() if isinstance(value, np.ndarray)}
            np.savez(file, **arrays)

    def __str__(self) -> str:
        together = "all its operators together, though each is right by itself"
        what = f"{self.operator} at {self.node or '?'}" if self.operator else together
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
    doubles = {}
    for name, number in partitioned.regions.items():
        region = dissolve(partitioned.module[name])
        doubles[name] = watch.double(name, region, str(takers[number].target))

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, ir.Call) and isinstance(new.callee, ir.GlobalVar) and new.callee.name in doubles:
            return ir.Call(new.type, new.span, doubles[new.callee.name], new.args, Attrs())
        return new

    watched = map_functions(partitioned.module, lambda function: transform(function, visit))  # type: ignore[arg-type, return-value]
    main = watched.main
    outputs = Interpreter(watched).run(main, [inputs[param.name] for param in main.params])
    flat = outputs if isinstance(outputs, tuple) else (outputs,)
    return Shadowed(flat, watch.compared, watch.difference)


class _Watch:
    """Compares regions as they run, until one differs."""

    def __init__(self, registry: PluginRegistry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings
        self.compared = 0
        self.difference: Difference | None = None

    def double(self, name: str, region: ir.Function, target: str) -> Operator:
        """An operator that does what a region does, by the reference, and compares."""
        interpreter = Interpreter()
        compiled: list[Callable[[Sequence[Any]], Sequence[Any]]] = []

        def run(attrs: Attrs, *values: Any) -> Any:
            wanted = interpreter.run(region, values)
            if self.difference is None:
                self.compared += 1
                if not compiled:
                    compiled.append(self._native(region, target))
                error = _compare(region.body.type, lambda: compiled[0](values), wanted)
                if error is not None:
                    self.difference = self._locate(name, region, target, values, error)
            return wanted

        return Operator(name, lambda attrs, *types: region.body.type, reference=run, arity=(0, None))

    def _native(self, function: ir.Function, target: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
        names = [f"x{number}" for number in range(len(function.params))]
        params = tuple(ir.var(name, param.type) for name, param in zip(names, function.params, strict=True))
        memo: dict[int, ir.Expr] = {id(old): new for old, new in zip(function.params, params, strict=True)}
        for expr in ir.post_order(function.body):
            if id(expr) not in memo:
                memo[id(expr)] = ir.rebuild(expr, tuple(memo[id(child)] for child in ir.children(expr)))
        module = ir.Module({"main": ir.function(params, memo[id(function.body)])})
        executable = compile_module(module, [target], self.registry, settings=self.settings)
        return lambda values: tuple(executable.run(dict(zip(names, values, strict=True))).values())

    def _locate(self, name: str, region: ir.Function, target: str, values: Sequence[Any], error: str) -> Difference:
        """The first operator of a region that differs by itself, on the reference's values."""
        calls = region_operators(region)
        every = ir.function(region.params, ir.tuple_(calls))
        results = Interpreter().run(every, values)
        known: dict[int, Any] = {id(param): value for param, value in zip(region.params, values, strict=True)}
        assert isinstance(results, tuple)
        for call, wanted in zip(calls, results, strict=True):
            given = [_value(arg, known) for arg in call.args]
            params = tuple(ir.var(f"x{number}", arg.type) for number, arg in enumerate(call.args))
            fixed = [isinstance(arg, ir.Constant) for arg in call.args]
            args = tuple(arg if fixed[n] else params[n] for n, arg in enumerate(call.args))
            alone = ir.function(
                tuple(param for param, keep in zip(params, fixed, strict=True) if not keep),
                ir.Call(call.type, call.span, call.callee, args, call.attrs),
            )
            moving = [value for value, keep in zip(given, fixed, strict=True) if not keep]
            found = _compare(call.type, lambda alone=alone, moving=moving: self._native(alone, target)(moving), wanted)  # type: ignore[misc]
            if found is not None:
                assert isinstance(call.callee, Operator)
                shown = {f"x{number}": value for number, value in enumerate(given)}
                return Difference(name, target, call.callee.name, str(call.span or ""), found, shown)
            known[id(call)] = wanted
        return Difference(name, target, "", "", error, {param.name: v for param, v in zip(region.params, values, strict=True)})


def _value(expr: ir.Expr, known: Mapping[int, Any]) -> Any:
    match expr:
        case ir.Constant(data=data):
            return data
        case ir.TupleItem(tuple=inner, index=index):
            return _value(inner, known)[index]
        case ir.Tuple(fields=fields):
            return tuple(_value(field, known) for field in fields)
    return known[id(expr)]


def _compare(type_: Type, run: Callable[[], Sequence[Any]], wanted: Any) -> str | None:
    """What differs between results and those of the reference, in words; None where nothing does."""
    try:
        found = run()
    except InlayError as error:
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
