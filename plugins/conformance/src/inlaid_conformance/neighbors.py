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
from inlaid.graph.transform import transform
from inlaid_conformance.coverage import SHAPE_ATTRS
from inlaid_conformance.values import Array
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, from_numpy

SUBSETS = 32
"""Greatest number of sets of axes that are tried for one size. The axes of a set change together."""
STEPS = (1, 2, -1)
"""Differences between an integer of an attribute and its neighbors."""
MOVED = (2, 3, 5)
"""Factors that move from one size of an attribute to another one."""
ROUNDING = "rounding"
"""Attribute of requantizations and of other operators that round."""
GROUPS = "groups"
"""Attribute that equals the number of channels if each channel is a group."""
ENTRIES = 4
"""Greatest number of integers in an attribute for which every subset of them is changed."""


IMAGES = 2
"""Number of images of a reshape."""
BLOCKS = (4, 8, 16, 32, 64)
"""Numbers of channels that hardware may store in a block."""


@dataclass(frozen=True)
class Neighbor:
    """A function that differs from an example, its inputs, and a description of the difference. `names` are the attributes or
    constants that differ."""

    function: ir.Function
    inputs: tuple[Any, ...]
    difference: str
    names: frozenset[str] = frozenset()


def with_other_attributes(function: ir.Function, inputs: Sequence[Any], roundings: Sequence[str] = ()) -> Iterator[Neighbor]:
    """Yield neighbors with another value of one attribute, or of two attributes of one operator, such as a dilation with wider
    pads; then those with another scalar integer constant. Two attributes must leave the type of the result unchanged. `roundings`
    are the options of attributes named `rounding`."""
    for call in _calls(function):
        options_by_name = {
            item.name: list(_options(item.name, getattr(call.attrs, item.name), roundings)) for item in _fields(call)
        }
        for name, options in options_by_name.items():
            for option in options:
                yield from _changed(function, inputs, call, {name: option})
        for first, second in itertools.combinations(options_by_name, 2):
            for one, other in itertools.product(options_by_name[first], options_by_name[second]):
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


def with_other_roundings(function: ir.Function, inputs: Sequence[Any], roundings: Sequence[str]) -> Iterator[Neighbor]:
    """Yield, for each of `roundings`, the neighbor in which all operators with an attribute `rounding` have it, if one has
    another."""
    calls = [call for call in _calls(function) if any(item.name == ROUNDING for item in _fields(call))]
    for rounding in roundings:
        if any(getattr(call.attrs, ROUNDING) != rounding for call in calls):
            attrs = {id(call): dataclasses.replace(call.attrs, **{ROUNDING: rounding}) for call in calls}
            rebuilt = _rebuilt(function, {}, attrs)
            if rebuilt is not None:
                yield Neighbor(rebuilt, tuple(inputs), f"{ROUNDING}={rounding!r}", frozenset((ROUNDING,)))


def with_broadcasts(function: ir.Function, inputs: Sequence[Any], shape: Sequence[int]) -> Iterator[Neighbor]:
    """Yield neighbors whose inputs have shape `shape`, except one input, which is broadcast: along all axes, one axis, all but one
    axis, or all after the second; or it has only the last axes. Constants with the shape of the first input become inputs."""
    leaves = (expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant))
    constants = [expr for expr in leaves if inputs and expr.data.shape == np.shape(inputs[0])]
    new_params = [ir.var(f"x{number}", expr.type) for number, expr in enumerate(constants, len(inputs))]
    operands = {id(constant): param for constant, param in zip(constants, new_params, strict=True)}
    body = transform(function.body, lambda old, new: operands.get(id(old), new))
    function, inputs = ir.function((*function.params, *new_params), body), (*inputs, *(expr.data for expr in constants))
    if len(inputs) < 2:
        return
    axes = frozenset(range(len(shape)))
    sets = (axes, axes - {0, 1}, *(frozenset((axis,)) for axis in axes), *(axes - {axis} for axis in axes))
    shorter = [tuple(shape[start:]) for start in range(1, len(shape) + 1)]
    sparse = [
        tuple(1 if axis in unit_axes else dim for axis, dim in enumerate(shape)) for unit_axes in dict.fromkeys(sets) if unit_axes
    ]
    for number, operand in itertools.product(range(len(inputs)), (*sparse, *shorter)):
        shapes = [operand if index == number else tuple(shape) for index in range(len(inputs))]
        arrays = tuple(np.resize(array, dims) for array, dims in zip(inputs, shapes, strict=True))
        pairs = zip(function.params, arrays, strict=True)
        params = {id(param): ir.var(param.name, TensorType(array.shape, from_numpy(array.dtype))) for param, array in pairs}
        rebuilt = _rebuilt(function, params, {})
        if rebuilt is not None:
            yield Neighbor(rebuilt, arrays, f"inputs of shapes {', '.join(map(str, shapes))}")


