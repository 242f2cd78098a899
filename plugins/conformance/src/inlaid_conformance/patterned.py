"""Generates examples of composites from a pattern: operators, attributes, shapes, element types and constants for each part, such
that type inference succeeds and the pattern matches.

Operators are bound from the innermost outwards, each to an example of the corpus that fits the shapes of its known arguments. A dry
run from the outside in collects the pattern's requirements. Examples that do not fit are redrawn a few times.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any, Literal

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import (
    CallPattern,
    ItemPattern,
    Kind,
    Named,
    OpPattern,
    Pattern,
    TuplePattern,
    Wanted,
    Where,
    Wildcard,
    match,
)
from inlaid.graph.transform import substitute
from inlaid.ops.fixed_point import FRACTION, ROUNDINGS, SINGLE
from inlaid.plugins import Capabilities
from inlaid.plugins.contract import UP
from inlaid_conformance.accumulators import deepest, fitted_weights, greatest_bias, is_narrow
from inlaid_conformance.corpus import Choices, Entry, Example, Unfit, entry_of
from inlaid_conformance.coverage import Values, facts_of
from inlaid_conformance.factors import distinguished, near_ties
from inlaid_conformance.values import Array, Mix, random_array
from inlaid_runtime.errors import InlaidError, KernelFault
from inlaid_runtime.types import TensorType, Type, dtype, from_numpy

TURNS = 16
"""Greatest number of examples drawn for an operator until one fits."""
SIZES = (3, 5, 4, 1, 7, 2)
"""Extents of axes: few values, so that drawn examples often fit."""
BOUNDS = (ops.clip, ops.maximum, ops.minimum)
FACTORS = 24
"""Number of factors tried to find one that leaves sums halfway between integers."""
SHIFTS = (-24, 7)
"""Least and greatest shift of a factor."""
ANY_TARGET = Capabilities(())
"""Tiles and requantization of examples for no target in particular."""
FEW = 4
"""Greatest number of elements of a constant that is printed."""
IMAGES = 4
"""Rank of every second example if possible, since much hardware supports only images."""


class Stuck(Exception):
    """Raised if no fitting example was found; the message says for which part."""


@dataclass(frozen=True)
class Recipe:
    """Record of how an operator's example was drawn: element type, each choice with its number of options, whether it uses the
    operator's default attributes, and shape of the data. A `free` example ignores the shape of its context, and is not redrawn. If
    given, it is `example`."""

    element: str
    chosen: tuple[int, ...]
    counts: tuple[int, ...]
    own: bool
    shape: tuple[int, ...] | None
    free: bool = False
    example: Example | None = None


@dataclass(frozen=True)
class Draw:
    """Parameters of an example of a pattern: `number` 0 is the plain example, other numbers are seeds of random examples. `element`
    is the element type of the first data; `dtypes` are the allowed element types. With `constant`, wildcards except the first are
    constants. `mix` is the distribution of values, without the extremes of floats unless `edges`. `recipes`, by operator name, are
    tried first. If given, `shape` is the shape of the inputs. `target` has the tiles and the requantization of the target. Factors
    in fixed point are chosen to distinguish the property `aim` of requantizations first."""

    number: int
    element: str
    dtypes: Sequence[str]
    constant: bool = False
    mix: Mix = "plain"
    edges: bool = True
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    target: Capabilities = ANY_TARGET
    aim: Literal["roundings", "multipliers", "shifts"] = "roundings"


@dataclass(frozen=True)
class Made:
    """A function whose body the pattern matches, its inputs, and a recipe of each operator, by name."""

    function: ir.Function
    inputs: tuple[Any, ...]
    recipes: Mapping[str, Recipe] = field(default_factory=dict)

    @property
    def solid(self) -> bool:
        """Whether all parameters and results have elements."""
        types = (self.function.body.type, *(param.type for param in self.function.params))
        return not any(isinstance(type_, TensorType) and 0 in type_.shape for type_ in types)

    def __str__(self) -> str:
        names = {id(param): repr(param.type) for param in self.function.params}
        for expr in ir.post_order(self.function.body):
            args = [names[id(child)] for child in ir.children(expr)]
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
                changed = [f"{name}={value!r}" for name, value in given_attrs(expr).items()]
                names[id(expr)] = f"{expr.callee.name}({', '.join([*args, *changed])})"
            elif isinstance(expr, ir.Constant):
                few = f" {expr.data.tolist()}" if expr.data.size <= FEW else ""
                names[id(expr)] = f"constant {expr.type!r}{few}"
            elif id(expr) not in names:
                names[id(expr)] = f"({', '.join(args)})"
        return names[id(self.function.body)]


def make(pattern: Pattern, draw: Draw) -> Made:
    """Make an example of a pattern without alternatives. Raises `Stuck`. Exceptions of the pattern's predicates pass through."""
    attempt = _Attempt(draw)
    with np.errstate(all="ignore"):
        body = attempt.build(pattern)
    return Made(ir.function(tuple(attempt.params), body), tuple(attempt.inputs), attempt.recipes)


