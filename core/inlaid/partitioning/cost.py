"""Cost model: predicted seconds of operators on targets, and of transfers between targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.partitioning.annotate import Claim
from inlaid.plugins import Capabilities
from inlaid.tensor import te
from inlaid.tensor.lower import lower
from inlaid.tensor.scheduling.work import operations, roofline
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, TupleType, Type


@dataclass
class CostModel:
    """Predicts time from the plugin's figures or, without them, by a roofline (Williams et al., CACM 2009): the greater of the time
    for arithmetic and the time to read operands and write results. Operations are counted in the operator's loop nest."""

    capabilities: tuple[Capabilities, ...]
    _operations: dict[Any, int] = field(default_factory=dict)

    def seconds(self, claim: Claim) -> float:
        """Predict the seconds of a claim on its target."""
        if claim.verdict.seconds is not None:
            return claim.verdict.seconds
        target = self.capabilities[claim.target]
        member_ids = {id(call) for call in claim.members}
        bytes_moved = byte_size(claim.root.type)
        for call in claim.members:
            bytes_moved += sum(byte_size(arg.type) for arg in call.args if id(arg) not in member_ids)
        return roofline(sum(map(self.operations, claim.members)), bytes_moved, target)

    def transfer(self, target: int, size: int) -> float:
        """Predict the seconds to move `size` bytes between the host and a target's memory, one way."""
        link = self.capabilities[target].link
        return link.latency + size / link.bandwidth

    def operations(self, call: ir.Call) -> int:
        """Count the arithmetic operations of a call. A multiply-add counts as two."""
        assert isinstance(call.callee, Operator)
        key = (call.callee, call.attrs, tuple(repr(arg.type) for arg in call.args))
        if key not in self._operations:
            self._operations[key] = _operations(call)
        return self._operations[key]


def byte_size(type_: Type) -> int:
    """Return the size of a value in bytes; 0 if the value is not an array."""
    match type_:
        case TensorType(shape=shape, dtype=dtype) if dtype.kind != "string":
            return arith.size_hint(arith.product(shape)) * dtype.bytes
        case TupleType(fields=fields):
            return sum(map(byte_size, fields))
    return 0


def _operations(call: ir.Call) -> int:
    """Count the operations in the operator's loops; one per element of the result if the operator has no loops."""
    assert isinstance(call.callee, Operator)
    elements = byte_size(call.type)
    types = [arg.type for arg in call.args if isinstance(arg.type, TensorType)]
    if call.callee.compute is None or len(types) < len(call.args):
        return elements
    params = [te.placeholder(type_.shape, type_.dtype, f"x{number}") for number, type_ in enumerate(types)]
    result_type = {"out_type": call.type} if call.callee.existential else {}
    try:
        result = call.callee.compute(call.attrs, *params, **result_type)
        program = lower(result if isinstance(result, tuple) else (result,), params, "cost")
    except Exception:  # a user's operator may fail here; compiling it reports the error
        return elements
    return arith.size_hint(operations(program))
