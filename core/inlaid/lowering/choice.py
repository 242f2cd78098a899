"""The choice of layouts over a region: for every kernel one of the ways in which it can be had, so that kernels and the copies
between layouts take the least time together.

Values are written by one step and read by any number. A reader that wants a value in another layout than it was written in needs a
copy; readers that want the same layout share it. The choice is exact for regions that the reductions of `assign` solve exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from inlaid import arith
from inlaid.arith import Dim
from inlaid.lowering.assign import Assignment, Matrix
from inlaid.types import DType, Layout

CALL = 2e-7
"""Seconds that a kernel takes however little it does. `inlaid run --profile` of copies of a few hundred bytes."""
SHARED = 4
"""Layouts of a value up to which sharing of copies is taken into account: there are 15 sets of four. Beyond, every reader is taken
to need a copy of its own."""
INFINITE = float("inf")


@dataclass(frozen=True)
class Option:
    """One way to have a step: the layouts of its inputs and outputs, and its seconds."""

    layouts: tuple[Layout, ...]
    cost: float = 0.0


@dataclass
class _Value:
    """A value: its tensor, the step that writes it and its place among the step's layouts, and the same of its readers."""

    shape: tuple[Dim, ...]
    dtype: DType
    writer: tuple[int, int]
    readers: list[tuple[int, int]] = field(default_factory=list)


class LayoutChoice:
    """Collects steps in order; `solve` chooses. `bandwidth` is bytes a second."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._steps: list[tuple[Option, ...]] = []
        self._values: list[_Value] = []

    def step(
        self, inputs: Sequence[int | None], outputs: Sequence[tuple[tuple[Dim, ...], DType]], options: Sequence[Option]
    ) -> tuple[int, ...]:
        """A step that reads values (None: a constant, which is had in any layout) and writes new ones, which are returned. Layouts
        of an option are those of inputs, then of outputs."""
        number = len(self._steps)
        self._steps.append(tuple(options))
        for place, value in enumerate(inputs):
            if value is not None:
                self._values[value].readers.append((number, place))
        first = len(self._values)
        self._values += [_Value(shape, dtype, (number, len(inputs) + place)) for place, (shape, dtype) in enumerate(outputs)]
        return tuple(range(first, len(self._values)))

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    def layouts(self, value: int) -> tuple[Layout, ...]:
        """In which layouts a value may be written."""
        return self._wanted(value, [self._values[value].writer])

    def solve(self) -> list[int]:
        """The number of the option of every step."""
        problem = Assignment()
        for options in self._steps:
            problem.node([option.cost for option in options])
        for number, value in enumerate(self._values):
            self._tie(problem, number, value)
        return problem.solve()[: len(self._steps)]

    def _tie(self, problem: Assignment, number: int, value: _Value) -> None:
        """Charge for copies of a value."""
        readers: dict[int, list[int]] = {}
        for step, place in value.readers:
            readers.setdefault(step, []).append(place)
        wanted = self._wanted(number, value.readers)
        written = self.layouts(number)
        if not readers or (wanted == written and len(written) == 1):
            return
        writer, place = value.writer
        if len(readers) == 1 or len(wanted) > SHARED:
            for step, places in readers.items():
                problem.edge(
                    writer,
                    step,
                    self._matrix(
                        value,
                        [option.layouts[place] for option in self._steps[writer]],
                        [{option.layouts[place] for place in places} for option in self._steps[step]],
                    ),
                )
            return
        sets = [set(chosen) for size in range(1, len(wanted) + 1) for chosen in combinations(wanted, size)]
        node = problem.node([0.0] * len(sets))
        problem.edge(writer, node, self._matrix(value, [option.layouts[place] for option in self._steps[writer]], sets))
        for step, places in readers.items():
            needs = [{option.layouts[place].canonical(value.shape) for place in places} for option in self._steps[step]]
            problem.edge(node, step, tuple(tuple(0.0 if need <= have else INFINITE for need in needs) for have in sets))

    def _wanted(self, number: int, ends: list[tuple[int, int]]) -> tuple[Layout, ...]:
        """The layouts that options of steps give a value at places."""
        shape = self._values[number].shape
        return tuple(dict.fromkeys(option.layouts[place].canonical(shape) for step, place in ends for option in self._steps[step]))

    def _matrix(self, value: _Value, written: list[Layout], wanted: Sequence[set[Layout]]) -> Matrix:
        """Seconds of the copies that sets of layouts take, by the layout that was written."""
        return tuple(tuple(sum(self._copy(value, a, b) for b in layouts) for layouts in wanted) for a in written)

    def _copy(self, value: _Value, a: Layout, b: Layout) -> float:
        if a.canonical(value.shape) == b.canonical(value.shape):
            return 0.0
        elements = sum(arith.size_hint(arith.product(layout.shape(value.shape))) for layout in (a, b))
        return CALL + elements * value.dtype.bytes / self._bandwidth
