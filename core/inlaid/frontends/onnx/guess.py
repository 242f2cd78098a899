"""Guesses that an import makes, and takes back where what follows does not fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from inlaid.errors import ModelImportError
from inlaid.frontends.onnx.refusals import InvalidNode, NeedsStatic

T = TypeVar("T")

MOST = 32
"""Greatest number of attempts at one graph."""


@dataclass
class Guesses:
    """Choices between two, by place in the model: those made so far, in order, and those that are the other than first thought."""

    _made: list[tuple[str, ...]] = field(default_factory=list)
    _turned: set[tuple[str, ...]] = field(default_factory=set)

    def choose(self, place: tuple[str, ...], likely: bool) -> bool:
        """The likely choice, unless it was found not to fit."""
        self._made.append(place)
        return likely != (place in self._turned)

    def attempt(self, build: Callable[[], T]) -> T:
        """What `build` gives with guesses that fit: where it fails, the last of its guesses is turned, then the one before it.

        Raises the first error where none fit.
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