def with_other_reshapes(function: ir.Function, inputs: Sequence[Any], channels: int) -> Iterator[Neighbor]:
    """Yield neighbors of a function of one input and one reshape, between images, matrices and other shapes. They have `channels`
    channels, of which hardware stores whole blocks, or fewer, and one or more images, rows and columns."""
    for images, count, rows, columns in itertools.product((1, 2), (channels, 6), (1, 2), (1, 3)):
        pixels = rows * columns
        shapes = (
            *((images, count, rows, columns), (images, count, columns, rows), (images, rows, columns, count)),
            *((images, count * pixels), (images * count, pixels), (images * pixels, count), (count, images * pixels)),
            *((images, count, pixels), (images, pixels, count), (images * count * pixels,), (images, count * pixels, 1, 1)),
        )
        for source, target in itertools.permutations(dict.fromkeys(shapes), 2):
            yield from _reshaped(function, inputs, source, target)


def with_reshapes_across_blocks(function: ir.Function, inputs: Sequence[Any]) -> Iterator[Neighbor]:
    """Yield neighbors of a function of one input and one reshape, whose data and result have equally many blocks of channels, but
    the elements at other positions: one and a half blocks per image, and three quarters of a block for twice as many images, in
    either direction."""
    for width, pixel in itertools.product(BLOCKS, ((), (1, 1))):
        wide, narrow = (IMAGES, width + width // 2), (2 * IMAGES, width // 2 + width // 4)
        for other in ((), (1, 1)):
            for source, target in (((*wide, *pixel), (*narrow, *other)), ((*narrow, *pixel), (*wide, *other))):
                yield from _reshaped(function, inputs, source, target)


def _reshaped(function: ir.Function, inputs: Sequence[Any], source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[Neighbor]:
    """If a function has one input and one reshape, yield its neighbor that reshapes `source` to `target`. Yield nothing for other
    functions, or if the types of the neighbor do not fit."""
    calls = [call for call in _calls(function) if call.callee.name == "reshape"]  # type: ignore[union-attr]
    if len(calls) != 1 or len(inputs) != 1:
        return
    data = np.resize(inputs[0], source)
    param = ir.var(function.params[0].name, TensorType(source, from_numpy(data.dtype)))
    attrs = dataclasses.replace(calls[0].attrs, shape=target)
    rebuilt = _rebuilt(function, {id(function.params[0]): param}, {id(calls[0]): attrs})
    if rebuilt is not None:
        yield Neighbor(rebuilt, (data,), f"a reshape from {source} to {target}")


def with_large_attributes(function: ir.Function, inputs: Sequence[Any], values: Sequence[int]) -> Iterator[Iterator[Neighbor]]:
    """Yield, for each attribute with an integer per axis, such as a stride, and each of `values`, neighbors in which integers of
    the attribute have this value: all of them, the first half (of pads, those before), or one."""
    pairs = [(call, item) for call in _calls(function) for item in _fields(call)]
    for call, item in pairs:
        old = getattr(call.attrs, item.name)
        if item.name not in SHAPE_ATTRS and isinstance(old, tuple) and old and all(isinstance(number, int) for number in old):
            half = len(old) // 2
            for value in values:
                options = [
                    (value,) * len(old),
                    (value,) * half + old[half:],
                    *(_put(old, index, value) for index in range(len(old))),
                ]
                yield itertools.chain.from_iterable(_changed(function, inputs, call, {item.name: option}) for option in options)


def with_equal_operands(function: ir.Function, inputs: Sequence[Any]) -> Iterator[Neighbor]:
    """Yield neighbors in which an input also replaces another input, or a constant, of the same type."""
    leaves = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) or expr in function.params]
    for param, other in itertools.product(function.params, leaves):
        if other is not param and other.type == param.type:
            rebuilt = _rebuilt(function, {id(other): param}, {})
            numbers = [number for number, item in enumerate(function.params) if item is not other]
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
    if name == ROUNDING:
        yield from (other for other in roundings if other != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float) and math.isfinite(value):
        yield from (value + step for step in STEPS)
    elif isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        yield from _tuples(name, value)


