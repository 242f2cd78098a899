"""Locks: the placement of each operator in a file that a later compilation replays.

Operators are identified by name and source node, with a number if several have the same; targets by the user's string. A lock stays
valid while the model and its canonical form are unchanged, even if the rules of plugins change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from inlaid.graph.operator import Operator
from inlaid.partitioning.annotate import Annotated, Candidate, Claim
from inlaid.partitioning.assignment import check_complete
from inlaid.partitioning.outline import Partitioned, Placer
from inlaid_runtime.errors import CompileError, InputError
from inlaid_runtime.records import dataclass

VERSION = 1
"""Version of the file format."""
REMEDY = "write it again with inlaid partition --lock FILE"


@dataclass(frozen=True)
class LockedPlacement:
    """The placement of one claim: the target, the rule's name for a composite, and the names of the operators, starting with the
    one that computes the result."""

    target: str
    composite: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Lock:
    """The decisions for a model, by function name."""

    functions: Mapping[str, tuple[LockedPlacement, ...]]

    @staticmethod
    def from_partition(partitioned: Partitioned, candidates: Sequence[Candidate]) -> Lock:
        """Create the lock of a partitioned module."""
        return Lock({item.name: _decisions(item.annotated, item.claims, candidates) for item in partitioned.placements})

    def to_text(self) -> str:
        """Format the lock as JSON, one line per operator or composite."""
        functions = []
        for name, decisions in self.functions.items():
            lines = [json.dumps([item.target, item.composite, *item.operators]) for item in decisions]
            body = ",\n      ".join(lines)
            functions.append(f"    {json.dumps(name)}: [\n      {body}\n    ]" if lines else f"    {json.dumps(name)}: []")
        body = ",\n".join(functions)
        return f'{{\n  "version": {VERSION},\n  "functions": {{\n{body}\n  }}\n}}\n'

    @staticmethod
    def from_text(text: str) -> Lock:
        """Parse a lock. Raises `InputError` for invalid text or another version."""
        try:
            data = json.loads(text)
            version, functions = data["version"], data["functions"].items()
            decisions = {name: tuple(_decision(entry) for entry in entries) for name, entries in functions}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"this is not a valid lock: {error}", remedy=REMEDY) from error
        if version != VERSION:
            raise InputError(f"expected lock version {VERSION}, got {version}", remedy=REMEDY)
        return Lock(decisions)

    def differences(self, other: Lock) -> tuple[str, ...]:
        """Return the differences from another lock as lines: "-" for a decision of this lock, "+" for one of the other lock."""
        lines = []
        for name in dict.fromkeys((*self.functions, *other.functions)):
            targets, other_targets = (_targets_by_operator(lock.functions.get(name, ())) for lock in (self, other))
            for operator in dict.fromkeys((*targets, *other_targets)):
                before, after = targets.get(operator), other_targets.get(operator)
                if before != after:
                    lines += [f"- {operator}: {before}"] if before else []
                    lines += [f"+ {operator}: {after}"] if after else []
        return tuple(lines)


def replay(lock: Lock, candidates: Sequence[Candidate], fresh: Placer, report: Callable[[tuple[str, ...]], None]) -> Placer:
    """Return a placement algorithm that follows a lock. `fresh` is the algorithm to use without the lock; if it places operators
    differently, `report` gets the differences. Raises `CompileError` if the lock is for another model, or if a target no longer
    accepts an operator."""
    targets = {candidate.target.kind: number for number, candidate in reversed(list(enumerate(candidates)))}
    targets.update((str(candidate.target), number) for number, candidate in enumerate(candidates))

    def assign_as_locked(name: str, annotated: Annotated) -> tuple[Claim, ...]:
        decisions = lock.functions.get(name, ())
        names = _names(annotated)
        claims = {(claim.target, _decision_for(claim, names, candidates)): claim for claim in annotated.claims}
        operator_names = set(names.values())
        locked_claims = []
        for decision in decisions:
            unknown_operator = next((operator for operator in decision.operators if operator not in operator_names), None)
            if unknown_operator is not None:
                raise CompileError(f"the lock is for another model: this model has no {unknown_operator}", remedy=REMEDY)
            if decision.target not in targets:
                raise CompileError(f"the lock needs target {decision.target}, which is not listed", remedy=REMEDY)
            number = targets[decision.target]
            target_text = str(candidates[number].target)
            claim = claims.get((number, LockedPlacement(target_text, decision.composite, decision.operators)))
            if claim is None:
                part = f" as {decision.composite}" if decision.composite else ""
                what = ", ".join(decision.operators)
                raise CompileError(f"{decision.target} no longer accepts {what}{part}, but the lock places it there", remedy=REMEDY)
            locked_claims.append(claim)
        order = {id(claim): position for position, claim in enumerate(annotated.claims)}
        locked = tuple(sorted(locked_claims, key=lambda claim: order[id(claim)]))
        check_complete(annotated, locked, candidates)
        fresh_lock = Lock({name: _decisions(annotated, fresh(name, annotated), candidates)})
        differences = Lock({name: _decisions(annotated, locked, candidates)}).differences(fresh_lock)
        if differences:
            report(differences)
        return locked

    return assign_as_locked


def _decision(entry: list[str]) -> LockedPlacement:
    if not isinstance(entry, list) or len(entry) < 3 or not all(isinstance(item, str) for item in entry):
        raise ValueError(f"expected a decision, got {entry!r}")
    target, composite, *operators = entry
    return LockedPlacement(target, composite, tuple(operators))


def _decisions(annotated: Annotated, claims: Sequence[Claim], candidates: Sequence[Candidate]) -> tuple[LockedPlacement, ...]:
    names = _names(annotated)
    return tuple(_decision_for(claim, names, candidates) for claim in claims)


def _decision_for(claim: Claim, names: Mapping[int, str], candidates: Sequence[Candidate]) -> LockedPlacement:
    composite = "" if claim.composite is None else claim.composite.name
    operators = tuple(names[id(call)] for call in claim.members)
    return LockedPlacement(str(candidates[claim.target].target), composite, operators)


def _names(annotated: Annotated) -> dict[int, str]:
    """Return unique names of operators, by id of their calls."""
    names_by_call: dict[int, str] = {}
    counts: dict[str, int] = {}
    for call in annotated.calls:
        assert isinstance(call.callee, Operator)
        name = call.callee.name if call.span is None else f"{call.callee.name} at {call.span.node}"
        counts[name] = counts.get(name, 0) + 1
        names_by_call[id(call)] = name if counts[name] == 1 else f"{name} #{counts[name]}"
    return names_by_call


def _targets_by_operator(decisions: Sequence[LockedPlacement]) -> dict[str, str]:
    """Return the target of each operator, for messages."""
    return {
        operator: f"{item.target} as {item.composite}" if item.composite else item.target
        for item in decisions
        for operator in item.operators
    }
