"""Functions that differ from an example in one respect: an attribute of an operator, a scalar constant, or one size."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid_conformance.coverage import SHAPE_ATTRS
from inlaid_conformance.values import Array
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, from_numpy

SUBSETS = 32
"""Greatest number of sets of axes that are tried as one size of an example."""
STEPS = (1, 2, -1)
"""Differences between an integer of an attribute and its neighbors."""
MOVED = (2, 3, 5)
"""Factors that move from one size of an attribute to another one."""
ENTRIES = 4
"""Greatest number of integers of an attribute of which every subset is changed."""


@dataclass(frozen=True)
class Neighbor:
    """A function that differs from an example, its inputs, and a description of the difference. `names` are the attributes or
    constants that differ."""

    function: ir.Function
    inputs: tuple[Any, ...]
    difference: str
    names: frozenset[str] = frozenset()


def with_other_attributes(function: ir.Function, inputs: Sequence[Any], roundings: Sequence[str] = ()) -> Iterator[Neighbor]:
    """Yield neighbors with one other attribute, or one other scalar constant of integers, then those with two other attributes of
    one operator and the same type of the result, such as a dilation with wider pads. `roundings` are options of attributes of that
    name."""
    for call in _calls(function):
        singles = {item.name: list(_options(item.name, getattr(call.attrs, item.name), roundings)) for item in _fields(call)}
        for name, options in singles.items():
            for option in options:
                yield from _changed(function, inputs, call, {name: option})
        for first, second in itertools.combinations(singles, 2):
            for one, other in itertools.product(singles[first], singles[second]):
                for neighbor in _changed(function, inputs, call, {first: one, second: other}):
                    if neighbor.function.body.type == function.body.type:
                        yield neighbor
    for expr in ir.post_order(function.body):
        if isinstance(expr, ir.Constant) and expr.data.size == 1 and expr.data.dtype.kind in "iu":
            for value in (expr.data + 1, expr.data - 1):
                other = ir.constant(np.asarray(value, expr.data.dtype))
                rebuilt = _rebuilt(function, {id(expr): other}, {})
                if rebuilt is not None:
                    yield Neighbor(rebuilt, tuple(inputs), f"constant {other.data.item()}", frozenset((f"constant {id(expr)}",)))


def with_equal_operands(function: ir.Function, inputs: Sequence[Any]) -> Iterator[Neighbor]:
    """Yield neighbors in which an input is also in the place of another input, or of a constant, of the same type."""
    leaves = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) or expr in function.params]
    for param, other in itertools.product(function.params, leaves):
        if other is not param and other.type == param.type:
            rebuilt = _rebuilt(function, {id(other): param}, {})
            numbers = [number for number, each in enumerate(function.params) if each is not other]
            if rebuilt is not None:
                params = [rebuilt.params[number] for number in numbers]
                values = tuple(inputs[number] for number in numbers)
                yield Neighbor(ir.function(params, rebuilt.body), values, f"{param.name} as two operands")


def _calls(function: ir.Function) -> list[ir.Call]:
    return [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator)]


def _fields(call: ir.Call) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(call.attrs)


def _options(name: str, value: Any, roundings: Sequence[str]) -> Iterator[Any]:
    """Yield values that an attribute may have in place of another one."""
    if name == "rounding":
        yield from (other for other in roundings if other != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float) and math.isfinite(value):
        yield from (value + step for step in STEPS)
    elif isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        yield from _tuples(name, value)


def _tuples(name: str, value: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    others = [value[::-1]]
    if name in SHAPE_ATTRS:
        for (source, size), target in itertools.product(enumerate(value), range(len(value))):
            for factor in (factor for factor in MOVED if size and not size % factor and source != target):
                moved = {source: size // factor, target: value[target] * factor}
                others.append(tuple(moved.get(place, item) for place, item in enumerate(value)))
    else:
        every = itertools.product((1, 0), repeat=len(value)) if len(value) <= ENTRIES else [(1,) * len(value)]
        for step, chosen in itertools.product(STEPS, every):
            others.append(tuple(item + step * flag for item, flag in zip(value, chosen, strict=True)))
    yield from (other for other in dict.fromkeys(others) if other != value)


def _changed(function: ir.Function, inputs: Sequence[Any], call: ir.Call, attrs: Mapping[str, Any]) -> Iterator[Neighbor]:
    rebuilt = _rebuilt(function, {}, {id(call): dataclasses.replace(call.attrs, **attrs)})
    if rebuilt is not None:
        text = ", ".join(f"{name}={value!r}" for name, value in attrs.items())
        yield Neighbor(rebuilt, tuple(inputs), text, frozenset(attrs))


@dataclass(frozen=True)
class _Axis:
    """An axis of an input or a constant, or a number in an attribute: `owner` is the id of the expression, `name` the attribute."""

    owner: int
    place: int
    name: str = ""


def with_other_sizes(function: ir.Function, inputs: Sequence[Any], sizes: Sequence[int]) -> Iterator[Iterator[Neighbor]]:
    """Yield, for each axis of the inputs and of constants of several axes, neighbors in which it has one of some sizes, in order,
    and so have axes of other operands that must be equal. Which must be equal is tried, since only type inference knows it."""
    constants = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) and expr.data.ndim > 1]
    owners = {id(expr): expr for expr in (*function.params, *constants)}
    extents = dict(_extents(function))
    for axis, extent in extents.items():
        if axis.owner in owners and (extent > 1 or axis.owner in map(id, function.params)):
            others = [other for other in extents if extents[other] == extent and other != axis]
            choices = itertools.product((size for size in sizes if size != extent), (False, True), _subsets(others))
            options = (_resized(function, inputs, (axis, *some), size, sparse) for size, sparse, some in choices)
            yield (option for option in options if option is not None)


def _subsets(axes: Sequence[_Axis]) -> Iterable[tuple[_Axis, ...]]:
    """Return sets of axes: of none and of all, of one and of all but one, and so on."""
    counts = sorted(range(len(axes) + 1), key=lambda count: min(count, len(axes) - count))
    every = itertools.chain.from_iterable(itertools.combinations(axes, count) for count in counts)
    return tuple(itertools.islice(every, SUBSETS))


def _extents(function: ir.Function) -> Iterator[tuple[_Axis, int]]:
    for expr in dict.fromkeys((*function.params, *ir.post_order(function.body))):
        if isinstance(expr, ir.Var | ir.Constant) and isinstance(expr.type, TensorType):
            yield from ((_Axis(id(expr), place), dim) for place, dim in enumerate(expr.type.shape) if isinstance(dim, int))
        elif isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
            for item in _fields(expr):
                value = getattr(expr.attrs, item.name)
                if item.name in SHAPE_ATTRS and isinstance(value, tuple):
                    numbers = ((place, number) for place, number in enumerate(value) if isinstance(number, int))
                    yield from ((_Axis(id(expr), place, item.name), number) for place, number in numbers)


def _resized(function: ir.Function, inputs: Sequence[Any], axes: Sequence[_Axis], size: int, sparse: bool) -> Neighbor | None:
    """Give axes another size. Constants of several axes are `sparse` if asked, since longer sums may not fit an accumulator."""
    places: dict[int, list[_Axis]] = {}
    for axis in axes:
        places.setdefault(axis.owner, []).append(axis)
    weights = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) and expr.data.ndim > 1]
    if sparse and not any(id(expr) in places for expr in weights):
        return None
    replaced: dict[int, ir.Expr] = {}
    attrs: dict[int, Any] = {}
    arrays = list(inputs)
    for number, param in enumerate(function.params):
        for axis in places.get(id(param), ()):
            arrays[number] = _drawn(arrays[number], axis.place, size)
        replaced[id(param)] = ir.var(param.name, TensorType(arrays[number].shape, from_numpy(arrays[number].dtype)))
    for expr in ir.post_order(function.body):
        for axis in places.get(id(expr), ()):
            if isinstance(expr, ir.Constant):
                data = replaced.get(id(expr), expr)
                assert isinstance(data, ir.Constant)
                resize = _at_the_end if sparse and data.data.ndim > 1 else _drawn
                replaced[id(expr)] = ir.constant(resize(data.data, axis.place, size))
            elif isinstance(expr, ir.Call):
                value = [*getattr(attrs.get(id(expr), expr.attrs), axis.name)]
                value[axis.place] = size
                attrs[id(expr)] = dataclasses.replace(attrs.get(id(expr), expr.attrs), **{axis.name: tuple(value)})
    rebuilt = _rebuilt(function, replaced, attrs)
    return None if rebuilt is None else Neighbor(rebuilt, tuple(arrays), f"a size of {size}")


def _drawn(values: Array, axis: int, size: int) -> Array:
    """Resize an axis by repeating its slices in a random order, the same order for all arrays of equal sizes."""
    extent = values.shape[axis]
    order = np.random.default_rng(size).integers(0, extent, size) if extent else np.zeros(0, np.int64)
    return np.ascontiguousarray(np.take(values, order, axis))


def _at_the_end(values: Array, axis: int, size: int) -> Array:
    """Resize an axis by zeros before its slices."""
    extent = min(values.shape[axis], size)
    found = np.zeros((*values.shape[:axis], size, *values.shape[axis + 1 :]), values.dtype)
    np.moveaxis(found, axis, 0)[size - extent :] = np.moveaxis(values, axis, 0)[:extent]
    return found


def _rebuilt(function: ir.Function, replaced: Mapping[int, ir.Expr], attrs: Mapping[int, Any]) -> ir.Function | None:
    """Rebuild a function with other variables, constants and attributes, by id. Returns None if its types do not fit."""
    done: dict[int, ir.Expr] = dict(replaced)
    try:
        for expr in ir.post_order(function.body):
            if id(expr) in done:
                continue
            parts = tuple(done[id(child)] for child in ir.children(expr))
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
                done[id(expr)] = ir.call(expr.callee, parts, attrs.get(id(expr), expr.attrs), expr.span)
            else:
                done[id(expr)] = ir.rebuild(expr, parts)
        params = [done.get(id(param), param) for param in function.params]
        return ir.function([param for param in params if isinstance(param, ir.Var)], done[id(function.body)])
    except (InlaidError, ValueError, TypeError, IndexError, ZeroDivisionError):
        return None