def _tuples(name: str, value: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    options = [value[::-1]]
    if sorted(value) == [*range(len(value))]:
        for first, second in itertools.combinations(range(len(value)), 2):
            options.append(_put(_put(value, first, value[second]), second, value[first]))
    elif name in SHAPE_ATTRS:
        for (source, size), target in itertools.product(enumerate(value), range(len(value))):
            for factor in (factor for factor in MOVED if size and not size % factor and source != target):
                changed_sizes = {source: size // factor, target: value[target] * factor}
                options.append(tuple(changed_sizes.get(index, item) for index, item in enumerate(value)))
    else:
        flag_sets = itertools.product((1, 0), repeat=len(value)) if len(value) <= ENTRIES else [(1,) * len(value)]
        for step, flags in itertools.product(STEPS, flag_sets):
            options.append(tuple(item + step * flag for item, flag in zip(value, flags, strict=True)))
    yield from (other for other in dict.fromkeys(options) if other != value)


def _changed(function: ir.Function, inputs: Sequence[Any], call: ir.Call, attrs: Mapping[str, Any]) -> Iterator[Neighbor]:
    rebuilt = _rebuilt(function, {}, {id(call): dataclasses.replace(call.attrs, **attrs)})
    if rebuilt is not None:
        text = ", ".join(f"{name}={value!r}" for name, value in attrs.items())
        yield Neighbor(rebuilt, tuple(inputs), text, frozenset(attrs))


@dataclass(frozen=True)
class _Axis:
    """An axis of an input or a constant, or a number in an attribute: `owner` is the id of the expression, `name` the attribute."""

    owner: int
    index: int
    name: str = ""


def with_other_sizes(function: ir.Function, inputs: Sequence[Any], sizes: Sequence[int]) -> Iterator[Iterator[Neighbor]]:
    """Yield, for each axis of the inputs and of constants of several axes, neighbors in which it has one of `sizes`, in order. Axes
    that must be equal to it change too; sets of them are tried, since only type inference knows which they are."""
    constants = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) and expr.data.ndim > 1]
    owners = {id(expr): expr for expr in (*function.params, *constants)}
    extents = dict(_extents(function))
    for axis, extent in extents.items():
        if axis.owner in owners and (extent > 1 or axis.owner in map(id, function.params)):
            equal_axes = [other for other in extents if extents[other] == extent and other != axis]
            choices = itertools.product((size for size in sizes if size != extent), (False, True), _subsets(equal_axes))
            options = (_resized(function, inputs, (axis, *subset), size, sparse) for size, sparse, subset in choices)
            yield (option for option in options if option is not None)


def _subsets(axes: Sequence[_Axis]) -> Iterable[tuple[_Axis, ...]]:
    """Return sets of axes: of none and of all, of one and of all but one, and so on."""
    counts = sorted(range(len(axes) + 1), key=lambda count: min(count, len(axes) - count))
    subsets = itertools.chain.from_iterable(itertools.combinations(axes, count) for count in counts)
    return tuple(itertools.islice(subsets, SUBSETS))


