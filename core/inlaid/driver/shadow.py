"""Shadow mode: runs every region on its target and on the reference target with equal inputs, and compares the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.driver.build import package_alone
from inlaid.driver.compile import cut
from inlaid.driver.deviation import Deviation, deviation, failed
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scopes import analyse
from inlaid.graph.transform import map_functions, transform
from inlaid.partitioning.annotate import Candidate, node_names
from inlaid.partitioning.outline import region_operators
from inlaid.plugins.contract import COMPOSITE, Tolerance
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.output import replacing
from inlaid_runtime.types import TensorType, TupleType, Type

Allowed = Callable[[str], Tolerance | None]
"""Returns the declared tolerance for an element type, None if none is declared."""


@dataclass(frozen=True)
class Difference:
    """A difference of a target from the reference. `unit` is the region's first operator (or composite, by its rule's name) that
    differs when run alone on the reference's values, with its source nodes; "" if only the whole region differs. `error` describes
    the difference or the failure. `inputs` are the inputs of the unit, or of the region."""

    region: str
    target: str
    unit: str
    nodes: tuple[str, ...]
    error: str
    inputs: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write the inputs of the unit, or of the region, to an .npz file. Raises `OutputError`, and `InputError`
        for a path that is a folder or a device."""
        with replacing(path) as file:
            arrays: dict[str, Any] = {name: value for name, value in self.inputs.items() if isinstance(value, np.ndarray)}
            np.savez(file, **arrays)

    def __str__(self) -> str:
        whole_region = "the region as a whole, although each operator alone is within tolerance"
        unit = f"{self.unit} at {', '.join(self.nodes) or '?'}" if self.unit else whole_region
        return f"{self.region} on {self.target} differs from the reference: {unit}: {self.error}"


@dataclass(frozen=True)
class Compared:
    """Comparison of a region: its target, the number of runs, and the worst deviation. `difference` is None if within tolerance."""

    region: str
    target: str
    runs: int
    deviation: Deviation
    difference: Difference | None = None

    def __str__(self) -> str:
        suffix = "" if self.difference is None else ", beyond the tolerance"
        return f"{self.region} on {self.target}: {self.deviation}{suffix}"


@dataclass(frozen=True)
class Shadowed:
    """Result of a shadow run: the reference's outputs in order, and the comparisons of the regions that ran, worst first."""

    outputs: tuple[Any, ...]
    regions: tuple[Compared, ...]

    @property
    def compared(self) -> int:
        """Number of compared region runs."""
        return sum(region.runs for region in self.regions)

    @property
    def difference(self) -> Difference | None:
        """The difference of the worst region; None if all are within tolerance."""
        return next((region.difference for region in self.regions if region.difference is not None), None)


def shadow(
    module: ir.Module,
    inputs: Mapping[str, Any],
    targets: Sequence[str],
    registry: PluginRegistry | None = None,
    settings: Settings = DEFAULT,
) -> Shadowed:
    """Run a module region by region, on its targets and on the reference. Each region gets the reference's values as inputs, so
    that a difference is found in the region that causes it. Raises as `compile` and `Executable.run` do."""
    registry = registry or default_registry()
    partitioned, candidates = cut(module, targets, registry, settings=settings)
    watch = _Watch(registry, settings)
    doubles = {name: watch.double(name, partitioned.module[name], candidates[n]) for name, n in partitioned.regions.items()}

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, ir.Call) and isinstance(new.callee, ir.GlobalVar) and new.callee.name in doubles:
            return ir.Call(new.type, new.span, doubles[new.callee.name], new.args, Attrs())
        return new

    watched = map_functions(partitioned.module, lambda function: transform(function, visit))  # type: ignore[arg-type, return-value]
    main = watched.main
    outputs = Interpreter(watched).run(main, [inputs[param.name] for param in main.params])
    return Shadowed(outputs if isinstance(outputs, tuple) else (outputs,), watch.report())


@dataclass
class _RegionState:
    """State of a region: its executable, number of compared runs, and the worst deviation with its inputs."""

    region: ir.Function
    candidate: Candidate
    executable: Executable
    runs: int = 0
    worst: Deviation = field(default_factory=Deviation)
    values: Sequence[Any] = ()


