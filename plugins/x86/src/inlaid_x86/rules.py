"""Operator rules of the x86 target."""

from __future__ import annotations

from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import OpRule


def rules() -> tuple[OpRule, ...]:
    """Return a single rule, which accepts all operators with a tensor expression and bounded sizes."""
    return (loop_rule("x86"),)
