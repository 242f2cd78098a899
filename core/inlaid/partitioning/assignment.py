"""Placement by priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.graph.operator import Operator
from inlaid.partitioning.annotate import Annotated, Candidate, Claim
from inlaid.plugins import Accept, AcceptIf, Reject, Verdict
from inlaid_runtime.errors import CompileError


def by_priority(annotated: Annotated, conditions: bool = True) -> tuple[Claim, ...]:
    """Choose claims by priority of their target; each operator is covered at most once. Claims are in the order of their roots.

    Within a target, composites precede single operators, later roots precede earlier ones (their composites are larger), and
    earlier rules precede later ones. Without `conditions`, claims under a condition are not considered.
    """
    claims_by_call: dict[int, Claim] = {}
    for claim in sorted(annotated.claims, key=lambda claim: _priority(annotated, claim)):
        if isinstance(claim.verdict, AcceptIf) and not conditions:
            continue
        if not any(id(call) in claims_by_call for call in claim.members):
            claims_by_call.update((id(call), claim) for call in claim.members)
    return in_order(annotated, claims_by_call)


def in_order(annotated: Annotated, claims_by_call: Mapping[int, Claim]) -> tuple[Claim, ...]:
    """Return claims in the order of their roots. `claims_by_call` maps the id of a call to the claim that covers the call."""
    return tuple(
        claims_by_call[id(call)] for call in annotated.calls if id(call) in claims_by_call and claims_by_call[id(call)].root is call
    )


def _priority(annotated: Annotated, claim: Claim) -> tuple[int, bool, int]:
    return claim.target, claim.composite is None, -annotated.positions[id(claim.root)]


def check_complete(annotated: Annotated, claims: tuple[Claim, ...], candidates: Sequence[Candidate]) -> None:
    """Raise `CompileError` for an operator that no claim covers, with every target's reason."""
    claimed_calls = {id(call) for claim in claims for call in claim.members}
    for call in annotated.calls:
        if id(call) not in claimed_calls:
            assert isinstance(call.callee, Operator)
            reasons = "; ".join(
                f"{candidate.target}: {reason(verdict)}"
                for candidate, verdict in zip(candidates, annotated.verdicts[id(call)], strict=True)
            )
            raise CompileError(f"no target accepts the operator: {reasons}", operator=call.callee.name, node=str(call.span or ""))


def reason(verdict: Verdict) -> str:
    """Describe why a target did not get an operator."""
    match verdict:
        case Reject(reason=reason):
            return reason
        case AcceptIf(constraint=constraint):
            return f"only if {constraint!r}"
        case Accept():
            return "only together with operators that were placed elsewhere"
