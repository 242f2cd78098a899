"""Examples of composites, made from a pattern: operators, attributes, shapes, element types and constants for each of its parts, so
that types can be inferred and the pattern matches.

Operators are bound from the innermost out, each to an example of the corpus that fits the shapes of the arguments that it has
already; a dry run from the outside in says what is wanted of them. What does not fit is drawn again, a few times.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.conformance.corpus import Choices, Entry, Example, Unfit, entry_of
from inlaid.conformance.values import Array, Mix, random_array
from inlaid.errors import InlaidError
from inlaid.graph import ir
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
from inlaid.types import TensorType, Type, dtype, from_numpy

TURNS = 16
"""How often an example of an operator is drawn until it fits."""
SIZES = (3, 5, 4, 1, 7, 2)
"""Extents: many examples are made until one fits."""
IMAGES = 4
"""The rank that every other example has where it may: much hardware takes images alone."""


class Stuck(Exception):
    """Nothing was found that fits, and where."""


@dataclass(frozen=True)
class Recipe:
    """How an example of an operator was drawn: its element type, what was chosen, whether with the operator's own attributes, and
    the shape of its data."""

    element: str
    chosen: tuple[int, ...]
    own: bool
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Draw:
    """Which example of a pattern is made: `number` 0 is the plain one, each other is drawn at random, the same each time. `element`
    is the element type that it begins with, `dtypes` are those that may be in it. Parts that may be anything are `constant` but for
    the first. `mix` is what values are drawn from, without the edges of floats unless there are `edges`. `recipes`, by name of an
    operator, are tried first."""

    number: int
    element: str
    dtypes: Sequence[str]
    constant: bool = False
    mix: Mix = "plain"
    edges: bool = True
    recipes: Mapping[str, Recipe] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A function that a pattern matches at its body, what it is run on, and how its operators were drawn, by name."""

    function: ir.Function
    inputs: tuple[Any, ...]
    recipes: Mapping[str, Recipe] = field(default_factory=dict)

    def __str__(self) -> str:
        names = {id(param): repr(param.type) for param in self.function.params}
        for expr in ir.post_order(self.function.body):
            args = [names[id(child)] for child in ir.children(expr)]
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
                names[id(expr)] = f"{expr.callee.name}({', '.join(args)})"
            elif isinstance(expr, ir.Constant):
                names[id(expr)] = f"constant {expr.type!r}"
            elif id(expr) not in names:
                names[id(expr)] = f"({', '.join(args)})"
        return names[id(self.function.body)]


def make(pattern: Pattern, draw: Draw) -> Made:
    """An example of a pattern without alternatives. Raises `Stuck`, and whatever a predicate of the pattern raises."""
    attempt = _Attempt(draw)
    with np.errstate(all="ignore"):
        body = attempt.build(pattern)
    return Made(ir.function(tuple(attempt.params), body), tuple(attempt.inputs), attempt.recipes)


