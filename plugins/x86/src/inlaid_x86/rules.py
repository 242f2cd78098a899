"""What the x86 target takes."""

from __future__ import annotations

from inlaid.arith import Dim, SizeVar, free_vars
from inlaid.graph.unify import upper_bound
from inlaid.lowering.claims import rule_for_loops
from inlaid.plugins import OpRule


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and bounded sizes."""
    return (rule_for_loops("x86", _problem),)


def _problem(dim: Dim) -> str | None:
    for size in free_vars(dim):
        if isinstance(size, SizeVar) and size.existential and upper_bound(size) is None:
            return f"dimension {size!r} has no upper bound before the run"
    return None