def drawn(function: ir.Function, mix: Mix) -> Made:
    """Draw random inputs for a function, whose parameters are renamed as in examples of the suite."""
    params = tuple(ir.var(f"x{number}", param.type, span=param.span) for number, param in enumerate(function.params))
    function = ir.function(params, substitute(function.body, dict(zip(function.params, params, strict=True))))
    types = [param.type for param in function.params if isinstance(param.type, TensorType)]
    inputs = (random_array(number, _static(type_), type_.dtype, mix=mix) for number, type_ in enumerate(types))
    return Made(function, tuple(inputs))


@dataclass
class _Attempt:
    draw: Draw
    params: list[ir.Var] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    known: dict[int, ir.Expr] = field(default_factory=dict)
    products: dict[int, Array] = field(default_factory=dict)
    """Scales of products of dequantized values, by id of the expression."""
    recipes: dict[str, Recipe] = field(default_factory=dict)
    chosen: list[tuple[int, int]] = field(default_factory=list)
    """Choices of the last example, each with its number of options."""
    sums: dict[int, ir.Call] = field(default_factory=dict)
    """Sums in narrow accumulators by id, those of rejected examples too: an id is unique only as long as the call lives."""

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.draw.number} {self.draw.element}")

    def build(self, part: Pattern, hint: Type | None = None) -> ir.Expr:
        """Build an expression for a part of the pattern, of the hinted type if possible."""
        core, wanted, layers = _opened(part)
        if any(id(layer) in self.known for layer in layers):
            return next(self.known[id(layer)] for layer in layers if id(layer) in self.known)
        match core:
            case OpPattern((operator,)):
                found = self._call(_operator(operator), None, wanted, part, hint)
            case CallPattern((operator,), args):
                found = self._call(_operator(operator), args, wanted, part, hint)
            case ItemPattern(value, index):
                found = ir.tuple_item(self.build(value), index or 0)
            case TuplePattern(fields):
                found = ir.tuple_(tuple(map(self.build, fields)))
            case _:
                like = hint if isinstance(hint, TensorType) else TensorType((3, 5), self.draw.element)
                array = self._values(_static(like), like.dtype.name)
                found = self._leaf(core, wanted, array, TensorType(array.shape, like.dtype))
        self.known.update((id(layer), found) for layer in layers)
        return found

    def _call(
        self, operator: Operator, args: tuple[Pattern, ...] | None, wanted: Wanted, part: Pattern, hint: Type | None
    ) -> ir.Expr:
        entry = entry_of(operator)
        recipe = self.draw.recipes.get(operator.name)
        free = recipe is not None and recipe.free
        # A hint is the type of the result, and so the shape of the data of elementwise operators alone.
        if isinstance(hint, TensorType) and not free and (recipe is None or operator.elementwise):
            around: tuple[int, ...] | None = _static(hint)
        else:
            around = recipe.shape if recipe is not None else None
        shape = around if self.draw.shape is None else self.draw.shape
        count = operator.arity[0] if args is None else len(args)
        draft, element = self._example(operator, entry, {} if shape is None else {0: shape}, None, 0, count)
        inner = self._inner(operator, args or (), None if free else draft)
        reason = f"no example of {operator.name} has that number of arguments"
        fields = dataclasses.fields(operator.attrs)
        required = {item.name for item in fields if item.default is MISSING and item.default_factory is MISSING}
        for turn in range(1 if free else TURNS):
            own = recipe.own if recipe is not None and turn == 0 else turn % 2 == 1
            if turn or inner:
                given = {number: _static(expr.type) for number, expr in inner.items() if isinstance(expr.type, TensorType)}
                first = next(iter(inner.values())).type if inner else None
                given = given or ({} if shape is None else {0: shape})
                draft, element = self._example(operator, entry, given, first, turn, count)
            if args is not None and len(draft.inputs) != len(args):
                continue
            marks = len(self.params), dict(self.known)
            exprs = self._arguments(draft, args, inner)
            second = wanted.second(exprs[0]) if wanted.second is not None else None
            if second is not None:
                exprs[1] = ir.constant(second)
            # Every other time, use the operator's default attributes where it has them.
            attrs = {name: value for name, value in draft.attrs.items() if not own or name in required} | dict(wanted.attrs)
            attrs |= self._declared_rounding(operator, attrs, wanted)
            plain = self.draw.mix in ("plain", "full", "small")
            if plain and operator in BOUNDS and (self.draw.number % 4 < 3 or self.draw.mix != "plain"):
                exprs, attrs = _bounded(operator, exprs, attrs)
            try:
                call = self._accumulated(operator(*exprs, **attrs))
            except InlaidError as error:
                reason = str(error)
            else:
                exprs = list(call.args)
                unlike = not free and turn < TURNS // 2 and hint is not None and _element(call.type) != _element(hint)
                fits = not unlike and self._allowed(call.type) and match(part, call) is not None
                if fits and plain and operator in (ops.multiply_fixed, ops.requantize):
                    exprs = self._scaled(exprs, attrs.get("axis", 0), attrs.get("rounding", UP))
                    call = operator(*exprs, **attrs)
                    fits = match(part, call) is not None
                if fits:
                    self._note(call)
                    data = _static(exprs[0].type) if exprs and isinstance(exprs[0].type, TensorType) else None
                    chosen, counts = zip(*self.chosen, strict=True) if self.chosen else ((), ())
                    self.recipes[operator.name] = Recipe(element, chosen, counts, own, data)
                    return call
                reason = f"{operator.name} of {', '.join(repr(expr.type) for expr in exprs)} does not match"
            del self.params[marks[0] :], self.inputs[marks[0] :]
            self.known = marks[1]
        raise Stuck(reason)

    def _inner(self, operator: Operator, args: tuple[Pattern, ...], draft: Example | None) -> dict[int, ir.Expr]:
        """Return the arguments that are computed or already known, by number, with the types of `draft` if possible. A dequantized
        bias comes last, since its scale is the scale of the product to which it is added."""
        order = sorted(range(len(args)), key=lambda number: _dequantizes(args[number]))
        found: dict[int, ir.Expr] = {}
        for number in order:
            core, _, layers = _opened(args[number])
            if not isinstance(core, (Wildcard, Kind)) or any(id(layer) in self.known for layer in layers):
                hint = _type_of(draft, number) if draft is not None and number < len(draft.inputs) else None
                steps = [self.products[id(other)] for other in found.values() if id(other) in self.products]
                found[number] = self.build(args[number], hint)
                if operator.name in ("add", "sub") and steps and _dequantizes(args[number]):
                    found[number] = _rescaled(found[number], steps[0])
        return dict(sorted(found.items()))

    def _example(
        self,
        operator: Operator,
        entry: Entry | None,
        given: Mapping[int, tuple[int, ...]],
        first: Type | None,
        turn: int,
        count: int,
    ) -> tuple[Example, str]:
        """Draw an example of an operator. Returns the example and its element type. Other than canonical operators get `count`
        equal arguments."""
        recipe = self.draw.recipes.get(operator.name) if turn == 0 else None
        plain = self.draw.number == 0 and turn == 0
        again = iter(recipe.chosen if recipe is not None else itertools.repeat(0) if plain else ())
        self.chosen.clear()
        if recipe is not None and recipe.example is not None:
            return recipe.example, recipe.element

        def draw(count: int) -> int:
            other = self.random.randrange(count)
            chosen = next(again, 0 if recipe is not None else other) % count
            self.chosen.append((chosen, count))
            return chosen

        choices = self._choices(draw, given)
        if entry is None:
            shape = next(iter(given.values()), (3, 5))
            element = _element(first) or self.draw.element
            return Example(operator, tuple(choices.array(shape, element) for _ in range(count))), element
        options = [name for name in entry.dtypes if name in self.draw.dtypes] or list(entry.dtypes)
        likely = recipe.element if recipe is not None else _element(first) or self.draw.element
        sure = likely in options and turn < TURNS - TURNS // 4
        element = likely if sure else options[0 if plain else self.random.randrange(len(options))]
        try:
            return entry.example(choices, element), element
        except Unfit:
            return entry.example(self._choices(draw, {}), element), element

    def _choices(self, draw: Callable[[int], int], given: Mapping[int, tuple[int, ...]]) -> Choices:
        rank = IMAGES if self.draw.number % 2 else None
        tiles, deep = self.draw.target.tiles, deepest(self.draw.target.requantization.accumulator_bits)
        return Choices(draw, self.draw.mix, SIZES, rank, given, self.draw.edges, binary=True, tiles=tiles, deep=deep)

    def _arguments(self, draft: Example, args: tuple[Pattern, ...] | None, inner: Mapping[int, ir.Expr]) -> list[ir.Expr]:
        found: list[ir.Expr] = []
        for number, value in enumerate(draft.inputs):
            if number in inner:
                found.append(inner[number])
                continue
            core, wanted, layers = _opened(args[number] if args is not None else Wildcard())
            known = next((self.known[id(layer)] for layer in layers if id(layer) in self.known), None)
            if known is None:
                known = self._leaf(core, wanted, value, _type_of(draft, number))
                self.known.update((id(layer), known) for layer in layers)
            found.append(known)
        return found

    def _accumulated(self, call: ir.Call) -> ir.Call:
        """Return a sum whose weights or bias fit the target's accumulator; other calls are unchanged."""
        bits, constants = self.draw.target.requantization.accumulator_bits, dict[int, ir.Expr]()
        if is_narrow(call, bits):
            constants[1] = fitted_weights(call, bits)
        elif call.callee in (ops.add, ops.sub) and any(id(arg) in self.sums for arg in call.args):
            most = greatest_bias(bits)
            for number, arg in enumerate(call.args):
                if isinstance(arg, ir.Constant):
                    constants[number] = ir.constant(arg.data.clip(-most, most))
        if constants:
            args = (constants.get(number, arg) for number, arg in enumerate(call.args))
            call = ir.call(call.callee, tuple(args), call.attrs)
            self.sums[id(call)] = call
        return call

    def _declared_rounding(self, operator: Operator, attrs: Mapping[str, Any], wanted: Wanted) -> dict[str, str]:
        """Replace a rounding that the target does not declare, since its rules would reject most examples with several factors."""
        if operator is not ops.multiply_fixed or "rounding" in wanted.attrs:
            return {}
        declared = [each for each in ROUNDINGS if each in self.draw.target.requantization.roundings]
        if not declared or attrs.get("rounding", UP) in declared:
            return {}
        return {"rounding": declared[self.draw.number % len(declared)]}

    def _scaled(self, exprs: list[ir.Expr], axis: int, rounding: str) -> list[ir.Expr]:
        """Make the arguments of a requantization. The factors scale sums to 8 bits, since saturation would hide rounding, and scale
        some sums to a value halfway between two integers."""
        total, factor, *rest = exprs
        *_, last = exprs
        if not isinstance(factor, ir.Constant) or not isinstance(last, ir.Constant):
            return exprs
        try:
            sums = np.asarray(evaluate(ir.function(tuple(self.params), total), self.inputs))
        except KernelFault:
            return exprs
        most = float(np.abs(sums.astype(np.float64)).max(initial=0))
        fits = not factor.data.ndim or sums.shape[axis : axis + 1] == factor.data.shape
        if not most or not fits:
            return exprs
        if factor.data.dtype == np.float32:
            places = 7 - math.frexp(most * float(factor.data.max()))[1]
            return [total, ir.constant(np.ldexp(factor.data, places).astype(np.float32)), *rest]
        requantization = self.draw.target.requantization
        least, greatest = requantization.shifts or SHIFTS
        if self.draw.mix == "small" and self.draw.aim == "roundings" and least <= 0 <= greatest:
            # Half of each sum: odd sums are ties, which larger sums times a factor of many bits are not.
            return [total, ir.constant(np.full_like(factor.data, 1 << 30)), ir.constant(np.zeros_like(last.data))]
        shifts = last.data + (7 - math.frexp(most)[1] - int(last.data.max()))
        shifts = np.clip(shifts, max(least, SHIFTS[0]), min(greatest, SHIFTS[1])).astype(np.int32)
        spread = [-1 if at == axis and factor.data.ndim else 1 for at in range(sums.ndim)]
        seeds = [self.random.randrange(1 << 16) for _ in range(FACTORS)]
        others = [np.random.default_rng(seed).integers(1 << 30, 1 << 31, factor.data.shape) for seed in seeds]
        unused = (1 << (FRACTION - requantization.multiplier_bits)) - 1
        near = [np.full(factor.data.shape, option) for option in near_ties(sums, int(shifts.max()))]
        options = [factor.data.astype(np.int64), np.full(factor.data.shape, 1 << 30), *others, *near]
        options = [option & ~unused for option in options]

        def worth(option: Array) -> tuple[int, int, int]:
            modes, ties, narrow = distinguished(sums, option.reshape(spread), shifts.reshape(spread), rounding in SINGLE)
            return (narrow, modes, ties) if self.draw.aim == "multipliers" else (modes, ties, narrow)

        best = max(options, key=worth)
        return [total, ir.constant(best.astype(np.int32)), ir.constant(shifts)]

    def _leaf(self, core: Pattern, wanted: Wanted, value: Any, type_: Type) -> ir.Expr:
        """Make a parameter or a constant."""
        if isinstance(type_, TensorType) and isinstance(value, np.ndarray):
            value = self._as_wanted(value, wanted)
            type_ = TensorType(value.shape, from_numpy(value.dtype))
        constant = core.kind is ir.Constant if isinstance(core, Kind) else self.draw.constant and bool(self.params)
        if constant and isinstance(value, np.ndarray):
            return ir.constant(value)
        param = ir.var(f"x{len(self.params)}", type_)
        self.params.append(param)
        self.inputs.append(value)
        return param

    def _as_wanted(self, value: Array, wanted: Wanted) -> Array:
        if isinstance(wanted.type, TensorType):
            return self._values(_static(wanted.type), wanted.type.dtype.name)
        if wanted.dtypes and from_numpy(value.dtype).name not in wanted.dtypes:
            value = self._values(value.shape, wanted.dtypes[self.random.randrange(len(wanted.dtypes))])
        if wanted.ranks and value.ndim not in wanted.ranks:
            rank = wanted.ranks[0]
            if value.size == 0:
                value = np.ones((1,) * rank, value.dtype)  # it may be a scale
            more = (1,) * (rank - value.ndim)
            value = value.reshape(more + value.shape) if more else value[(0,) * (value.ndim - rank)]
        if wanted.value is not None:
            value = np.full(value.shape if wanted.ranks else (), wanted.value).astype(value.dtype)
        return np.asarray(value)

    def _values(self, shape: Sequence[int], element: str) -> Array:
        mix = "special" if self.draw.mix == "edge" and dtype(element).is_float and not self.draw.edges else self.draw.mix
        return random_array(self.random.randrange(1 << 16), shape, element, mix=mix)

    def _allowed(self, type_: Type) -> bool:
        """Test whether a call may have a type. Comparisons inside a composite are bool whatever the target stores."""
        return not isinstance(type_, TensorType) or type_.dtype.name in (*self.draw.dtypes, "bool")

    def _note(self, call: ir.Call) -> None:
        """Record the scale of a product of dequantized values."""
        scales = [arg.args[1] for arg in call.args if isinstance(arg, ir.Call) and arg.callee is ops.dequantize]
        if call.callee in (ops.conv, ops.matmul, ops.mul) and len(scales) == 2:
            first, second = (scale.data for scale in scales if isinstance(scale, ir.Constant))
            self.products[id(call)] = (first * second).astype(first.dtype)


