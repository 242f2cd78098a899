"""Which target takes which operator, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.errors import CompileError
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.plugins import Accept, OpRule, Reject, Target, Verdict
from inlay.types import OptionalType, SequenceType, TensorType, TupleType, Type


@dataclass(frozen=True)
class Annotation:
    """The verdicts on one call, in the order of the targets, and the number of the target that takes it."""

    call: ir.Call
    verdicts: tuple[Verdict, ...]
    target: int


@dataclass(frozen=True)
class Candidate:
    """A target that may take operators: its rules, and the names of the element types it claims."""

    target: Target
    rules: tuple[OpRule, ...]
    dtypes: frozenset[str]
    dynamic_dims: bool = True


def annotate(expr: ir.Expr, candidates: Sequence[Candidate]) -> dict[int, Annotation]:
    """The annotation of every operator call under an expression, by id: the first target that accepts takes it.

    Raises `CompileError` for an operator that none takes, with every target's reason.
    """
    judges = [_judge(candidate) for candidate in candidates]
    found: dict[int, Annotation] = {}
    for node in ir.post_order(expr):
        if isinstance(node, ir.Call) and isinstance(node.callee, Operator):
            verdicts = tuple(judge(node) for judge in judges)
            chosen = next((index for index, verdict in enumerate(verdicts) if isinstance(verdict, Accept)), None)
            if chosen is None:
                raise CompileError(
                    f"no target takes it: {_reasons(candidates, verdicts)}", operator=node.callee.name, node=str(node.span or "")
                )
            found[id(node)] = Annotation(node, verdicts, chosen)
    return found


def _reasons(candidates: Sequence[Candidate], verdicts: Sequence[Verdict]) -> str:
    return "; ".join(
        f"{candidate.target}: {verdict.reason}" if isinstance(verdict, Reject) else f"{candidate.target}: only under a condition"
        for candidate, verdict in zip(candidates, verdicts, strict=True)
    )


def claims(candidate: Candidate, call: ir.Call) -> Verdict:
    """One target's verdict on one call."""
    return _judge(candidate)(call)


def _judge(candidate: Candidate) -> Callable[[ir.Call], Verdict]:
    by_name: Mapping[str, list[OpRule]] = {}
    grouped: dict[str, list[OpRule]] = {}
    for rule in candidate.rules:
        grouped.setdefault(rule.pattern, []).append(rule)
    by_name = grouped

    def judge(call: ir.Call) -> Verdict:
        assert isinstance(call.callee, Operator)
        unfit = _unfit(call, candidate)
        if unfit is not None:
            return Reject(unfit)
        refused: Reject | None = None
        for rule in (*by_name.get(call.callee.name, ()), *by_name.get("*", ())):
            verdict = Accept() if rule.predicate is None else rule.predicate(call)
            if not isinstance(verdict, Reject):
                return verdict
            refused = refused or verdict
        return refused or Reject(f"has no rule for {call.callee.name}")

    return judge


def _unfit(call: ir.Call, candidate: Candidate) -> str | None:
    """Why the call's types are beyond what the target declares, None where they are not."""
    for type_ in (*(arg.type for arg in call.args), call.type):
        reason = _type_unfit(type_, candidate)
        if reason is not None:
            return reason
    return None


def _type_unfit(type_: Type, candidate: Candidate) -> str | None:
    match type_:
        case TensorType(dtype=dtype):
            if dtype.name not in candidate.dtypes:
                return f"element type {dtype} is not among its capabilities"
            if not candidate.dynamic_dims and not type_.is_static:
                return f"the dimensions of {type_!r} are not static"
            return None
        case TupleType(fields=fields):
            return next((reason for reason in (_type_unfit(field, candidate) for field in fields) if reason), None)
        case SequenceType() | OptionalType() if "sequence" not in candidate.dtypes:
            return "sequences and optionals live on the host"
    return None
