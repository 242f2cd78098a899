"""Searches for examples of an operator that a target's rules accept, and selects a few that cover the accepted values.

A vector of choices determines an example of the corpus; neighbors of a vector differ in one choice. The search continues from
accepted vectors with a new value. Until one is found, it continues from vectors rejected for a new reason: rules test one condition
after another, so a new reason is a step towards acceptance. Nothing is compiled. Composites are searched in the same way, one
operator at a time.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np

from inlaid.graph.pattern import pattern_operators
from inlaid.partitioning.rules import ANY
from inlaid.plugins import AcceptIf, Reject, Tiles
from inlaid_conformance.corpus import CONSTANTS, FILLS, Choices, Entry, Example, Form, Unfit
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.values import MIXES, Mix
from inlaid_runtime import arith
from inlaid_runtime.errors import InlaidError

TRIES = 300
"""Greatest number of vectors tried per element type."""
STALE = 60
"""A search ends after this many consecutive vectors that add no value or reason."""
REUSED = 24
"""Number of accepted vectors of one element type that are tried for the other element types."""
PAIRED = 4
"""Number of additional examples that cover pairs of values."""
MAX_OPTIONS = 64
"""A choice with more options than this is a seed of random values."""
EXACT = 7
"""Each integer up to this magnitude is a class of values."""
SHAPE_ATTRS = frozenset(("shape", "begin", "end", "dims", "keys", "values"))
"""Attributes that state sizes of data, which differ in any two examples."""
FORM, ELEMENT = "arguments", "element type"

Vector = tuple[int, ...]
Values = Mapping[str, str]
"""Properties of an example by name, such as `strides`: `all 2`, or `groups`: `depthwise`."""


class HasValues(Protocol):
    """Interface of an example found by a search."""

    @property
    def values(self) -> Values:
        """The properties of the example."""
        ...


T = TypeVar("T", bound=HasValues)


@dataclass(frozen=True)
class Trial:
    """An accepted example: its choices and element type, its form, and its properties."""

    vector: Vector
    element: str
    form: Form
    values: Values

    def with_mix(self, entry: Entry, mix: Mix, tiles: Tiles) -> Form | None:
        """Return the same example with another mix of data; None if the mix has no example of its form."""
        forms = _example(entry, self.element, self.vector, mix, tiles)[0]
        return next((form for form in forms if form.kind == self.form.kind), None)

    def mixes(self) -> tuple[Mix, ...]:
        """Return the mixes of data to try besides plain ones: those that do not change the kernel, and the one that fills an
        accumulator."""
        mixes = MIXES[1:] if self.form.kind != CONSTANTS else ()
        return (*mixes, "full") if FILLS in self.values.values() else mixes


@dataclass(frozen=True)
class SearchResult:
    """Result of a search: the accepted examples, and the counts of rejections by reason."""

    trials: tuple[Trial, ...]
    reasons: Counter[str]


def example_values(entry: Entry, form: Form, element: str) -> Values:
    """Return the properties of an example that a target may treat differently."""
    example = form.example
    if any(np.size(value) == 0 for value in example.inputs if isinstance(value, np.ndarray)):
        return {ELEMENT: element, "data": "empty"}  # an empty example does not exercise the computation
    return {ELEMENT: element, FORM: form.kind or "all given when it runs", **attribute_values(entry, example)}


def attribute_values(entry: Entry, example: Example) -> Values:
    """Return the part of `example_values` that comes from attributes and facets."""
    attr_classes = {name: _class(value) for name, value in example.attrs.items() if name not in SHAPE_ATTRS}
    return {**attr_classes, **entry.facets(example)}


def _class(value: object) -> str:
    """Return the class of an attribute's value."""
    if isinstance(value, tuple):
        half = len(value) // 2
        if len(set(value)) <= 1:
            return f"all {_class(value[0])}" if value else "none"
        return "by axis" if value[:half] == value[half:] else "mixed"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return "fractional" if value == value and abs(value) != float("inf") else str(value)
    return str(value) if abs(value) <= EXACT else "large"


