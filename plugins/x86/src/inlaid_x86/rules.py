"""What the x86 target takes."""

from __future__ import annotations

from inlaid.lowering.claims import rule_for_loops
from inlaid.plugins import OpRule


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and bounded sizes."""
    return (rule_for_loops("x86"),)
