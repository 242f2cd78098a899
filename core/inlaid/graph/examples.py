"""Example calls, which an operator's definition may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    T = TypeVar("T")

    class ExampleChoices(Protocol):
        """Source of sizes, attributes and values of examples. The conformance suite has one that is fixed, and one that Hypothesis
        draws; `inlaid_conformance.corpus.Choices` describes further methods."""

        def pick(self, *options: T) -> T:
            """Pick one of the options, the first in the plain example."""

        def flag(self) -> bool:
            """Pick a boolean, False in the plain example."""

        def shape(self, min_rank: int = 0, max_rank: int = 4) -> tuple[int, ...]:
            """Pick a shape, sometimes with an empty axis."""

        def solid_shape(self, min_rank: int = 1, max_rank: int = 4) -> tuple[int, ...]:
            """Pick a shape without empty axes."""

        def broadcasting(self, count: int) -> tuple[tuple[int, ...], ...]:
            """Pick shapes that broadcast together."""

        def axis(self, rank: int) -> int:
            """Pick an axis, the last in the plain example."""

        def axes(self, rank: int) -> tuple[int, ...]:
            """Pick axes in ascending order, the last axes in the plain example."""

        def array(self, shape: tuple[int, ...], dtype_name: str, low: float | None = None, high: float | None = None) -> Any:
            """Draw values of an element type: in [low, high] if given, else ordinary, special or extreme ones."""


@dataclass(frozen=True)
class Examples:
    """Example calls of an operator: the cases of the conformance suite, and the example of the operator reference.

    dtypes
        The element types, each of which gets examples.
    `make(choices, dtype) -> (operands, attributes)`
        Makes the operands and attributes of a call for an element type: shapes, values and attributes from `choices`.
    exact
        Whether the operator does not round: it moves or selects values, or its result is defined exactly.
    """

    dtypes: tuple[str, ...]
    make: Callable[[ExampleChoices, str], tuple[tuple[Any, ...], Mapping[str, Any]]]
    exact: bool = False