def accepted(tested: TargetUnderTest, form: Form) -> str | None:
    """Return the reason why the target rejects an example, None if it accepts the example. If the target accepts it under a
    condition, the condition must hold for the example's sizes."""
    verdict = tested.verdict(form.function)
    if isinstance(verdict, Reject):
        return verdict.reason
    if isinstance(verdict, AcceptIf):
        variables = arith.free_vars(verdict.constraint)
        sizes: dict[arith.Expr, int] = {size: int(size.name[1:]) for size in variables if isinstance(size, arith.SizeVar)}
        if not arith.evaluate(verdict.constraint, sizes):
            return "it is accepted under a condition that does not hold"
    return None


def may_claim(tested: TargetUnderTest, name: str) -> bool:
    """Test whether a rule may accept the operator."""
    by_name = tested.candidate.by_name
    return name in by_name or ANY in by_name or name in tested.once(_mentioned)


def _mentioned(tested: TargetUnderTest) -> frozenset[str]:
    """Return the operators named by patterns of composites."""
    patterns = (pattern for _, pattern in tested.candidate.composites)
    return frozenset(item if isinstance(item, str) else item.name for pattern in patterns for item in pattern_operators(pattern))


@functools.lru_cache(maxsize=256)
def search(tested: TargetUnderTest, entry: Entry) -> SearchResult:
    """Search for accepted examples of an operator, for every element type that the target declares. Deterministic."""
    reasons: Counter[str] = Counter()
    trials: list[Trial] = []
    names = [name for name in entry.dtypes if name in tested.capabilities.dtypes]
    start: list[Vector] = []
    for element in names or entry.dtypes[:1]:
        explorer = Explorer(
            partial(_trials, entry, element, tested.capabilities.tiles),
            lambda trial: accepted(tested, trial.form),
            f"{entry.operator.name} {element}",
            reasons,
        )
        explorer.run(start)
        trials += explorer.trials
        start = start or [*dict.fromkeys(trial.vector for trial in selected(trials, (), 0))][:REUSED]
    return SearchResult(tuple(trials), reasons)


class Explorer(Generic[T]):
    """A search over vectors of choices. `make` makes examples from a vector, with the number of options of each choice; `refuse`
    returns the reason why an example is rejected; `reasons` counts them. The search starts at the first of `origins` that gives
    examples."""

    def __init__(
        self,
        make: Callable[[Vector], tuple[Sequence[T], Sequence[int]]],
        refuse: Callable[[T], str | None],
        seed: str,
        reasons: Counter[str],
        tries: int = TRIES,
        origins: Sequence[Vector] = ((),),
    ) -> None:
        self._make, self._refuse, self._tries, self._origins = make, refuse, tries, origins
        self._random = random.Random(seed)
        self._reasons = reasons
        self._features: set[tuple[str, str]] = set()
        self._visited_vectors: set[Vector] = set()
        self._counts: dict[
            Vector, Sequence[int]
        ] = {}  # of vectors that added a value or reason; of accepted ones only, once there are any
        self._waiting: deque[Iterator[Vector]] = deque()
        self.trials: list[T] = []

    def run(self, start: Sequence[Vector]) -> None:
        """Try the start vectors; stop if any is accepted. Otherwise search from rejected vectors, then from the first accepted."""
        for vector in start:
            self._try(vector)
        if self.trials:
            return
        stale = 0
        for number in range(self._tries):
            stale += 1
            if self._try(self._next(number)):
                stale = 0
            if stale > STALE:
                return

    def _next(self, number: int) -> Vector:
        """Return the next vector to try: a neighbor of the earliest vector in the queue. Until a vector is accepted, the vectors in
        the queue take turns. Every third vector is random: a vector of `_counts` with up to three changed choices."""
        if number % 3 < 2 or not self._counts:
            while self._waiting:
                vector = next(self._waiting[0], None)
                if vector is not None:
                    if not self.trials:
                        self._waiting.rotate(-1)  # a new reason may be a step away from acceptance, too
                    return vector
                self._waiting.popleft()
        if not self._counts:
            return self._origins[min(number, len(self._origins) - 1)]
        vector = self._random.choice([*self._counts])
        for _ in range(self._random.randint(1, 3)):
            vector = self._changed(vector)
        return vector

    def _changed(self, vector: Vector) -> Vector:
        counts = self._counts.get(vector) or next(iter(self._counts.values()))
        positions = [position for position, count in enumerate(counts) if 1 < count <= MAX_OPTIONS]
        if not positions:
            return vector
        position = self._random.choice(positions)
        return _put(vector, position, self._random.randrange(counts[position]))

    def _neighbors(self, vector: Vector) -> Iterator[Vector]:
        counts = self._counts[vector]
        steps = [(position, other) for position, count in enumerate(counts) if count <= MAX_OPTIONS for other in range(count)]
        self._random.shuffle(steps)
        return (_put(vector, position, other) for position, other in steps)

    def _try(self, vector: Vector) -> bool:
        """Judge the examples of a vector. Returns True if an example is accepted with a new value, or rejected for a new reason."""
        if vector in self._visited_vectors:
            return False
        self._visited_vectors.add(vector)
        trials, counts = self._make(vector)
        had_trials, added, reasons = bool(self.trials), set(), set()
        for trial in trials:
            reason = self._refuse(trial)
            if reason is None:
                self.trials.append(trial)
                added |= set(trial.values.items()) - self._features
            else:
                self._reasons[reason] += 1
                reasons |= {("", re.sub(r"[(\[].*[)\]]|\d+", "#", reason))} - self._features
        self._features |= added | reasons
        if not added and (self.trials or not reasons):
            return False
        if self.trials and not had_trials:
            self._counts.clear()
            self._waiting.clear()
        self._counts[vector] = counts
        (self._waiting.append if self.trials else self._waiting.appendleft)(self._neighbors(vector))
        return True


