"""Guesses during an import, with backtracking if the rest of the model contradicts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from inlaid_onnx.refusals import InvalidNode, NeedsStatic
from inlaid_runtime.errors import ModelImportError

T = TypeVar("T")

MAX_ATTEMPTS = 32
"""Maximum number of attempts at one graph."""


@dataclass
class Guesses:
    """Binary choices by position in the model: the choices made so far, in order, and the choices that were reversed."""

    _choices: list[tuple[str, ...]] = field(default_factory=list)
    _reversed: set[tuple[str, ...]] = field(default_factory=set)

    def choose(self, position: tuple[str, ...], likely: bool) -> bool:
        """Return `likely`, or its negation if the choice at `position` was reversed."""
        self._choices.append(position)
        return likely != (position in self._reversed)

    def attempt(self, build: Callable[[], T]) -> T:
        """Run `build` until its guesses succeed. After a failure, reverse the last guess, then the guess before it.

        Raises the first error if no combination succeeds.
        """
        start, first = len(self._choices), None
        for _ in range(MAX_ATTEMPTS):
            try:
                return build()
            except (InvalidNode, NeedsStatic):
                raise
            except ModelImportError as error:
                first = first or error
                choices = list(dict.fromkeys(self._choices[start:]))
                del self._choices[start:]
                while choices and choices[-1] in self._reversed:
                    self._reversed.discard(choices.pop())
                if not choices:
                    break
                self._reversed.add(choices[-1])
        assert first is not None
        raise first
