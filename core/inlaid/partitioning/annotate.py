"""Annotates a function with each target's claims, and with the reasons why a target rejects operators.

A claim is an operator that a target accepts, or several operators that match a composite pattern. A composite has one result:
values computed inside it must not be read outside, so that outlining it cannot create a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from inlaid.graph import ir
from inlaid.graph.operator import FusionKind, Operator
from inlaid.graph.pattern import Match, Pattern, explain_mismatch, match
from inlaid.graph.scopes import Scopes, analyse
from inlaid.partitioning.requantize import unlike
from inlaid.partitioning.rules import ANY, described
from inlaid.plugins import Accept, AcceptIf, OpRule, Reject, Requantization, Target, Verdict
from inlaid_runtime import arith
from inlaid_runtime.errors import PluginError
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, TupleType, Type


@dataclass(frozen=True)
class Candidate:
    """A target to place operators on, with its rules, supported dtypes by name, and requantization. `plugin` is the name of the
    plugin that provides it."""

    target: Target
    rules: tuple[OpRule, ...]
    dtypes: frozenset[str]
    dynamic_dims: bool = True
    plugin: str = ""
    requantization: Requantization = field(default_factory=Requantization)

    @cached_property
    def composites(self) -> tuple[tuple[OpRule, Pattern], ...]:
        """Rules for composites, with their patterns."""
        return tuple((rule, rule.pattern) for rule in self.rules if isinstance(rule.pattern, Pattern))

    @cached_property
    def by_name(self) -> Mapping[str, tuple[OpRule, ...]]:
        """Rules for single operators, by operator name."""
        rules: dict[str, tuple[OpRule, ...]] = {}
        for rule in self.rules:
            if isinstance(rule.pattern, str):
                rules[rule.pattern] = (*rules.get(rule.pattern, ()), rule)
        return rules

    def judge(self, call: ir.Call) -> Verdict:
        """Return the verdict of the rules on one operator. Raises `PluginError` if a rule fails."""
        assert isinstance(call.callee, Operator)
        type_reason = _unsupported_call_reason(call, self)
        if type_reason is not None:
            return Reject(type_reason)
        first_rejection: Reject | None = None
        for rule in (*self.by_name.get(call.callee.name, ()), *self.by_name.get(ANY, ())):
            verdict = _rule_verdict(self, rule, call)
            if not isinstance(verdict, Reject):
                return verdict
            first_rejection = first_rejection or verdict
        return first_rejection or _no_rule(call)


@dataclass(frozen=True, eq=False)
class Claim:
    """Calls that a target accepts as a unit. `target` is the target's number; `members` are the calls, starting with the one that
    computes the result; `composite` is the rule that the calls match, None for a single operator."""

    target: int
    members: tuple[ir.Call, ...]
    verdict: Accept | AcceptIf
    composite: OpRule | None = None

    @property
    def root(self) -> ir.Call:
        """Call that computes the result."""
        return self.members[0]


@dataclass(frozen=True)
class Annotated:
    """The claims on a `function`. `calls` are its operator calls in topological order. `verdicts` maps the id of a call to the
    verdicts of all targets, in order; a target accepts a call if any of its claims contains the call. `claims` are in the order of
    their roots."""

    function: ir.Function
    calls: tuple[ir.Call, ...]
    verdicts: Mapping[int, tuple[Verdict, ...]]
    claims: tuple[Claim, ...]
    positions: Mapping[int, int] = field(repr=False)


def targeted(expr: ir.Expr) -> bool:
    """Test whether an expression is an operator call that runs on a target. Planned operators run in the executor instead."""
    return isinstance(expr, ir.Call) and isinstance(expr.callee, Operator) and not expr.callee.planned


def annotate(function: ir.Function, candidates: Sequence[Candidate]) -> Annotated:
    """Find the claims of each target on a function, and the reasons why targets reject operators."""
    scopes = analyse(function)
    calls = tuple(node for node in ir.post_order(function) if isinstance(node, ir.Call) and targeted(node))
    verdicts: dict[int, list[Verdict]] = {id(call): [candidate.judge(call) for candidate in candidates] for call in calls}
    claims: list[Claim] = []
    reasons_of_members: dict[tuple[int, int], list[str]] = {}
    for call in calls:
        for number, candidate in enumerate(candidates):
            call_verdict = verdicts[id(call)][number]
            if not isinstance(call_verdict, Reject):
                claims.append(Claim(number, (call,), call_verdict))
            reasons: list[str] = []
            for rule, pattern_match in _composites(candidate, call):
                composite_verdict = _judge_composite(candidate, rule, pattern_match, scopes)
                if isinstance(composite_verdict, Reject):
                    needs_no_name = len(pattern_match.calls) == 1 or (
                        isinstance(call_verdict, Reject) and composite_verdict.reason == call_verdict.reason
                    )
                    reasons.append(
                        composite_verdict.reason if needs_no_name else f"as {described(rule)}: {composite_verdict.reason}"
                    )
                    for member in pattern_match.calls[1:]:
                        reasons_of_members.setdefault((id(member), number), []).append(
                            f"as {described(rule)}: {composite_verdict.reason}"
                        )
                    continue
                claims.append(Claim(number, pattern_match.calls, composite_verdict, rule))
                for member in pattern_match.calls:
                    if isinstance(verdicts[id(member)][number], Reject):
                        verdicts[id(member)][number] = composite_verdict
            if isinstance(verdicts[id(call)][number], Reject) and isinstance(call_verdict, Reject):
                verdicts[id(call)][number] = _with_reasons(call_verdict, call, candidate, reasons)
    for call in calls:
        for number, candidate in enumerate(candidates):
            verdict = verdicts[id(call)][number]
            if isinstance(verdict, Reject):
                verdicts[id(call)][number] = _with_reasons(verdict, call, candidate, reasons_of_members.get((id(call), number), ()))
    return Annotated(
        function,
        calls,
        {key: tuple(value) for key, value in verdicts.items()},
        tuple(claims),
        {id(call): number for number, call in enumerate(calls)},
    )


def in_full(reject: Reject, call: ir.Call, candidate: Candidate) -> Reject:
    """Extend an operator's rejection by the reasons why composites that end at it do not match."""
    return _with_reasons(reject, call, candidate, _mismatches(candidate, call))


