"""Directed neighbors of an accepted example of a composite: other windows, channels and axes of its operators, other constants.

Random examples rarely have the values for which a shortcut of an implementation is wrong: a sum that needs all bits of the
accumulator, a product that is halfway between integers in float32 only, a tile of rows that lies in the padding. The tables of this
module list such values. The target's rules decide whether an example counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.ops.composites import LARGEST_ADDED
from inlaid.ops.fixed_point import FRACTION, ROUNDINGS, fixed_point
from inlaid.partitioning.accumulate import magnitudes
from inlaid.plugins import Capabilities
from inlaid_conformance.corpus import Example
from inlaid_conformance.corpus.product import MAX_SCRATCH
from inlaid_conformance.pattern_examples import Draw, PatternExample
from inlaid_conformance.values import Array, factors
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType

ROWS = 24
"""Rows of an image, and of padding, that need several tiles."""
NARROWEST = 13
"""Least number of columns of such an image."""
CHANNEL = 1
"""Axis of channels of images, and of columns of matrices."""
IMAGES = 2
"""Number of images: weights that are loaded for the first one have to be there for the next one."""
FILL = 5
"""Value of constant padding."""
RESULT = 100
"""Greatest magnitude of scaled results: it fits into 8 bits with a zero point."""
CLAMPED = 50
"""Each bound of the results cuts off one integer in this many."""
SINGLES = 3
"""Number of factors that are tried in examples with one factor for all channels."""
TIED = 8
"""Number of the greatest sums for which a scale is made."""
WIDEST = 32
"""Greatest size of a tile of channels for which examples have more than two tiles."""
AMPLE = {1: (4001,), 2: (61, 67), 3: (5, 29, 31), 4: (1, 37, 11, 13)}
"""Shapes with thousands of elements, by rank."""


@dataclass(frozen=True)
class _Window:
    """A window over an image: kernel, strides, dilations, and pads as in `conv`. An image of 0 columns is as wide as it needs to be
    to exceed the scratch memory of the target."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    image: tuple[int, int] = (ROWS, 0)


