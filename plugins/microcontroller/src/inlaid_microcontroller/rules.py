"""What the microcontroller target takes."""

from __future__ import annotations

from inlaid.arith import Dim
from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import OpRule
from inlaid.types import DTYPES as EVERY

DTYPES = tuple(sorted(name for name in EVERY if name != "string"))
"""The element types: those that C lacks travel in integers."""


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and sizes that are known."""
    return (loop_rule("microcontroller", _problem),)


def _problem(dim: Dim) -> str | None:
    return None if isinstance(dim, int) else f"dimension {dim!r} is not known before the run, and memory is planned ahead"