def _with_reasons(reject: Reject, call: ir.Call, candidate: Candidate, reasons: Sequence[str]) -> Reject:
    """Extend a rejection by the reasons of composites, if any. These replace the reason that the target has no rule for the single
    operator, or does not support an element type, as it may support that operator or element type in composites."""
    if not reasons:
        return reject
    first = () if reject.reason in (_no_rule(call).reason, _unsupported_call_reason(call, candidate)) else (reject.reason,)
    return Reject("; ".join(dict.fromkeys((*first, *reasons))))


def _no_rule(call: ir.Call) -> Reject:
    assert isinstance(call.callee, Operator)
    return Reject(f"has no rule for {call.callee.name}")


def _mismatches(candidate: Candidate, call: ir.Call) -> tuple[str, ...]:
    reasons = []
    for rule, pattern in candidate.composites:
        roots = pattern.roots()
        assert isinstance(call.callee, Operator)
        if roots is not None and call.callee.name in roots:
            reason = explain_mismatch(pattern, call)
            if reason is not None:
                reasons.append(f"{described(rule)} does not match: {reason}")
    return tuple(reasons)


def _composites(candidate: Candidate, call: ir.Call) -> list[tuple[OpRule, Match]]:
    """Return the composites of a target that match and end at a call."""
    assert isinstance(call.callee, Operator)
    composites = []
    for rule, pattern in candidate.composites:
        roots = pattern.roots()
        if roots is None or call.callee.name in roots:
            with blame(candidate.plugin, f"the pattern of rule {described(rule)}", nodes=node_names((call,))):
                pattern_match = match(pattern, call)
            if pattern_match is not None and pattern_match.calls:
                composites.append((rule, pattern_match))
    return composites


def _judge_composite(candidate: Candidate, rule: OpRule, pattern_match: Match, scopes: Scopes) -> Verdict:
    for type_ in _stored_types(pattern_match):
        type_reason = _unsupported_type_reason(type_, candidate)
        if type_reason is not None:
            return Reject(type_reason)
    leak = _leak(pattern_match.calls, scopes)
    if leak is not None:
        return Reject(f"the value of {named(leak)} inside the composite is also read outside")
    verdict = _rule_verdict(candidate, rule, pattern_match)
    reason = None if isinstance(verdict, Reject) else unlike(pattern_match, candidate.requantization)
    return verdict if reason is None else Reject(reason)


