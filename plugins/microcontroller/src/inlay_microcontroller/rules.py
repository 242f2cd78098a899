"""What the microcontroller target takes."""

from __future__ import annotations

from inlay.graph.ir import Call
from inlay.graph.operator import Operator
from inlay.plugins import Accept, OpRule, Reject, Verdict
from inlay.types import DTYPES as EVERY
from inlay.types import TensorType, TupleType, Type

DTYPES = tuple(sorted(name for name in EVERY if name != "string"))
"""The element types: those that C lacks travel in integers."""


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and sizes that are known."""
    return (OpRule("*", "microcontroller", _accepts),)


def _accepts(call: Call) -> Verdict:
    operator = call.callee
    assert isinstance(operator, Operator)
    if operator.compute is None:
        if operator.decompose is not None:
            return Reject(f"{operator.name} has no tensor-level meaning of its own and is decomposed")
        return Reject(f"{operator.name} has no tensor-level meaning")
    for type_ in (*(arg.type for arg in call.args), call.type):
        if (dim := _unknown(type_)) is not None:
            return Reject(f"dimension {dim} is not known before the run, and memory is planned ahead")
    return Accept()


def _unknown(type_: Type) -> str | None:
    if isinstance(type_, TupleType):
        return next((found for found in map(_unknown, type_.fields) if found is not None), None)
    if isinstance(type_, TensorType):
        return next((repr(dim) for dim in type_.shape if not isinstance(dim, int)), None)
    return None
