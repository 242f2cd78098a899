"""What the x86 target takes."""

from __future__ import annotations

from inlay.arith import SizeVar, free_vars
from inlay.graph.ir import Call
from inlay.graph.operator import Operator
from inlay.graph.unify import upper_bound
from inlay.plugins import Accept, OpRule, Reject, Verdict
from inlay.types import TensorType, TupleType, Type


def rules() -> tuple[OpRule, ...]:
    """One rule for all: whatever has a tensor-level meaning and bounded sizes."""
    return (OpRule("*", "x86", _accepts),)


def _accepts(call: Call) -> Verdict:
    operator = call.callee
    assert isinstance(operator, Operator)
    if operator.compute is None:
        if operator.decompose is not None:
            return Reject(f"{operator.name} has no tensor-level meaning of its own and is decomposed")
        return Reject(f"{operator.name} has no tensor-level meaning")
    for type_ in (*(arg.type for arg in call.args), call.type):
        unbounded = _unbounded(type_)
        if unbounded is not None:
            return Reject(f"dimension {unbounded!r} has no upper bound before the run")
    return Accept()


def _unbounded(type_: Type) -> SizeVar | None:
    if isinstance(type_, TupleType):
        return next((found for found in map(_unbounded, type_.fields) if found is not None), None)
    if isinstance(type_, TensorType):
        for dim in type_.shape:
            for variable in free_vars(dim):
                if isinstance(variable, SizeVar) and variable.existential and upper_bound(variable) is None:
                    return variable
    return None