def _stored_types(pattern_match: Match) -> Iterator[Type]:
    """Yield the types that a target must support to run a composite: of its result, and of its operands, including constant
    operands of products, such as weights. A code generator can convert other constants. Types of inner values do not matter."""
    member_ids = {id(call) for call in pattern_match.calls}
    for call in pattern_match.calls:
        assert isinstance(call.callee, Operator)
        multiplies = call.callee.fusion is FusionKind.COMPLEX_OUT_FUSABLE
        for arg in call.args:
            source = arg.tuple if isinstance(arg, ir.TupleItem) else arg
            if id(source) not in member_ids and (multiplies or not isinstance(arg, ir.Constant)):
                yield arg.type
    yield pattern_match.root.type


def _rule_verdict(candidate: Candidate, rule: OpRule, call_or_match: ir.Call | Match) -> Verdict:
    """Return the verdict of a rule. A condition that is provably true or false is resolved."""
    verdict: Verdict = Accept()
    if rule.predicate is not None:
        calls = call_or_match.calls if isinstance(call_or_match, Match) else (call_or_match,)
        with blame(candidate.plugin, f"the predicate of rule {described(rule)}", nodes=node_names(calls)):
            verdict = rule.predicate(call_or_match)
            if not isinstance(verdict, Verdict):
                raise PluginError(f"the predicate of rule {described(rule)} must return a verdict, got {type(verdict).__name__}")
            if isinstance(verdict, AcceptIf) and not isinstance(verdict.constraint, (int, arith.Expr)):
                raise PluginError(
                    f"the predicate of rule {described(rule)} must return a condition on dimensions, got {verdict.constraint!r}"
                )
    if not isinstance(verdict, AcceptIf):
        return verdict
    constraint = arith.simplify(verdict.constraint)
    if arith.prove(constraint):
        return Accept(verdict.seconds)
    if constraint == arith.ZERO:
        return Reject(f"{verdict.constraint!r} does not hold")
    return verdict


def node_names(calls: Sequence[ir.Call]) -> tuple[str, ...]:
    """Return the source nodes of calls, in order."""
    return tuple(dict.fromkeys(str(call.span) for call in calls if call.span is not None))


def _leak(members: tuple[ir.Call, ...], scopes: Scopes) -> ir.Call | None:
    """Return a member whose value is read outside of the members, or that is in another scope than the first; None without one."""
    members_by_id: dict[int, ir.Expr] = {id(call): call for call in members}
    inner_uses: dict[int, int] = {}
    wiring: dict[int, ir.Call] = {}
    stack: list[ir.Expr] = list(members)
    while stack:
        expr = stack.pop()
        for child in ir.children(expr):
            inner_uses[id(child)] = inner_uses.get(id(child), 0) + 1
            if isinstance(child, ir.TupleItem) and id(child) not in wiring and id(child.tuple) in members_by_id:
                owner = members_by_id[id(child.tuple)]
                assert isinstance(owner, ir.Call)
                wiring[id(child)] = owner
                stack.append(child)
    root_scope = scopes.expr_scopes.get(id(members[0]))
    for call in members[1:]:
        if scopes.expr_scopes.get(id(call)) is not root_scope or scopes.uses[id(call)] != inner_uses.get(id(call), 0):
            return call
    return next((owner for key, owner in wiring.items() if scopes.uses[key] != inner_uses[key]), None)


def named(call: ir.Call) -> str:
    """Return an operator's name and source node, for messages."""
    assert isinstance(call.callee, Operator)
    return f"{call.callee.name} at {call.span}" if call.span is not None else call.callee.name


def _unsupported_call_reason(call: ir.Call, candidate: Candidate) -> str | None:
    """Return the reason why the target does not support the call's types; None if it does."""
    for type_ in (*(arg.type for arg in call.args), call.type):
        reason = _unsupported_type_reason(type_, candidate)
        if reason is not None:
            return reason
    return None


def _unsupported_type_reason(type_: Type, candidate: Candidate) -> str | None:
    match type_:
        case TensorType(dtype=dtype):
            if dtype.name not in candidate.dtypes:
                return f"element type {dtype} is not among its capabilities"
            if not candidate.dynamic_dims and not type_.is_static:
                return f"the dimensions of {type_!r} are not static"
            return None
        case TupleType(fields=fields):
            return next((reason for reason in (_unsupported_type_reason(field, candidate) for field in fields) if reason), None)
        case SequenceType() | OptionalType() if "sequence" not in candidate.dtypes:
            return "sequences and optionals are supported only on the host"
    return None
