"""What the x86 target takes."""

from __future__ import annotations

from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import OpRule


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and bounded sizes."""
    return (loop_rule("x86"),)
