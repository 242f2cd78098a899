"""Guesses during an import, with backtracking if the rest of the model contradicts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from inlaid_onnx.refusals import InvalidNode, NeedsStatic
from inlaid_runtime.errors import ModelImportError

T = TypeVar("T")

MOST = 32
"""Maximum number of attempts at one graph."""


@dataclass
class Guesses:
    """Binary choices by position in the model: the choices made so far, in order, and the choices that were reversed."""

    _made: list[tuple[str, ...]] = field(default_factory=list)
    _turned: set[tuple[str, ...]] = field(default_factory=set)

    def choose(self, place: tuple[str, ...], likely: bool) -> bool:
        """Return `likely`, or its negation if the choice at `place` was reversed."""
        self._made.append(place)
        return likely != (place in self._turned)

    def attempt(self, build: Callable[[], T]) -> T:
        """Run `build` until its guesses succeed. After a failure, reverse the last guess, then the guess before it.

        Raises the first error if no combination succeeds.
        """
        start, first = len(self._made), None
        for _ in range(MOST):
            try:
                return build()
            except (InvalidNode, NeedsStatic):
                raise
            except ModelImportError as error:
                first = first or error
                made = list(dict.fromkeys(self._made[start:]))
                del self._made[start:]
                while made and made[-1] in self._turned:
                    self._turned.discard(made.pop())
                if not made:
                    break
                self._turned.add(made[-1])
        assert first is not None
        raise first