def _bounded(operator: Operator, exprs: list[ir.Expr], attrs: dict[str, Any]) -> tuple[list[ir.Expr], dict[str, Any]]:
    """Return the arguments and attributes of an operator that clamps integers, with bounds that keep most 8-bit values, since
    tighter bounds would hide errors in the values."""
    data = exprs[0].type
    if not isinstance(data, TensorType) or not data.dtype.is_int:
        return exprs, attrs
    low, high = (20, 220) if data.dtype.name == "uint8" else (-110, 100)
    if operator is ops.clip:
        return exprs, {**attrs, "minimum": float(low), "maximum": float(high)}
    bound = exprs[1]
    if not isinstance(bound, ir.Constant) or bound.data.size != 1 or from_numpy(bound.data.dtype) != data.dtype:
        return exprs, attrs
    value = np.full_like(bound.data, low if operator is ops.maximum else high)
    return [exprs[0], ir.constant(value)], attrs


def _opened(part: Pattern) -> tuple[Pattern, Wanted, list[Pattern]]:
    """Unwrap a pattern from names and predicates. Returns the inner pattern, the wrappers' requirements, and all layers."""
    layers, wanted = [part], Wanted()
    while isinstance(part, (Named, Where)):
        if isinstance(part, Where):
            wanted = _both(wanted, part.wanted)
        part = part.inner
        layers.append(part)
    return part, wanted, layers


