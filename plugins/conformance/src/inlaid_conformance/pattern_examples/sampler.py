"""Draws examples of single operators, from the corpus or by a recipe."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from inlaid.graph.operator import Operator
from inlaid_conformance.accumulators import deepest
from inlaid_conformance.corpus import Choices, Entry, Example, Unfit, find_entry
from inlaid_conformance.pattern_examples.draws import Draw, Recipe
from inlaid_conformance.pattern_examples.shapes import SIZES

ATTEMPTS = 16
"""Greatest number of examples drawn for an operator until one fits."""
IMAGE_RANK = 4
"""Rank of every second example if possible, since much hardware supports only images."""

Shapes = Mapping[int, tuple[int, ...]]
"""Shapes of operands, by number."""


@dataclass(frozen=True)
class Sample:
    """An example of an operator, its element type, and the choices by which it was drawn, each with its number of options."""

    example: Example
    element: str
    choices: tuple[tuple[int, int], ...] = ()


class Sampler:
    """Draws examples of operators for a pattern."""

    def __init__(self, draw: Draw, source: random.Random) -> None:
        self._draw = draw
        self._random = source

    def sample(self, operator: Operator, shapes: Shapes, element: str, attempt: int, arity: int) -> Sample:
        """Draw an example of an operator whose operands have `shapes` and, if possible, the element type `element`. Operators that
        are not canonical get `arity` equal operands."""
        recipe = self._draw.recipes.get(operator.name) if attempt == 0 else None
        if recipe is not None and recipe.example is not None:
            return Sample(recipe.example, recipe.element)
        plain = self._draw.number == 0 and attempt == 0
        choices = _RecordedChoices(self._random, _numbers(recipe, plain))
        entry = find_entry(operator)
        if entry is None:
            return self._sample_of_vendor(operator, shapes, element, arity, choices)
        likely = recipe.element if recipe is not None else element or self._draw.element
        element = self._element(entry, likely, attempt, plain)
        return Sample(self._example(entry, element, shapes, choices), element, tuple(choices.record))

    def _sample_of_vendor(self, operator: Operator, shapes: Shapes, element: str, arity: int, choices: _RecordedChoices) -> Sample:
        source, shape = self._choices(choices.choose, shapes), next(iter(shapes.values()), (3, 5))
        element = element or self._draw.element
        operands = tuple(source.array(shape, element) for _ in range(arity))
        return Sample(Example(operator, operands), element, tuple(choices.record))

    def _element(self, entry: Entry, likely: str, attempt: int, plain: bool) -> str:
        """Choose an element type that operator and target support: the likely one, but in the last attempts any."""
        options = [name for name in entry.dtypes if name in self._draw.dtypes] or list(entry.dtypes)
        if likely in options and attempt < ATTEMPTS - ATTEMPTS // 4:
            return likely
        return options[0 if plain else self._random.randrange(len(options))]

    def _example(self, entry: Entry, element: str, shapes: Shapes, choices: _RecordedChoices) -> Example:
        try:
            return entry.example(self._choices(choices.choose, shapes), element)
        except Unfit:
            return entry.example(self._choices(choices.choose, {}), element)

    def _choices(self, choose: Callable[[int], int], shapes: Shapes) -> Choices:
        draw = self._draw
        rank = IMAGE_RANK if draw.number % 2 else None
        tiles, deep = draw.target.tiles, deepest(draw.target.requantization.accumulator_bits)
        return Choices(choose, draw.mix, SIZES, rank, shapes, draw.edges, binary=True, tiles=tiles, deep=deep)


class _RecordedChoices:
    """Chooses `numbers` in turn, and random ones after the last. `record` has each choice with its number of options."""

    def __init__(self, source: random.Random, numbers: Iterator[int]) -> None:
        self._random = source
        self._numbers = numbers
        self.record: list[tuple[int, int]] = []

    def choose(self, count: int) -> int:
        """Choose a number below `count`."""
        # A random number is drawn in any case: an example with a recipe leaves the random source in the same state as one without.
        number = next(self._numbers, self._random.randrange(count)) % count
        self.record.append((number, count))
        return number


def _numbers(recipe: Recipe | None, plain: bool) -> Iterator[int]:
    """Return the choices of a recipe, then zeros; zeros in the plain example; else none."""
    if recipe is not None:
        return itertools.chain(recipe.choices, itertools.repeat(0))
    return itertools.repeat(0) if plain else iter(())
