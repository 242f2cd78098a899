"""Conditions on symbolic sizes, with error messages."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.arith.expr import Dim, Expr, SizeVar, compare, evaluate, free_vars, unwrap, wrap
from inlaid.records import dataclass


@dataclass(frozen=True)
class Constraint:
    """A condition on symbolic sizes, e.g. that a dimension of an operator's result is at least 1.

    condition
        Expression that is nonzero if the constraint holds.
    what, expected, value
        Parts of the error message: "`what` must be `expected`, got `value`".
    operator, node
        The operator that requires the condition, and its node in the source model.
    """

    condition: Dim
    what: str
    expected: str
    value: Dim
    operator: str = ""
    node: str = ""

    def holds(self, sizes: Mapping[Expr, int]) -> bool | None:
        """Test whether the constraint holds at these sizes; None if a size that it reads is unknown."""
        try:
            return evaluate(self.condition, sizes) != 0
        except KeyError:
            return None
        except ZeroDivisionError:
            return False

    def message(self, sizes: Mapping[Expr, int]) -> str:
        """Return the error message at these sizes."""
        try:
            value: object = evaluate(self.value, sizes)
        except (KeyError, ZeroDivisionError):
            value = self.value
        names = sorted((free_vars(self.condition) | free_vars(self.value)) & set(sizes), key=repr)
        given = ", ".join(f"{name!r} is {sizes[name]}" for name in names)
        return f"{self.what} must be {self.expected}, got {value}{f' where {given}' if given else ''}"


def at_least(value: Dim, least: int, what: str) -> Constraint:
    """Constrain a size to be at least `least`."""
    return Constraint(unwrap(compare(">=", value, least)), what, f">= {least}", unwrap(wrap(value)))


def equals(value: Dim, wanted: Dim, what: str) -> Constraint:
    """Constrain a size to be equal to another size."""
    return Constraint(unwrap(compare("==", value, wanted)), what, f"{wanted!r}", unwrap(wrap(value)))


def suggested_size(constraints: tuple[Constraint, ...], sizes: Mapping[Expr, int], limit: int = 4096) -> tuple[SizeVar, int] | None:
    """Find a symbolic dimension and its smallest size below `limit` that satisfies all constraints, with all other sizes fixed. If
    no dimension satisfies all constraints, return one that satisfies the first violated constraint; None if no dimension does."""
    broken = next((item for item in constraints if item.holds(sizes) is False), None)
    if broken is None:
        return None
    partial: tuple[SizeVar, int] | None = None
    for variable in sorted(free_vars(broken.condition), key=repr):
        if isinstance(variable, SizeVar) and not variable.existential and variable in sizes:
            for size in range(variable.lower, limit):
                trial = {**sizes, variable: size}
                if broken.holds(trial):
                    partial = partial or (variable, size)
                    if all(item.holds(trial) is not False for item in constraints):
                        return variable, size
    return partial