class _Watch:
    """Compares regions as they run."""

    def __init__(self, registry: PluginRegistry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings
        self.states: dict[str, _RegionState] = {}

    def double(self, name: str, region: ir.Function, candidate: Candidate) -> Operator:
        """Create an operator that evaluates a region on the reference and on its target, and compares the results."""
        interpreter = Interpreter()

        def run(attrs: Attrs, *values: Any) -> Any:
            expected = interpreter.run(region, values)
            if name not in self.states:
                self.states[name] = _RegionState(region, candidate, self._native(region, candidate))
            state = self.states[name]
            deviation = _compare(region.body.type, state.executable, values, expected, self._allowed(candidate, ""))
            if state.runs == 0 or _badness(deviation) > _badness(state.worst):
                state.worst, state.values = deviation, values
            state.runs += 1
            return expected

        return Operator(name, lambda attrs, *types: region.body.type, reference=run, arity=(0, None))

    def report(self) -> tuple[Compared, ...]:
        """Return the comparisons of the regions that ran, worst first."""
        comparisons = [self._compared(name, state) for name, state in self.states.items()]
        return tuple(sorted(comparisons, key=lambda item: _badness(item.deviation), reverse=True))

    def _compared(self, name: str, state: _RegionState) -> Compared:
        error, difference = state.worst.error, None
        if error is not None:
            difference = self._locate(name, state.region, state.candidate, state.values, error)
        return Compared(name, str(state.candidate.target), state.runs, state.worst, difference)

    def _allowed(self, candidate: Candidate, unit: str) -> Allowed:
        """Return the tolerance that the plugin declares, by element type, for results of a unit or of whole regions."""
        return partial(self.registry.conformance(candidate.target).tolerance, operator=unit)

    def _native(self, function: ir.Function, candidate: Candidate) -> Executable:
        return Executable(package_alone(function, candidate, self.registry, self.settings), registry=self.registry)

    def _locate(self, name: str, region: ir.Function, candidate: Candidate, values: Sequence[Any], error: str) -> Difference:
        """Find the first unit of a region, in execution order, that differs when run alone on the reference's values."""
        make_difference = partial(Difference, name, str(candidate.target))
        units = [expr for expr in analyse(region).body(region).order if isinstance(expr, (ir.Call, ir.Loop, ir.If))]
        region_inputs = {param.name: value for param, value in zip(region.params, values, strict=True)}
        if len(units) == 1:
            return make_difference(*_named(units[0]), error, region_inputs)
        results = Interpreter().run(ir.function(region.params, ir.tuple_(units)), values)
        values_by_id: dict[int, Any] = {id(param): value for param, value in zip(region.params, values, strict=True)}
        values_by_id.update((id(unit), expected) for unit, expected in zip(units, results, strict=True))
        for unit in units:
            if isinstance(unit, ir.Call):
                unit_function, operand_values = _alone(unit, values_by_id)
                try:
                    compiled = self._native(unit_function, candidate)
                except InlaidError:
                    continue  # the target rejects it without its context
                unit_error = _compare(
                    unit.type, compiled, operand_values, values_by_id[id(unit)], self._allowed(candidate, _name(unit))
                ).error
                if unit_error is not None:
                    inputs = {param.name: value for param, value in zip(unit_function.params, operand_values, strict=True)}
                    return make_difference(*_named(unit), unit_error, inputs)
        return make_difference("", (), error, region_inputs)


def _alone(unit: ir.Call, values_by_id: Mapping[int, Any]) -> tuple[ir.Function, list[Any]]:
    """Return a function of the non-constant operands of a call, whose body is the call, and the values of these operands."""
    operands = [arg for arg in dict.fromkeys(unit.args) if not isinstance(arg, ir.Constant)]
    params = [ir.var(f"x{number}", arg.type) for number, arg in enumerate(operands)]
    params_by_operand = dict(zip(operands, params, strict=True))
    args = tuple(params_by_operand.get(arg, arg) for arg in unit.args)
    call = ir.Call(unit.type, unit.span, unit.callee, args, unit.attrs)
    return ir.function(params, call), [_value(arg, values_by_id) for arg in operands]


def _name(unit: ir.Call) -> str:
    """Return the name of an operator, or of a composite's rule."""
    return unit.callee.name if isinstance(unit.callee, Operator) else str(unit.callee.attr(COMPOSITE))  # type: ignore[attr-defined]


def _named(unit: ir.Expr) -> tuple[str, tuple[str, ...]]:
    """Return a unit's name for messages, and its source nodes."""
    match unit:
        case ir.Call(callee=Operator() as operator):
            return operator.name, node_names((unit,))
        case ir.Call(callee=ir.Function() as function):
            return f"composite {function.attr(COMPOSITE)}", node_names(region_operators(function))
    return "loop" if isinstance(unit, ir.Loop) else "branch", node_names(
        [expr for expr in ir.post_order(unit) if isinstance(expr, ir.Call)]
    )


def _value(expr: ir.Expr, values_by_id: Mapping[int, Any]) -> Any:
    match expr:
        case ir.Constant(data=data):
            return data
        case ir.TupleItem(tuple=inner, index=index):
            return _value(inner, values_by_id)[index]
        case ir.Tuple(fields=fields):
            return tuple(_value(field, values_by_id) for field in fields)
    return values_by_id[id(expr)]


def _compare(type_: Type, compiled: Executable, values: Sequence[Any], reference: Any, allowed: Allowed) -> Deviation:
    """Run `compiled`, and return the worst deviation of its results from `reference`."""
    try:
        results = compiled.run({spec.name: value for spec, value in zip(compiled.inputs, values, strict=True)}).values()
    except InlaidError as error:
        return failed(f"failed: {error}")
    parts = flat(type_, reference)
    worst = Deviation()
    for (part, expected), actual in zip(parts, results, strict=True):
        if isinstance(part, TensorType) and isinstance(actual, np.ndarray):
            part_deviation = deviation(part, np.asarray(expected), actual, allowed(part.dtype.name))
            if part_deviation.error is not None and len(parts) > 1:
                part_deviation = replace(part_deviation, error=f"in a result of type {part!r}, {part_deviation.error}")
            worst = max(worst, part_deviation, key=_badness)
    return worst


def _badness(deviation: Deviation) -> tuple[bool, float, float]:
    """Compute a sort key of deviations: within tolerance, then beyond; within each group by excess, then by difference."""
    return deviation.error is not None, deviation.excess, deviation.worst


def flat(type_: Type, value: Any) -> list[tuple[Type, Any]]:
    """Flatten nested tuples of a value into pairs of type and value."""
    if isinstance(type_, TupleType):
        return [part for field, item in zip(type_.fields, value, strict=True) for part in flat(field, item)]
    return [(type_, value)]
