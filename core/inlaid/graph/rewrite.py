"""Rule-based rewriting in one post-order sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from inlaid.graph.ir import Call, Expr, Module, Span, Var, children, rebuild
from inlaid.graph.operator import NO_TRAITS, Operator, Traits
from inlaid.graph.pattern import Match, Pattern, match
from inlaid.graph.transform import map_functions, transform, transform_function
from inlaid.graph.unify import fits
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.records import dataclass

MAX_GENERATIONS = 64
"""Maximum number of successive replacements of one expression; more means that the rules oscillate."""


@dataclass(frozen=True)
class RewriteRule:
    """Replaces an expression that `pattern` matches by `build(match)`, which must have the same type; keeps the expression if
    `build` returns None. If `traits` is given, the rule applies only to calls of operators whose `Traits` satisfy it."""

    name: str
    pattern: Pattern
    build: Callable[[Match], Expr | None]
    traits: Callable[[Traits], bool] | None = None


def rewrite(unit: Module, rules: Sequence[RewriteRule]) -> Module:
    """Apply rules to a module wherever they match. The first matching rule wins.

    Each expression is visited once, after its children. Rules are applied to it and to its replacements until none matches; other
    expressions are not revisited, so the cost is linear in the size of the graph. A new expression without a span takes the span of
    the one that it replaces. Returns the same object if no rule matches. Raises `VerifyError`, naming the rules, if they oscillate
    or change a type.
    """
    return map_functions(unit, lambda target: transform_function(target, _Rewriter(rules).visit))


def rewrite_expr(expr: Expr, rules: Sequence[RewriteRule]) -> Expr:
    """Apply rules to an expression, as `rewrite` does to a module."""
    return transform(expr, _Rewriter(rules).visit)


def with_span(expr: Expr, span: Span | None) -> Expr:
    """Add a span to an expression that has none. A variable is returned unchanged, because its binder refers to the object."""
    if expr.span is not None or span is None or isinstance(expr, Var):
        return expr
    return dataclasses.replace(expr, span=span)


def spread_span(expr: Expr, span: Span | None) -> Expr:
    """Add a span to a newly built expression and to its descendants, stopping at expressions that have a span. Call this before
    other expressions refer to the new ones."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if part.span is None and span is not None and not isinstance(part, Var):
            object.__setattr__(part, "span", span)
            stack.extend(children(part))
    return expr


class _Rewriter:
    """One sweep. `_replacements` maps the id of each visited expression to (the expression, its replacement)."""

    def __init__(self, rules: Sequence[RewriteRule]) -> None:
        self._rules = [(rule, rule.pattern.roots()) for rule in rules]
        self._by_operator: dict[Operator | None, list[RewriteRule]] = {}
        self._replacements: dict[int, tuple[Expr, Expr]] = {}

    def visit(self, old: Expr, new: Expr) -> Expr:
        """Rewrite an expression whose children are already rewritten."""
        pending_replacements: dict[int, Expr] = {}
        generation = {id(new): 0}
        applied_rules: list[str] = []
        stack = [new]
        while stack:
            expr = stack[-1]
            if id(expr) in self._replacements:
                stack.pop()
            elif id(expr) in pending_replacements:
                if id(pending_replacements[id(expr)]) not in self._replacements:
                    raise _oscillation(applied_rules, old.span)
                self._replacements[id(expr)] = expr, self._replacements[id(pending_replacements[id(expr)])][1]
            elif unvisited := [part for part in children(expr) if id(part) not in self._replacements]:
                generation.update((id(part), generation[id(expr)]) for part in unvisited if id(part) not in generation)
                stack += unvisited
            else:
                candidate = with_span(rebuild(expr, tuple(self._replacements[id(part)][1] for part in children(expr))), old.span)
                rule, replacement = self._apply(candidate)
                if replacement is None:
                    self._replacements[id(expr)] = expr, candidate
                    self._replacements[id(candidate)] = candidate, candidate
                    continue
                applied_rules.append(rule)
                if generation[id(expr)] == MAX_GENERATIONS or replacement is expr:
                    raise _oscillation(applied_rules, old.span)
                generation.setdefault(id(replacement), generation[id(expr)] + 1)
                pending_replacements[id(expr)] = replacement
                stack.append(replacement)
        return self._replacements[id(new)][1]

    def _apply(self, expr: Expr) -> tuple[str, Expr | None]:
        """Return the name of the first rule that matches an expression, and its replacement."""
        for rule in self._candidates(expr):
            rule_match = match(rule.pattern, expr)
            replacement = None if rule_match is None else rule.build(rule_match)
            if replacement is not None:
                if not fits(expr.type, replacement.type):
                    raise VerifyError(
                        f"rule {rule.name} must keep the type {expr.type!r}, but its replacement has type {replacement.type!r}",
                        node=str(expr.span or "") or None,
                    )
                return rule.name, replacement
        return "", None

    def _candidates(self, expr: Expr) -> Sequence[RewriteRule]:
        operator = expr.callee if isinstance(expr, Call) and isinstance(expr.callee, Operator) else None
        rules = self._by_operator.get(operator)
        if rules is None:
            name, traits = ("", NO_TRAITS) if operator is None else (operator.name, operator.traits)
            candidates = [rule for rule, roots in self._rules if roots is None or name in roots]
            rules = self._by_operator[operator] = [rule for rule in candidates if rule.traits is None or rule.traits(traits)]
        return rules


def _oscillation(applied_rules: list[str], span: Span | None) -> VerifyError:
    names = ", ".join(dict.fromkeys(applied_rules[-MAX_GENERATIONS:]))
    return VerifyError(f"rewrite rules oscillate: {names}", node=str(span or "") or None)