_WINDOWS = (
    _Window((3, 3), (2, 2), pads=(0, 0, 1, 1), image=(8, 10)),  # as TensorFlow pads even extents
    _Window((3, 3), pads=(2, 0, 0, 1), image=(7, 9)),
    _Window((3, 2), (1, 2), (1, 2), (0, 2, 1, 0), (6, 9)),
    _Window((3, 3), dilations=(5, 1), image=(2 * ROWS, 0)),
    _Window((3, 3), (2, 1), (2, 1), (3, 1, 2, 1), (2 * ROWS, 0)),
    _Window((3, 3), pads=(ROWS, 1, ROWS // 2, 2)),  # whole tiles of padding
    _Window((12, 12), image=(15, 14)),  # more taps than an int8 can count
    _Window((16, 17), image=(17, 18)),  # more taps than a uint8 can count
    _Window((8, 8), (8, 8), image=(17, 26)),  # more than fields of 2 and 3 bits can say
    _Window((2, 3), (17, 9), (17, 9), (17, 16, 1, 18), (19, 21)),  # more than fields of 4 bits can say
)
_SMALL = _WINDOWS[1]
"""The window of examples that vary something else."""
_PRODUCT = ((61, 7), (7, 37))
"""Shapes of the operands of a matrix product with many elements."""
_BY_CHANNEL = (5, 1, 1)
_CHANNELS = ((5, 1, 2), (16, 1, 3), (4, 2, 3))
"""Numbers of groups, and of input and output channels of each."""
_AXES = ((2,), (3,), (1,), (2, 3), (1, 2, 3))
_SHIFTS = (20, 1, -8, 9, -30, 14)
"""Shifts of factors between the extremes."""
_MULTIPLIERS = ((1 << FRACTION) - 1, 1 << (FRACTION - 1), 3 << (FRACTION - 2), 1518500249, 0)
_SCALES = ((0.25, 0.25, 0.3), (1 / 14, 1 / 14, 1 / 7), (0.1, 0.1, 0.2), (0.3, 0.7, 0.9))
"""Scales of two operands and of their result. Many results are halfway between integers, but not with the reciprocal of the last
scale, not with a scale of seven digits, or not in float64."""


def draws(name: str, example: PatternExample, draw: Draw, target: Capabilities) -> Iterator[Draw]:
    """Enumerate draws of examples like `example`, drawn by `draw`, with other windows, channels or axes of operator `name`."""
    padded, convolution = "pad" in example.recipes, _first(example, "conv")
    if convolution is not None and name == ("pad" if padded else "conv"):
        same_channels, (wide, *_) = _channels(convolution), _wide(target)
        deep = (1, 2 * min(target.tiles.inputs, WIDEST) + 1, 4)
        for window, channels in itertools.product(_WINDOWS, (same_channels, wide, deep, _BY_CHANNEL)):
            yield _with_examples(example, draw, _convolution(convolution, window, channels, target, padded))
        for channels in _CHANNELS:
            yield _with_examples(example, draw, _convolution(convolution, _SMALL, channels, target, padded))
    if name == "reduce_sum":
        for axes, keepdims in itertools.product(_AXES, (True, False)):
            reduction = Example(ops.reduce_sum, example.inputs[:1], {"axes": axes, "keepdims": keepdims})
            yield replace(_with_examples(example, draw, {name: reduction}), shape=AMPLE[4])


def ample(example: PatternExample, draw: Draw, target: Capabilities) -> Iterator[Draw]:
    """Enumerate draws of examples like `example`, drawn by `draw`, with many elements and, if possible, many channels."""
    convolution, product = _first(example, "conv"), _first(example, "matmul")
    if convolution is not None:
        for channels in _wide(target):
            yield _with_examples(example, draw, _convolution(convolution, _SMALL, channels, target, "pad" in example.recipes))
    elif product is not None:
        arrays = (factors(number, shape, _element(product.args[number]), number, "plain") for number, shape in enumerate(_PRODUCT))
        yield _with_examples(example, draw, {"matmul": Example(ops.matmul, tuple(arrays), tiles=target.tiles)})
    else:
        for shape in (AMPLE[4], AMPLE.get(len(_shape(example.function.body)), ())):
            yield replace(draw, recipes=example.recipes, shape=shape)


def constants(name: str, example: PatternExample, target: Capabilities) -> Iterator[PatternExample]:
    """Enumerate examples with other constants of operator `name`, and integers of the whole range of 8 bits."""
    body = example.function.body
    if not isinstance(body.type, TensorType) or len(_shape(body)) <= CHANNEL:
        return
    full = replace(example, inputs=tuple(itertools.starmap(_full, enumerate(example.inputs))))
    bounds = _bounds(example.function)
    for call in _calls(example.function, name):
        for changes in CONSTANTS[name](call, full, target):
            function = _changed(example.function, {**bounds, **changes})
            if function is not None:
                yield replace(full, function=function)


def _with_examples(example: PatternExample, draw: Draw, examples: Mapping[str, Example]) -> Draw:
    """Return the draw of an example like `example` with given examples of some operators."""
    recipes = {
        name: replace(example.recipes[name], ignores_context=True, default_attributes=False, example=replacement)
        for name, replacement in examples.items()
    }
    return replace(draw, recipes={**example.recipes, **recipes})


def _full(number: int, value: Array) -> Array:
    return factors(number, value.shape, value.dtype.name, 0, "plain") if value.dtype.kind in "iu" else value


def _channels(call: ir.Call) -> tuple[int, int, int]:
    """Return the number of groups of a convolution, and the numbers of input and output channels of each."""
    groups, (outputs, inner, *_) = call.attrs.groups, _shape(call.args[1])
    return groups, inner, outputs // groups


def _wide(target: Capabilities) -> tuple[tuple[int, int, int], ...]:
    """Return groups and channels of convolutions with several tiles of outputs: of all inputs, and of one input each."""
    outputs = 2 * min(target.tiles.outputs, WIDEST) + 5
    return (1, 5, outputs), (outputs, 1, 1)


def _convolution(
    call: ir.Call, window: _Window, channels: tuple[int, int, int], target: Capabilities, padded: bool
) -> Mapping[str, Example]:
    """Return an example of a convolution, and of a pad before it if it is `padded` by one."""
    groups, inner, outer = channels
    bytes_of_channels = -(-groups * inner // target.tiles.inputs) * target.tiles.inputs
    rows, columns = window.image
    columns = columns or max(min(target.tiles.scratch, MAX_SCRATCH) // (rows * bytes_of_channels), NARROWEST)
    data, weights = (_element(arg) for arg in call.args)
    x = factors(rows, (IMAGES, groups * inner, rows, columns), data, 0, "plain")
    w = factors(columns, (groups * outer, inner, *window.kernel), weights, 1, "plain")
    attrs = {"strides": window.strides, "dilations": window.dilations, "groups": groups}
    if not padded:
        return {"conv": Example(ops.conv, (x, w), {**attrs, "pads": window.pads}, tiles=target.tiles)}
    pads = (0, 0, *window.pads[:2], 0, 0, *window.pads[2:])
    pad = Example(ops.pad, (x, np.asarray(FILL, x.dtype)), {"pads": pads, "mode": "constant"})
    return {"conv": Example(ops.conv, (x, w), attrs, tiles=target.tiles), "pad": pad}


Changes = Mapping[int, Array | Mapping[str, Any]]
"""New values of constants, and new attributes of calls, by the id of the expression."""


def _fixed_factors(call: ir.Call, example: PatternExample, target: Capabilities) -> Iterator[Changes]:
    """Enumerate factors in fixed point with extreme and other shifts: one per channel, or one for all channels; in each rounding
    that the target declares."""
    _, multiplier, shift = call.args
    requantization = target.requantization
    least, greatest = requantization.shifts or (-FRACTION, FRACTION - 1)
    shifts = [least, greatest, *(exponent for exponent in _SHIFTS if least < exponent < greatest)]
    unused_bits = (1 << (FRACTION - requantization.multiplier_bits)) - 1
    multipliers = [number & ~unused_bits for number in _MULTIPLIERS]
    count = _shape(call)[CHANNEL]
    for rounding in (item for item in ROUNDINGS if item in (requantization.roundings or (call.attrs.rounding,))):
        attrs = {"axis": CHANNEL, "rounding": rounding}
        yield {id(call): attrs, id(multiplier): _spread(multipliers, (count,)), id(shift): _spread(shifts, (count,))}
        for number, exponent in zip(multipliers[:SINGLES], shifts, strict=False):
            yield {id(call): attrs, id(multiplier): _spread([number], ()), id(shift): _spread([exponent], ())}


def _biases(call: ir.Call, example: PatternExample, target: Capabilities) -> Iterator[Changes]:
    """Enumerate biases of sums that need all bits of the accumulator, with factors that scale them to 8 bits."""
    total = next((arg for arg in call.args if isinstance(arg, ir.Call) and arg.callee in (ops.conv, ops.matmul)), None)
    bias = next((arg for arg in call.args if isinstance(arg, ir.Constant)), None)
    if total is None or bias is None or bias.data.dtype != np.int32:
        return
    terms = magnitudes(total)
    assert terms is not None, "examples have static shapes"
    bits = target.requantization.accumulator_bits
    added_terms = [arg for other in _calls(example.function, "add") if other is not call for arg in other.args]
    added_magnitude = sum(
        int(np.abs(arg.data.astype(np.int64)).max(initial=0)) for arg in added_terms if isinstance(arg, ir.Constant)
    )
    limit = min((1 << (bits - 1)) - 1, LARGEST_ADDED) - int(terms.max(initial=0)) - added_magnitude
    if limit < RESULT:
        return
    shape = (_shape(call)[CHANNEL], *(1 for _ in _shape(call)[2:])) if total.callee is ops.conv else _shape(call)[-1:]
    for share, form in ((1, shape), (1, ()), (-1, ())):
        magnitude = share * limit
        yield {
            id(bias): _spread([magnitude, -magnitude, magnitude // 5, -magnitude // 11], form),
            **_scaled(example.function, limit, target),
        }


def _scaled(function: ir.Function, magnitude: int, target: Capabilities) -> Changes:
    """Return factors that scale sums of a magnitude to the greatest result."""
    multiplier, shift = fixed_point(RESULT / magnitude, target.requantization.multiplier_bits)
    values = {
        "multiply_fixed": (multiplier, shift),
        "requantize": (np.float32(RESULT / magnitude),),
        "shift_right": ((magnitude // RESULT).bit_length(),),
    }
    pairs = [(call, numbers) for name, numbers in values.items() for call in _calls(function, name)]
    return {
        id(arg): np.asarray(value, _element(arg))
        for call, numbers in pairs
        for arg, value in zip(call.args[1:], numbers, strict=False)
    }


def _tie_scales(call: ir.Call, example: PatternExample, target: Capabilities) -> Iterator[Changes]:
    """Enumerate scales in float32, one per channel or one for all, with which many products are halfway between integers in
    float32, but not exactly."""
    sums = np.asarray(evaluate(ir.function(example.function.params, call.args[0]), example.inputs))
    by_channel = np.moveaxis(sums, CHANNEL, 0).reshape(sums.shape[CHANNEL], -1)
    yield {id(call): {"axis": CHANNEL}, id(call.args[1]): np.array([_tie_scale(channel) for channel in by_channel], np.float32)}
    yield {id(call.args[1]): np.asarray(_tie_scale(sums.reshape(-1)))}


def _tie_scale(sums: Array) -> np.float32:
    """Return the scale with which the most products round to another integer in float32 than they do exactly."""
    maximum = int(np.abs(sums.astype(np.int64)).max(initial=1))
    greatest = np.unique(np.abs(sums.astype(np.int64)))[-TIED:]
    halves = np.arange(RESULT // 2, RESULT) + 0.5
    options = np.unique((halves / np.maximum(greatest, (maximum + 1) // 2)[:, None]).astype(np.float32))
    exact = np.rint(sums.astype(np.float64) * options[:, None].astype(np.float64))
    single = np.rint(sums.astype(np.float32) * options[:, None])
    return np.float32(options[np.argmax(np.count_nonzero(exact != single, axis=1))])


def _real_scales(call: ir.Call, example: PatternExample, target: Capabilities) -> Iterator[Changes]:
    """Enumerate scales of dequantized operands and of the quantized result with products near ties."""
    operands = _calls(example.function, "dequantize")
    for scales in _SCALES:
        pairs = zip((*operands, call), (*scales[: len(operands)], scales[-1]), strict=False)
        yield {id(operand.args[1]): np.asarray(value, _element(operand.args[1])) for operand, value in pairs}


CONSTANTS: Mapping[str, Callable[[ir.Call, PatternExample, Capabilities], Iterator[Changes]]] = {
    "multiply_fixed": _fixed_factors,
    "requantize": _tie_scales,
    "quantize": _real_scales,
    "add": _biases,
    "sub": _biases,
}
"""Enumerates changes of constants of an operator's call, by the operator's name."""


def _spread(values: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Repeat int32 values over the elements of a constant."""
    return np.resize(np.asarray(values, np.int32), shape)


def _bounds(function: ir.Function) -> Changes:
    """Return wide bounds for a function that clamps integers: narrow ones would hide results."""
    type_ = function.body.type
    if not isinstance(type_, TensorType) or not type_.dtype.is_int:
        return {}
    least, greatest = type_.dtype.limits
    margin = (greatest - least) // CLAMPED
    low, high = least + margin, greatest - margin
    changes: dict[int, Array | Mapping[str, Any]] = {}
    for call in _calls(function, "clip"):
        changes[id(call)] = {"minimum": float(low), "maximum": float(high)}
    limits = [(call, low) for call in _calls(function, "maximum")] + [(call, high) for call in _calls(function, "minimum")]
    for call, bound in limits:
        bound_args = (arg for arg in call.args if isinstance(arg, ir.Constant) and _element(arg) == type_.dtype.name)
        changes |= {id(arg): np.full_like(arg.data, bound) for arg in bound_args}
    return changes


def _changed(function: ir.Function, changes: Changes) -> ir.Function | None:
    """Replace constants and attributes in a function. Returns None if calls that share a constant do not take the new one."""
    new_exprs: dict[int, ir.Expr] = {}
    for expr in ir.post_order(function.body):
        change, children = changes.get(id(expr)), tuple(new_exprs[id(child)] for child in ir.children(expr))
        try:
            if isinstance(change, np.ndarray) and isinstance(expr, ir.Constant):
                new_exprs[id(expr)] = ir.constant(change)
            elif isinstance(change, Mapping) and isinstance(expr, ir.Call):
                new_exprs[id(expr)] = ir.call(expr.callee, children, replace(expr.attrs, **change))
            else:
                new_exprs[id(expr)] = ir.rebuild(expr, children)
        except InlaidError:
            return None
    return ir.function(function.params, new_exprs[id(function.body)])


def _calls(function: ir.Function, name: str) -> list[ir.Call]:
    """Return the calls of an operator."""
    calls = (expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Call))
    return [call for call in calls if isinstance(call.callee, Operator) and call.callee.name == name]


def _first(example: PatternExample, name: str) -> ir.Call | None:
    """Return the first call of an operator that was drawn with a recipe."""
    return next(iter(_calls(example.function, name)), None) if name in example.recipes else None


def _shape(expr: ir.Expr) -> tuple[int, ...]:
    """Return the shape of a tensor of an example, which is static; no dimensions for other values."""
    return tuple(dim for dim in expr.type.shape if isinstance(dim, int)) if isinstance(expr.type, TensorType) else ()


def _element(expr: ir.Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name
