"""Source locations of expressions."""

from __future__ import annotations

from inlaid_runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Source location of an expression: a model file and the name of a node in it."""

    file: str
    node: str

    def __str__(self) -> str:
        return f"{self.file}:{self.node}" if self.file else self.node
