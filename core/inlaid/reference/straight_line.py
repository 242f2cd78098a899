"""Straight-line programs: functions of operator calls as Python functions, without the interpreter's checks and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.graph.attrs import Attrs, attr_vars, substitute_attrs
from inlaid.graph.interp import as_value
from inlaid.graph.ir import Call, Constant, Expr, Function, Tuple, TupleItem
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import scope_conditions
from inlaid.graph.scopes import analyse
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, Type, type_vars

_MAX_SIZES = 32
"""Number of sets of sizes for which the attributes of a call are cached."""


@dataclass(frozen=True, slots=True, eq=False)
class _Extent:
    """Where a size is read: an axis of value number `number`, or of a field of a tuple, at `path`."""

    number: int
    path: tuple[int, ...]
    axis: int

    @property
    def text(self) -> str:
        return f"v{self.number}{''.join(f'[{index}]' for index in self.path)}.shape[{self.axis}]"


class _SizedAttrs:
    """Attributes that read symbolic sizes, cached by the values of the sizes."""

    def __init__(self, attrs: Attrs, extents: Mapping[arith.Expr, _Extent]) -> None:
        self.extents = tuple(extents.values())
        self._attrs, self._names = attrs, tuple(extents)
        self._cache: dict[tuple[int, ...], Attrs] = {}

    def at(self, *sizes: int) -> Attrs:
        """Return the attributes at sizes, which are in the order of `extents`."""
        attrs = self._cache.get(sizes)
        if attrs is None:
            if len(self._cache) >= _MAX_SIZES:
                self._cache.clear()
            attrs = self._cache[sizes] = substitute_attrs(self._attrs, dict(zip(self._names, map(arith.Const, sizes), strict=True)))
        return attrs


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A call: `reference(attrs, *operands)` gives value number `result`, of type `type`."""

    reference: Callable[..., Any]
    attrs: Attrs | _SizedAttrs | None
    operands: tuple[int, ...]
    result: int
    type: Type

    @property
    def reads(self) -> Iterator[int]:
        """The values that the step reads, including those whose sizes its attributes read."""
        yield from self.operands
        if isinstance(self.attrs, _SizedAttrs):
            yield from (extent.number for extent in self.attrs.extents)


StraightLine = Callable[..., list[Any]]
"""A function of operator calls as a Python function, from the operands to the results with tuples flattened. Operands must be
arrays that fit the types of the parameters. It raises whatever a reference raises."""


def straight_line(function: Function) -> StraightLine | None:
    """Convert a function of tensors. None for a function with branches, loops or calls of functions, with an operator that has no
    reference, or with conditions on sizes that it computes."""
    scopes = analyse(function)
    scope = scopes.body(function)
    param_sizes = frozenset().union(*(type_vars(param.type) for param in function.params))
    conditions = scope_conditions(scopes).values()
    tensors = all(isinstance(param.type, TensorType) for param in function.params)
    if not tensors or any(not item.sizes <= param_sizes for constraints in conditions for item in constraints):
        return None
    numbers: dict[int, int] = {}
    constants: dict[int, Any] = {}
    extents: dict[arith.Expr, _Extent] = {}
    steps: list[_Step] = []

    def number_of(expr: Expr) -> int:
        expr = scopes.resolve(expr)
        if id(expr) not in numbers:
            assert isinstance(expr, Constant)
            constants[len(numbers)] = expr.data
            numbers[id(expr)] = len(numbers)
        return numbers[id(expr)]

    for param in function.params:
        numbers[id(param)] = len(numbers)
        _add_extents(param.type, numbers[id(param)], extents)
    for expr in scope.order:
        attrs: Attrs | _SizedAttrs | None = None
        match expr:
            case Call(callee=Operator(reference=reference), args=operands) if reference is not None:
                sizes = attr_vars(expr.attrs)
                if not sizes <= extents.keys():
                    return None
                attrs = _SizedAttrs(expr.attrs, {size: extents[size] for size in sizes}) if sizes else expr.attrs
            case Tuple(fields=operands):
                reference = _fields
            case TupleItem(tuple=value, index=index):
                reference, operands = _field(index), (value,)
            case _:
                return None
        read = tuple(map(number_of, operands))
        numbers[id(expr)] = len(numbers)
        steps.append(_Step(reference, attrs, read, numbers[id(expr)], expr.type))
        _add_extents(expr.type, numbers[id(expr)], extents)
    result = scopes.resolve(scope.result)
    if isinstance(result, Tuple) and steps and steps[-1].result == numbers[id(result)]:
        results = [f"v{number}{path}" for field in result.fields for number in [number_of(field)] for path in _paths(field.type)]
        steps.pop()
    else:
        results = [f"v{number_of(result)}{path}" for path in _paths(result.type)]
    kept = {int(text.partition("[")[0][1:]) for text in results}
    return _program(len(function.params), constants, steps, results, kept)


def _program(
    params: int, constants: Mapping[int, Any], steps: Sequence[_Step], results: Sequence[str], kept: Collection[int]
) -> StraightLine:
    """Return a Python function that runs steps. Values other than operands, constants and those `kept` are dropped after their last
    use. The text of the function consists of numbers, so that no name in a model has an effect on it."""
    last = {number: position for position, step in enumerate(steps) for number in (step.result, *step.reads)}
    names: dict[str, Any] = {
        "plain": np.ndarray,
        "as_value": as_value,
        **{f"v{number}": data for number, data in constants.items()},
    }
    lines = [f"def run({', '.join(f'v{number}' for number in range(params))}):"]
    for position, step in enumerate(steps):
        names |= {f"f{position}": step.reference, f"a{position}": step.attrs, f"t{position}": step.type}
        attrs = f"a{position}"
        if isinstance(step.attrs, _SizedAttrs):
            names[attrs] = step.attrs.at
            attrs = f"{attrs}({', '.join(extent.text for extent in step.attrs.extents)})"
        value = f"v{step.result}"
        lines.append(f"    {value} = f{position}({', '.join([attrs, *(f'v{number}' for number in step.operands)])})")
        lines.append(f"    if type({value}) is not plain: {value} = as_value(t{position}, {value})")
        unused_values = [number for number, end in last.items() if end == position and number >= params and number not in constants]
        lines += [f"    v{number} = None" for number in unused_values if number not in kept]
    lines.append(f"    return [{', '.join(results)}]")
    exec("\n".join(lines), names)
    run: StraightLine = names["run"]
    return run


def _fields(attrs: None, *items: Any) -> tuple[Any, ...]:
    return items


def _field(index: int) -> Callable[..., Any]:
    return lambda attrs, value: value[index]


def _add_extents(type_: Type, number: int, extents: dict[arith.Expr, _Extent]) -> None:
    """Record where the sizes that a value shows can be read, unless an earlier value shows them."""
    for path, part in _parts(type_, ()):
        for axis, dim in enumerate(part.shape if isinstance(part, TensorType) else ()):
            if isinstance(dim, arith.SizeVar):
                extents.setdefault(dim, _Extent(number, path, axis))


def _paths(type_: Type) -> Iterator[str]:
    """Yield the indices of the parts of a value, as text."""
    for path, _ in _parts(type_, ()):
        yield "".join(f"[{index}]" for index in path)


def _parts(type_: Type, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Type]]:
    """Yield the parts of a value with tuples flattened, each with its path through tuples."""
    if isinstance(type_, TupleType):
        for index, item in enumerate(type_.fields):
            yield from _parts(item, (*path, index))
    else:
        yield path, type_
