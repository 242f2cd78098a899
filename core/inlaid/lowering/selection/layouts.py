"""Choose a layout option for every kernel of a region so that kernels and copies between layouts take the least total time.

A value has one writer and any number of readers. A reader that needs a layout other than the writer's needs a copy; readers of the
same layout share one copy. The choice is optimal for regions that the reductions of `assign` solve exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from inlaid.lowering.selection.assignment import Assignment, Matrix
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType, Layout

SHARED = 4
"""Maximum layouts of a value for which shared copies are modeled (4 layouts have 15 nonempty subsets). With more layouts, each
reader is charged for a separate copy."""
INFINITE = float("inf")


@dataclass(frozen=True)
class Option:
    """An alternative for a step: the layouts of its inputs, then outputs, and its predicted seconds."""

    layouts: tuple[Layout, ...]
    cost: float = 0.0


@dataclass
class _LayoutValue:
    """A value with its shape, dtype, writer and readers. Writer and readers are (step, position among the step's layouts)."""

    shape: tuple[Dim, ...]
    dtype: DType
    writer: tuple[int, int]
    readers: list[tuple[int, int]] = field(default_factory=list)


class LayoutChoice:
    """Collects steps in order; `solve` chooses their options. `bandwidth` is in bytes per second, `call_seconds` the fixed
    time of a copy's kernel."""

    def __init__(self, bandwidth: float, call_seconds: float) -> None:
        self._bandwidth, self._call_seconds = bandwidth, call_seconds
        self._steps: list[tuple[Option, ...]] = []
        self._values: list[_LayoutValue] = []

    def step(
        self, inputs: Sequence[int | None], outputs: Sequence[tuple[tuple[Dim, ...], DType]], options: Sequence[Option]
    ) -> tuple[int, ...]:
        """Add a step that reads `inputs` (None for a constant, which can be packed in any layout); returns the numbers of its
        outputs. An option lists the layouts of the inputs, then of the outputs."""
        number = len(self._steps)
        self._steps.append(tuple(options))
        for position, value in enumerate(inputs):
            if value is not None:
                self._values[value].readers.append((number, position))
        first = len(self._values)
        self._values += [
            _LayoutValue(shape, dtype, (number, len(inputs) + position)) for position, (shape, dtype) in enumerate(outputs)
        ]
        return tuple(range(first, len(self._values)))

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self._steps)

    def layouts(self, value: int) -> tuple[Layout, ...]:
        """Return the layouts in which a value may be written."""
        return self._distinct_layouts(value, [self._values[value].writer])

    def solve(self) -> list[int]:
        """Choose an option number per step."""
        problem = Assignment()
        for options in self._steps:
            problem.node([option.cost for option in options])
        for number, value in enumerate(self._values):
            self._add_copy_costs(problem, number, value)
        return problem.solve()[: len(self._steps)]

    def _add_copy_costs(self, problem: Assignment, number: int, value: _LayoutValue) -> None:
        """Add the costs of copies of a value to the problem."""
        readers: dict[int, list[int]] = {}
        for step, position in value.readers:
            readers.setdefault(step, []).append(position)
        read_layouts = self._distinct_layouts(number, value.readers)
        written_layouts = self.layouts(number)
        if not readers or (read_layouts == written_layouts and len(written_layouts) == 1):
            return
        writer, position = value.writer
        if len(readers) == 1 or len(read_layouts) > SHARED:
            for step, positions in readers.items():
                problem.edge(
                    writer,
                    step,
                    self._matrix(
                        value,
                        [option.layouts[position] for option in self._steps[writer]],
                        [{option.layouts[position] for position in positions} for option in self._steps[step]],
                    ),
                )
            return
        sets = [set(subset) for size in range(1, len(read_layouts) + 1) for subset in combinations(read_layouts, size)]
        node = problem.node([0.0] * len(sets))
        problem.edge(writer, node, self._matrix(value, [option.layouts[position] for option in self._steps[writer]], sets))
        for step, positions in readers.items():
            needs = [{option.layouts[position].canonical(value.shape) for position in positions} for option in self._steps[step]]
            problem.edge(
                node, step, tuple(tuple(0.0 if needed <= available else INFINITE for needed in needs) for available in sets)
            )

    def _distinct_layouts(self, number: int, ends: list[tuple[int, int]]) -> tuple[Layout, ...]:
        """Collect the distinct layouts that options give a value; `ends` are its uses as (step, position)."""
        shape = self._values[number].shape
        return tuple(
            dict.fromkeys(option.layouts[position].canonical(shape) for step, position in ends for option in self._steps[step])
        )

    def _matrix(self, value: _LayoutValue, written: list[Layout], read_sets: Sequence[set[Layout]]) -> Matrix:
        """Compute the copy costs in seconds, by written layout and set of layouts that are read."""
        return tuple(tuple(sum(self._copy(value, a, b) for b in layouts) for layouts in read_sets) for a in written)

    def _copy(self, value: _LayoutValue, a: Layout, b: Layout) -> float:
        if a.canonical(value.shape) == b.canonical(value.shape):
            return 0.0
        elements = sum(arith.size_hint(arith.product(layout.shape(value.shape))) for layout in (a, b))
        return self._call_seconds + elements * value.dtype.bytes / self._bandwidth
