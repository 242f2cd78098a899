"""Examples of composites for the conformance suite."""

from __future__ import annotations

from inlaid.plugins import Conformance


def conformance() -> Conformance:
    """Integers are exact, so there are no tolerances."""
    return Conformance()
