"""Validates operator rules: unknown operator names, and composites without a name."""

from __future__ import annotations

from inlaid import ops
from inlaid.graph.pattern import Pattern, pattern_operators
from inlaid.plugins.contract import OpRule
from inlaid_runtime.errors import PluginError, suggestion

ANY = "*"
"""Pattern of a rule for every operator."""


def check_rule(rule: OpRule) -> None:
    """Raise `PluginError` for a rule that names an unknown operator, since it would never match, and for a composite pattern
    without a name, since code generators identify composites by name. Names of vendors' operators contain a dot."""
    if isinstance(rule.pattern, Pattern):
        mentioned = tuple(item if isinstance(item, str) else item.name for item in pattern_operators(rule.pattern))
        operator_names = {item.name for item in pattern_operators(rule.pattern) if not isinstance(item, str)}
    else:
        mentioned, operator_names = (rule.pattern,), {ANY}
    unknown = next((name for name in mentioned if name not in ops.TABLE and name not in operator_names and "." not in name), None)
    if unknown is not None:
        raise PluginError(
            f"rule {described(rule)} names the unknown operator {unknown!r}{suggestion(unknown, ops.TABLE)}",
            remedy="inlaid.ops.TABLE lists all operators; a vendor's own are named vendor.name",
        )
    if isinstance(rule.pattern, Pattern) and not rule.name:
        raise PluginError(
            f"rule {described(rule)} has no name, which steps and reports need to identify the composite",
            remedy='name it: OpRule(pattern, "name")',
        )


def described(rule: OpRule) -> str:
    """Return a rule's name or, without one, its operators."""
    if rule.name or isinstance(rule.pattern, str):
        return rule.name or str(rule.pattern)
    names = [item if isinstance(item, str) else item.name for item in pattern_operators(rule.pattern)]
    return f"over {', '.join(names) or 'any expression'}"