def _both(first: Wanted, second: Wanted) -> Wanted:
    return Wanted(
        {**second.attrs, **first.attrs},
        first.type or second.type,
        first.dtypes or second.dtypes,
        first.ranks or second.ranks,
        second.value if first.value is None else first.value,
        first.second or second.second,
    )


def _operator(item: str | Operator) -> Operator:
    found = ops.TABLE.get(item) if isinstance(item, str) else item
    if found is None:
        raise Stuck(f"{item} is not an operator of Inlaid")
    return found


def _dequantizes(part: Pattern) -> bool:
    core, _, _ = _opened(part)
    return isinstance(core, (OpPattern, CallPattern)) and core.operators[0] in ("dequantize", ops.dequantize)


def _rescaled(expr: ir.Expr, step: Array) -> ir.Expr:
    """Replace the scale of a dequantization by `step`, a scalar or one scale per original scale."""
    assert isinstance(expr, ir.Call)
    scale = expr.args[1]
    if not isinstance(scale, ir.Constant) or step.size not in (1, scale.data.size):
        return expr
    same = ir.constant(np.resize(step, scale.data.shape).astype(scale.data.dtype))
    return ir.rebuild(expr, tuple(same if child is scale else child for child in ir.children(expr)))


def facts(function: ir.Function, name: str, target: Capabilities = ANY_TARGET) -> Values | None:
    """Return the properties of the first operator named `name` in a function, for the tiles and accumulators of a target; None if
    it is not in the corpus."""
    calls = (expr for expr in ir.post_order(function.body) if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator))
    call = next((call for call in calls if call.callee.name == name), None)  # type: ignore[union-attr]
    entry = None if call is None or not isinstance(call.callee, Operator) else entry_of(call.callee)
    if call is None or entry is None:
        return None
    types = [arg.type for arg in call.args if isinstance(arg.type, TensorType)]
    inputs = tuple(np.broadcast_to(np.zeros((), type_.dtype.numpy), _static(type_)) for type_ in types)
    attrs = {item.name: getattr(call.attrs, item.name) for item in dataclasses.fields(call.attrs)}
    deep = deepest(target.requantization.accumulator_bits)
    return facts_of(entry, Example(entry.operator, inputs, attrs, tiles=target.tiles, deep=deep))


def given_attrs(call: ir.Call) -> dict[str, Any]:
    """Return the attributes of a call that differ from its operator's defaults."""
    found = {}
    for item in dataclasses.fields(call.attrs):
        value = getattr(call.attrs, item.name)
        usual = item.default if item.default_factory is MISSING else item.default_factory()
        if value != usual:
            found[item.name] = value
    return found


def _type_of(example: Example, number: int) -> Type:
    value = example.inputs[number]
    return example.types[number] if number in example.types else TensorType(value.shape, from_numpy(value.dtype))


def _static(type_: TensorType) -> tuple[int, ...]:
    """Replace each symbolic dimension of a shape by a number, the same number for equal names."""
    known: dict[str, int] = {}
    sizes = itertools.cycle(SIZES)
    return tuple(dim if isinstance(dim, int) else known.setdefault(repr(dim), next(sizes)) for dim in type_.shape)


def _element(type_: Type | None) -> str:
    return type_.dtype.name if isinstance(type_, TensorType) else ""
