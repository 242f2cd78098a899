"""Conditions on symbolic sizes, with error messages."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid_runtime.arith.expr import (
    Dim,
    Expr,
    SizeVar,
    compare,
    evaluate,
    floormod,
    free_vars,
    logical_and,
    logical_or,
    substitute,
    unwrap,
    wrap,
)
from inlaid_runtime.records import dataclass


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

    @property
    def sizes(self) -> frozenset[Expr]:
        """The symbolic sizes that the condition and the error message read."""
        return free_vars(self.condition) | free_vars(self.value)

    def holds(self, sizes: Mapping[Expr, int]) -> bool | None:
        """Test whether the constraint holds at these sizes; None if a size that it reads is unknown."""
        try:
            return evaluate(self.condition, sizes) != 0
        except KeyError:
            return None
        except ZeroDivisionError:
            return False

    @property
    def statement(self) -> str:
        """The error message without sizes, with the operator and the node."""
        operator = f"operator {self.operator}" if self.operator else ""
        where = ", ".join(filter(None, (operator, f"at {self.node}" if self.node else "")))
        return f"{self.what} must be {self.expected}{f' ({where})' if where else ''}"

    def message(self, sizes: Mapping[Expr, int]) -> str:
        """Return the error message at these sizes."""
        try:
            value: object = evaluate(self.value, sizes)
        except (KeyError, ZeroDivisionError):
            value = self.value
        names = sorted(self.sizes & set(sizes), key=repr)
        bindings = ", ".join(f"{name!r} is {sizes[name]}" for name in names)
        return f"{self.what} must be {self.expected}, got {value}{f' where {bindings}' if bindings else ''}"


def _constraint(condition: Dim, what: str, expected: str, value: Dim) -> Constraint:
    return Constraint(unwrap(condition), what, expected, unwrap(wrap(value)))


def at_least(value: Dim, least: Dim, what: str) -> Constraint:
    """Constrain a size to be at least another size."""
    return _constraint(compare(">=", value, least), what, f">= {least!r}", value)


def does_not_exceed(value: Dim, greatest: Dim, what: str) -> Constraint:
    """Constrain a size to be at most another size."""
    return _constraint(compare("<=", value, greatest), what, f"<= {greatest!r}", value)


def within(value: Dim, least: Dim, greatest: Dim, what: str) -> Constraint:
    """Constrain a size to an inclusive range."""
    inside = logical_and(compare("<=", least, value), compare("<=", value, greatest))
    return _constraint(inside, what, f"{least!r} to {greatest!r}", value)


def equals(value: Dim, expected: Dim, what: str) -> Constraint:
    """Constrain a size to be equal to another size."""
    return _constraint(compare("==", value, expected), what, f"{expected!r}", value)


def divisible_by(value: Dim, divisor: Dim, what: str) -> Constraint:
    """Constrain a size to be a multiple of a divisor, which must be at least 1."""
    divides = logical_and(compare("<=", 1, divisor), compare("==", floormod(value, divisor), 0))
    return _constraint(divides, what, f"a multiple of {divisor!r}", value)


def broadcasts_to(value: Dim, extent: Dim, what: str) -> Constraint:
    """Constrain a dimension to be equal to the extent that it is broadcast to, or 1."""
    reaches = logical_or(compare("==", value, extent), compare("==", value, 1))
    return _constraint(reaches, what, "1 to broadcast" if extent == 1 else f"1 or {extent!r} to broadcast", value)


def broadcasts_with(value: Dim, other: Dim, what: str) -> Constraint:
    """Constrain two dimensions to be equal, or one of them to be 1."""
    ones = logical_or(compare("==", value, 1), compare("==", other, 1))
    return _constraint(logical_or(compare("==", value, other), ones), what, f"1 or {other!r} to broadcast", value)


def suggested_size(constraints: tuple[Constraint, ...], sizes: Mapping[Expr, int], limit: int = 4096) -> tuple[SizeVar, int] | None:
    """Find a symbolic dimension and its smallest size below `limit` that satisfies all constraints, with all other sizes fixed. If
    no dimension satisfies all constraints, return one that satisfies the first violated constraint; None if no dimension does."""
    broken = next((item for item in constraints if item.holds(sizes) is False), None)
    if broken is None:
        return None
    partial: tuple[SizeVar, int] | None = None
    for variable in sorted(free_vars(broken.condition), key=repr):
        if isinstance(variable, SizeVar) and not variable.existential and variable in sizes:
            broken_condition = _in_one_size(broken, variable, sizes)
            other_conditions = [_in_one_size(item, variable, sizes) for item in constraints if item is not broken]
            solvable = 0 not in other_conditions
            for size in range(variable.lower, limit) if broken_condition != 0 else ():
                if _may_hold(broken_condition, variable, size):
                    partial = partial or (variable, size)
                    if not solvable:
                        break
                    if all(_may_hold(item, variable, size) for item in other_conditions):
                        return variable, size
    return partial


def _in_one_size(constraint: Constraint, variable: SizeVar, sizes: Mapping[Expr, int]) -> Dim:
    """Return the condition with the values of all sizes except `variable`, for which thousands of values are tried."""
    values = {name: wrap(size) for name, size in sizes.items() if name != variable}
    try:
        return unwrap(substitute(wrap(constraint.condition), values))
    except ZeroDivisionError:
        return 0


def _may_hold(condition: Dim, variable: SizeVar, size: int) -> bool:
    """Test whether a condition holds if `variable` is `size`. True if the condition reads other sizes, which are unknown."""
    try:
        return evaluate(condition, {variable: size}) != 0
    except KeyError:
        return True
    except ZeroDivisionError:
        return False