def drawn(function: ir.Function, mix: Mix) -> Made:
    """A function on random values."""
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
    """The scales of products of dequantised values, by id of the expression."""
    recipes: dict[str, Recipe] = field(default_factory=dict)
    chosen: list[int] = field(default_factory=list)
    """What was chosen for the last example."""

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.draw.number} {self.draw.element}")

    def build(self, part: Pattern, hint: Type | None = None) -> ir.Expr:
        """What a part stands for, of the hinted type if it can be so."""
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
        shape = _static(hint) if isinstance(hint, TensorType) else recipe.shape if recipe is not None else None
        count = operator.arity[0] if args is None else len(args)
        draft, element = self._example(operator, entry, {} if shape is None else {0: shape}, None, 0, count)
        inner = self._inner(operator, args or (), draft)
        reason = f"no example of {operator.name} has so many arguments"
        fields = dataclasses.fields(operator.attrs)
        required = {item.name for item in fields if item.default is MISSING and item.default_factory is MISSING}
        for turn in range(TURNS):
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
            try:
                # Every other time with the attributes that the operator has by itself, as far as it has some.
                attrs = {name: value for name, value in draft.attrs.items() if not own or name in required}
                call = operator(*exprs, **{**attrs, **wanted.attrs})
            except InlaidError as error:
                reason = str(error)
            else:
                unlike = turn < TURNS // 2 and hint is not None and _element(call.type) != _element(hint)
                if not unlike and self._allowed(call.type) and match(part, call) is not None:
                    self._note(call)
                    data = _static(exprs[0].type) if exprs and isinstance(exprs[0].type, TensorType) else None
                    self.recipes[operator.name] = Recipe(element, tuple(self.chosen), own, data)
                    return call
                reason = f"{operator.name} of {', '.join(repr(expr.type) for expr in exprs)} does not match"
            del self.params[marks[0] :], self.inputs[marks[0] :]
            self.known = marks[1]
        raise Stuck(reason)

    def _inner(self, operator: Operator, args: tuple[Pattern, ...], draft: Example) -> dict[int, ir.Expr]:
        """The arguments that are computed, or known already, by number. A dequantised bias comes last: its scale is that of the
        product that it is added to."""
        order = sorted(range(len(args)), key=lambda number: _dequantises(args[number]))
        found: dict[int, ir.Expr] = {}
        for number in order:
            core, _, layers = _opened(args[number])
            if not isinstance(core, (Wildcard, Kind)) or any(id(layer) in self.known for layer in layers):
                hint = _type_of(draft, number) if number < len(draft.inputs) else None
                steps = [self.products[id(other)] for other in found.values() if id(other) in self.products]
                found[number] = self.build(args[number], hint)
                if operator.name in ("add", "sub") and steps and _dequantises(args[number]):
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
        """An example of an operator, and its element type. One that is not canonical has `count` arguments, all alike."""
        recipe = self.draw.recipes.get(operator.name) if turn == 0 else None
        plain = self.draw.number == 0 and turn == 0
        again = iter(recipe.chosen if recipe is not None else itertools.repeat(0) if plain else ())
        self.chosen.clear()

        def draw(count: int) -> int:
            self.chosen.append(next(again, self.random.randrange(count)) % count)
            return self.chosen[-1]

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
        return Choices(draw, self.draw.mix, SIZES, rank, given, self.draw.edges, binary=True)

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

    def _leaf(self, core: Pattern, wanted: Wanted, value: Any, type_: Type) -> ir.Expr:
        """Something from outside, or a constant."""
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
                value = np.ones((1,) * rank, value.dtype)  # It may be a scale.
            more = (1,) * (rank - value.ndim)
            value = value.reshape(more + value.shape) if more else value[(0,) * (value.ndim - rank)]
        if wanted.value is not None:
            value = np.full((), wanted.value).astype(value.dtype)
        return np.asarray(value)

    def _values(self, shape: Sequence[int], element: str) -> Array:
        mix = "special" if self.draw.mix == "edge" and dtype(element).is_float and not self.draw.edges else self.draw.mix
        return random_array(self.random.randrange(1 << 16), shape, element, mix=mix)

    def _allowed(self, type_: Type) -> bool:
        return not isinstance(type_, TensorType) or type_.dtype.name in self.draw.dtypes

    def _note(self, call: ir.Call) -> None:
        """Keep the scale of a product of dequantised values."""
        scales = [arg.args[1] for arg in call.args if isinstance(arg, ir.Call) and arg.callee is ops.dequantize]
        if call.callee in (ops.conv, ops.matmul, ops.mul) and len(scales) == 2:
            first, second = (scale.data for scale in scales if isinstance(scale, ir.Constant))
            self.products[id(call)] = (first * second).astype(first.dtype)


def _opened(part: Pattern) -> tuple[Pattern, Wanted, list[Pattern]]:
    """What is inside of names and predicates, what those ask for, and all of them."""
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
    )


def _operator(item: str | Operator) -> Operator:
    found = ops.TABLE.get(item) if isinstance(item, str) else item
    if found is None:
        raise Stuck(f"{item} is no operator of Inlaid's")
    return found


def _dequantises(part: Pattern) -> bool:
    core, _, _ = _opened(part)
    return isinstance(core, (OpPattern, CallPattern)) and core.operators[0] in ("dequantize", ops.dequantize)


def _rescaled(expr: ir.Expr, step: Array) -> ir.Expr:
    """A dequantisation by another scale: one, or as many as there were."""
    assert isinstance(expr, ir.Call)
    scale = expr.args[1]
    if not isinstance(scale, ir.Constant) or step.size not in (1, scale.data.size):
        return expr
    same = ir.constant(np.resize(step, scale.data.shape).astype(scale.data.dtype))
    return ir.rebuild(expr, tuple(same if child is scale else child for child in ir.children(expr)))


def _type_of(example: Example, number: int) -> Type:
    value = example.inputs[number]
    return example.types[number] if number in example.types else TensorType(value.shape, from_numpy(value.dtype))


def _static(type_: TensorType) -> tuple[int, ...]:
    """A shape whose symbolic dimensions are numbers, equal ones where they have the same name."""
    known: dict[str, int] = {}
    sizes = itertools.cycle(SIZES)
    return tuple(dim if isinstance(dim, int) else known.setdefault(repr(dim), next(sizes)) for dim in type_.shape)


def _element(type_: Type | None) -> str:
    return type_.dtype.name if isinstance(type_, TensorType) else ""
