"""Operator rules of the microcontroller target."""

from __future__ import annotations

from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import OpRule
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DTYPES as EVERY

DTYPES = tuple(sorted(name for name in EVERY if name != "string"))
"""Supported element types. Those that C lacks are stored in integers."""


def rules() -> tuple[OpRule, ...]:
    """Return a single rule, which accepts all operators with a tensor expression and static sizes."""
    return (loop_rule("microcontroller", _problem),)


def _problem(dim: Dim) -> str | None:
    return None if isinstance(dim, int) else f"expected static sizes, since memory is planned statically, found dimension {dim!r}"