def _trials(entry: Entry, element: str, tiles: Tiles, vector: Vector) -> tuple[Sequence[Trial], Sequence[int]]:
    forms, counts = _example(entry, element, vector, "plain", tiles)
    return [Trial(vector, element, form, example_values(entry, form, element)) for form in forms], counts


def _put(vector: Vector, position: int, option: int) -> Vector:
    longer = [*vector, *(0 for _ in range(position + 1 - len(vector)))]
    longer[position] = option
    while longer and not longer[-1]:
        longer.pop()
    return tuple(longer)


def _example(entry: Entry, element: str, vector: Vector, mix: Mix, tiles: Tiles) -> tuple[Sequence[Form], list[int]]:
    """Make the forms of the example that a vector of choices determines, empty if no example exists. Also returns the number of
    options of each choice. Choices beyond the vector are 0."""
    counts: list[int] = []

    def choose(count: int) -> int:
        counts.append(count)
        position = len(counts) - 1
        return vector[position] % count if position < len(vector) else 0

    try:
        return entry.example(Choices(choose, mix, tiles=tiles), element).forms(), counts
    except (Unfit, InlaidError):
        return (), counts


def selected(trials: Sequence[T], covered: Iterable[Values], paired: int = PAIRED) -> list[T]:
    """Select few trials: for each value not in `covered`, the trial that differs least from the first trial, to isolate faults;
    then up to `paired` trials that cover the most new pairs of values."""
    plain = set(trials[0].values.items()) if trials else set()
    distances = [len(set(trial.values.items()) - plain) for trial in trials]
    numbers_by_value: dict[tuple[str, str], list[int]] = {}
    for number, trial in enumerate(trials):
        for value in trial.values.items():
            numbers_by_value.setdefault(value, []).append(number)
    covered_examples = list(covered)
    covered_values = {value for values in covered_examples for value in values.items()}
    selection: dict[int, T] = {}
    for value, numbers in numbers_by_value.items():
        if value not in covered_values:
            best = min(numbers, key=distances.__getitem__)
            selection[best] = trials[best]
            covered_values |= set(trials[best].values.items())
    new_pairs = [_pairs(trial.values) for trial in trials] if paired else []
    covered_pairs = {
        pair for values in (*covered_examples, *(trial.values for trial in selection.values())) for pair in _pairs(values)
    }
    for _ in range(paired):
        new_pairs = [pairs - covered_pairs for pairs in new_pairs]
        best = max(range(len(new_pairs)), key=lambda number: len(new_pairs[number]), default=0)
        if not new_pairs or not new_pairs[best]:
            break
        covered_pairs |= new_pairs[best]
        selection[best] = trials[best]
    return list(selection.values())


def _pairs(values: Values) -> set[object]:
    """Return the pairs of values. Returns no pairs if an example has fewer than two values besides form and element type."""
    return set(itertools.combinations(sorted(values.items()), 2)) if len(values) > 3 else set()
