"""Checks of donated inputs, whose buffers may be updated in place and returned as outputs."""

from __future__ import annotations

import warnings
from collections.abc import Collection

from inlaid.graph.ir import Function
from inlaid_runtime.artifact.plan import Plan
from inlaid_runtime.errors import DonationWarning, InputError, suggestion


def check_donated(function: Function, donate: Collection[str]) -> None:
    """Raise `InputError` for a donated name that is not an input."""
    names = [param.name for param in function.params]
    for name in donate:
        if name not in names:
            raise InputError(
                f"donate must name inputs, got {name!r}{suggestion(name, names)}", remedy=f"the inputs are {', '.join(names)}"
            )


def warn_of_unused(plan: Plan, donate: Collection[str]) -> None:
    """Warn about donated inputs that no output reuses."""
    unused = [name for name, number in plan.inputs if name in donate and number not in plan.donated]
    if unused:
        message = (
            f"no output reuses the buffer of {', '.join(map(repr, unused))}: expected an output that is the input with some "
            "elements updated by a scatter, and no later read of the input"
        )
        warnings.warn(message, DonationWarning, stacklevel=2)