def _extents(function: ir.Function) -> Iterator[tuple[_Axis, int]]:
    for expr in dict.fromkeys((*function.params, *ir.post_order(function.body))):
        if isinstance(expr, ir.Var | ir.Constant) and isinstance(expr.type, TensorType):
            yield from ((_Axis(id(expr), index), dim) for index, dim in enumerate(expr.type.shape) if isinstance(dim, int))
        elif isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
            for item in _fields(expr):
                value = getattr(expr.attrs, item.name)
                if item.name in SHAPE_ATTRS and isinstance(value, tuple):
                    numbers = ((index, number) for index, number in enumerate(value) if isinstance(number, int))
                    yield from ((_Axis(id(expr), index, item.name), number) for index, number in numbers)
                elif item.name == GROUPS and value > 1:
                    yield _Axis(id(expr), 0, item.name), value


def _resized(function: ir.Function, inputs: Sequence[Any], axes: Sequence[_Axis], size: int, sparse: bool) -> Neighbor | None:
    """Give axes another size. If `sparse`, constants of several axes are extended by zeros, since longer sums may not fit an
    accumulator."""
    axes_by_owner: dict[int, list[_Axis]] = {}
    for axis in axes:
        axes_by_owner.setdefault(axis.owner, []).append(axis)
    weights = [expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Constant) and expr.data.ndim > 1]
    if sparse and not any(id(expr) in axes_by_owner for expr in weights):
        return None
    replacements: dict[int, ir.Expr] = {}
    attrs: dict[int, Any] = {}
    arrays = list(inputs)
    for number, param in enumerate(function.params):
        for axis in axes_by_owner.get(id(param), ()):
            arrays[number] = _resampled(arrays[number], axis.index, size)
        replacements[id(param)] = ir.var(param.name, TensorType(arrays[number].shape, from_numpy(arrays[number].dtype)))
    for expr in ir.post_order(function.body):
        for axis in axes_by_owner.get(id(expr), ()):
            if isinstance(expr, ir.Constant):
                data = replacements.get(id(expr), expr)
                assert isinstance(data, ir.Constant)
                resize = _padded_before if sparse and data.data.ndim > 1 else _resampled
                replacements[id(expr)] = ir.constant(resize(data.data, axis.index, size))
            elif isinstance(expr, ir.Call):
                current = attrs.get(id(expr), expr.attrs)
                value = size if axis.name == GROUPS else _put(getattr(current, axis.name), axis.index, size)
                attrs[id(expr)] = dataclasses.replace(current, **{axis.name: value})
    rebuilt = _rebuilt(function, replacements, attrs)
    return None if rebuilt is None else Neighbor(rebuilt, tuple(arrays), f"a size of {size}")


def _put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _resampled(values: Array, axis: int, size: int) -> Array:
    """Resize an axis by repeating its slices in a random order, the same order for all arrays of equal sizes."""
    extent = values.shape[axis]
    order = np.random.default_rng(size).integers(0, extent, size) if extent else np.zeros(0, np.int64)
    return np.ascontiguousarray(np.take(values, order, axis))


def _padded_before(values: Array, axis: int, size: int) -> Array:
    """Resize an axis by zeros before its slices."""
    extent = min(values.shape[axis], size)
    padded = np.zeros((*values.shape[:axis], size, *values.shape[axis + 1 :]), values.dtype)
    np.moveaxis(padded, axis, 0)[size - extent :] = np.moveaxis(values, axis, 0)[:extent]
    return padded


def _rebuilt(function: ir.Function, replacements: Mapping[int, ir.Expr], attrs: Mapping[int, Any]) -> ir.Function | None:
    """Rebuild a function with other variables, constants and attributes, by id. Returns None if its types do not fit."""
    exprs: dict[int, ir.Expr] = dict(replacements)
    try:
        for expr in ir.post_order(function.body):
            if id(expr) in exprs:
                continue
            parts = tuple(exprs[id(child)] for child in ir.children(expr))
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
                exprs[id(expr)] = ir.call(expr.callee, parts, attrs.get(id(expr), expr.attrs), expr.span)
            else:
                exprs[id(expr)] = ir.rebuild(expr, parts)
        params = [exprs.get(id(param), param) for param in function.params]
        return ir.function([param for param in params if isinstance(param, ir.Var)], exprs[id(function.body)])
    except (InlaidError, ValueError, TypeError, IndexError, ZeroDivisionError):
        return None
