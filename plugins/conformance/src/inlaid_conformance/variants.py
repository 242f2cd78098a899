"""Expands a pattern with alternatives into patterns without alternatives, such that each alternative occurs in one pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from inlaid.graph.ir import Constant
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import (
    CallPattern,
    Dominates,
    Either,
    ItemPattern,
    Kind,
    Named,
    OpPattern,
    Pattern,
    TuplePattern,
    Where,
    Wildcard,
)

Branch = tuple[int, int]
"""An alternative of a pattern: the id of a part with alternatives, and the index of the alternative."""


@dataclass(frozen=True)
class Variant:
    """A pattern without alternatives, and `branches`, the alternatives chosen in the original pattern."""

    pattern: Pattern
    branches: frozenset[Branch]

    @property
    def single(self) -> bool:
        """Whether the pattern is a single operator."""
        return str(self).count("(") < 2

    def __str__(self) -> str:
        return _text(self.pattern)


def variants(pattern: Pattern) -> tuple[Variant, ...]:
    """Return the variants of a pattern: with all optional parts and with none, and both with each alternative in turn."""
    by_branches: dict[frozenset[Branch], Variant] = {}
    for base in (0, -1):
        waiting: list[Mapping[int, int]] = [{}]
        queued: set[Branch] = set()
        for selection in waiting:
            fixed = _Fixed(selection, base)
            resolved_pattern = fixed.resolve(pattern)
            branches = frozenset((point, number) for point, (number, _) in fixed.branch_points.items())
            by_branches.setdefault(branches, Variant(resolved_pattern, branches))
            for point, (_, count) in fixed.branch_points.items():
                new_branches = {(point, number) for number in range(count)} - branches - queued
                queued |= new_branches | branches
                waiting += [{**selection, point: number} for _, number in sorted(new_branches)]
    return tuple(by_branches.values())


@dataclass
class _Fixed:
    """One choice of alternatives in a pattern: `selection` has chosen alternatives, by id of the part; for other parts, `base`
    chooses the first or the last. `branch_points` has the parts with alternatives, each with the chosen index and the number of
    alternatives."""

    selection: Mapping[int, int]
    base: int
    branch_points: dict[int, tuple[int, int]] = field(default_factory=dict)
    cache: dict[int, Pattern] = field(default_factory=dict)

    def resolve(self, part: Pattern) -> Pattern:
        """Return a part with its alternatives resolved, cached."""
        if id(part) not in self.cache:
            self.cache[id(part)] = self._resolve(part)
        return self.cache[id(part)]

    def _resolve(self, part: Pattern) -> Pattern:
        match part:
            case Either(first, second):
                return self.resolve((first, second)[self._number(part, 2)])
            case OpPattern(operators):
                return OpPattern((operators[self._number(part, len(operators))],))
            case CallPattern(operators, args):
                return CallPattern((operators[self._number(part, len(operators))],), tuple(map(self.resolve, args)))
            case Named(inner) | Where(inner):
                return replace(part, inner=self.resolve(inner))
            case TuplePattern(fields):
                return TuplePattern(tuple(map(self.resolve, fields)))
            case ItemPattern(value):
                return replace(part, value=self.resolve(value))
            case Dominates(parent, path, child):
                top = self.resolve(parent)
                return _with_source(self.resolve(child), _with_source(self.resolve(path), top) if self._number(part, 2) else top)
        return part

    def _number(self, part: Pattern, count: int) -> int:
        number = self.selection.get(id(part), self.base) % count
        if count > 1:
            self.branch_points[id(part)] = number, count
        return number


def _with_source(part: Pattern, source: Pattern) -> Pattern:
    """Replace the first wildcard argument of a pattern by `source`."""
    match part:
        case Wildcard():
            return source
        case OpPattern(operators):
            (operator,) = operators
            least = operator.arity[0] if isinstance(operator, Operator) else 1
            return CallPattern(operators, (source, *(Wildcard() for _ in range(least - 1))))
        case Named(inner) | Where(inner):
            replaced = _with_source(inner, source)
            return part if replaced is inner else replace(part, inner=replaced)
        case CallPattern(operators, args):
            for number, arg in enumerate(args):
                replaced = _with_source(arg, source)
                if replaced is not arg:
                    return CallPattern(operators, (*args[:number], replaced, *args[number + 1 :]))
    return part


def _text(part: Pattern) -> str:
    """Format a pattern without alternatives."""
    match part:
        case Named(inner, name):
            return name if isinstance(inner, (Wildcard, Kind)) else _text(inner)
        case Where(inner):
            return _text(inner)
        case OpPattern((operator,)):
            return f"{_name(operator)}(...)"
        case CallPattern((operator,), args):
            return f"{_name(operator)}({', '.join(map(_text, args))})"
        case TuplePattern(fields):
            return f"tuple({', '.join(map(_text, fields))})"
        case ItemPattern(value, index):
            return f"{_text(value)}[{'*' if index is None else index}]"
        case Kind(kind):
            return "const" if kind is Constant else kind.__name__.lower()
    return "*"


def _name(operator: str | Operator) -> str:
    return operator if isinstance(operator, str) else operator.name
