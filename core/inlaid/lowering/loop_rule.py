"""The operator rule of targets whose code generators print loop programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from inlaid.graph.ir import Call, introduced_sizes
from inlaid.graph.operator import Operator
from inlaid.graph.unify import upper_bound
from inlaid.lowering.kernels.kernel import meaning, thread_grid
from inlaid.lowering.kernels.needs import unmet_need
from inlaid.plugins import Accept, Capabilities, OpRule, Reject, Verdict
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType, TupleType, Type


def loop_rule(
    name: str, problem: Callable[[Dim], str | None] = lambda dim: None, capabilities: Capabilities | None = None
) -> OpRule:
    """Return a rule that accepts every operator with a tensor-level `compute`. `problem` returns why the target cannot handle a
    dimension of an operand or result, None if it can. A size that an operator computes must have an upper bound, so that buffers of
    that size can be allocated. For a target with threads, pass its `capabilities`: the rule then also accepts operators that have
    only a threaded `compute`, and rejects operators whose kernels need element types, threads or memory that the devices lack."""

    grid = None if capabilities is None else thread_grid(capabilities)

    def accepts(call: Call) -> Verdict:
        operator = call.callee
        assert isinstance(operator, Operator)
        if meaning(call, grid) is None:
            decomposed = "" if operator.decompose is None else " and is decomposed"
            return Reject(f"{operator.name} has no tensor-level compute{decomposed}")
        for size in introduced_sizes(call):
            if upper_bound(arith.unwrap(size)) is None:
                return Reject(f"dimension {size!r} has no upper bound before the run")
        dims = (dim for type_ in (*(arg.type for arg in call.args), call.type) for dim in _dims(type_))
        reason = next((message for message in map(problem, dims) if message is not None), None)
        if reason is None and capabilities is not None:
            reason = unmet_need(call, capabilities)
        return Accept() if reason is None else Reject(reason)

    return OpRule("*", name, accepts)


def _dims(type_: Type) -> Iterator[Dim]:
    if isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _dims(field)
    elif isinstance(type_, TensorType):
        yield from type_.shape
