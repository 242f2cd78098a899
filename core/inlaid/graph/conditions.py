"""Preconditions of operator calls on sizes that are known only at run time.

A type relation states a precondition by calling `require`. If static sizes violate it, inference fails at once. A precondition on
symbolic sizes is recorded for `conditions_of`, so that compile time and run time report a violation with the same message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import replace

from inlaid import arith
from inlaid.arith import Constraint
from inlaid.graph.attrs import attr_vars
from inlaid.graph.ir import Call
from inlaid.graph.operator import Operator
from inlaid.types import TensorType, TupleType, Type, type_vars

_noted: ContextVar[list[Constraint] | None] = ContextVar("noted", default=None)
"""List to which `require` appends. Each thread has a separate list, which `conditions_of` sets while it infers a type."""


def require(constraint: Constraint) -> None:
    """State a precondition of the call whose type is being inferred. Raises ValueError if `constraint` is false for all sizes."""
    if isinstance(constraint.condition, int):
        if not constraint.condition:
            raise ValueError(constraint.message({}))
        return
    noted = _noted.get()
    if noted is not None:
        noted.append(constraint)


def conditions_of(calls: Iterable[Call]) -> tuple[Constraint, ...]:
    """Return the preconditions of operator calls that cannot be proved at compile time, in the order of the calls, without
    duplicates: the constraints that type relations pass to `require`, and that dimensions of results are >= 0."""
    found: dict[arith.Dim, Constraint] = {}
    for call in calls:
        for constraint in _of(call):
            if constraint.condition not in found and not arith.prove(constraint.condition):
                found[constraint.condition] = constraint
    return tuple(found.values())


def _of(call: Call) -> Iterator[Constraint]:
    types = [arg.type for arg in call.args]
    if not any(map(type_vars, (*types, call.type))) and not attr_vars(call.attrs):
        return
    operator = call.callee
    assert isinstance(operator, Operator)
    noted: list[Constraint] = []
    token = _noted.set(noted)
    try:
        operator.infer(call.attrs, *types)
    finally:
        _noted.reset(token)
    node = str(call.span) if call.span else ""
    for constraint in (*noted, *_not_negative(call.type)):
        yield replace(constraint, operator=operator.name, node=node)


def _not_negative(type_: Type) -> Iterator[Constraint]:
    if isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _not_negative(field)
    elif isinstance(type_, TensorType):
        for axis, dim in enumerate(type_.shape):
            if not isinstance(dim, (int, arith.SizeVar)):
                yield arith.at_least(dim, 0, f"dimension {axis} of the output")
