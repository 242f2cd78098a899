"""Operator rules of the x86 target."""

from __future__ import annotations

from inlaid.lowering.claims import rule_for_loops
from inlaid.plugins import OpRule


def rules() -> tuple[OpRule, ...]:
    """Return a single rule, which accepts all operators with a tensor expression and bounded sizes."""
    return (rule_for_loops("x86"),)
