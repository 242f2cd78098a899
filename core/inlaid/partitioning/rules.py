"""What is wrong with a rule whatever it is asked: names that are nobody's, and composites without one."""

from __future__ import annotations

from inlaid import ops
from inlaid.errors import PluginError, suggestion
from inlaid.graph.pattern import Pattern, operators_of
from inlaid.plugins.contract import OpRule

ANY = "*"
"""The pattern of a rule for every operator."""


def check_rule(rule: OpRule) -> None:
    """Raises `PluginError` for a rule that names an operator that there is not, and would never be asked, and for a pattern without
    a name, by which code generators know what they are given. A vendor's own operators have a dot in their names."""
    if isinstance(rule.pattern, Pattern):
        mentioned = tuple(item if isinstance(item, str) else item.name for item in operators_of(rule.pattern))
        known = {item.name for item in operators_of(rule.pattern) if not isinstance(item, str)}
    else:
        mentioned, known = (rule.pattern,), {ANY}
    unknown = next((name for name in mentioned if name not in ops.TABLE and name not in known and "." not in name), None)
    if unknown is not None:
        raise PluginError(
            f"rule {described(rule)} names {unknown!r}, which is no operator{suggestion(unknown, ops.TABLE)}",
            remedy="inlaid.ops.TABLE has them all; a vendor's own are vendor.name",
        )
    if isinstance(rule.pattern, Pattern) and not rule.name:
        raise PluginError(
            f"rule {described(rule)} has no name, by which steps and reports could call what it takes",
            remedy='give it one: OpRule(pattern, "name")',
        )


def described(rule: OpRule) -> str:
    """A rule in words: its name, or else its operators."""
    if rule.name or isinstance(rule.pattern, str):
        return rule.name or str(rule.pattern)
    names = [item if isinstance(item, str) else item.name for item in operators_of(rule.pattern)]
    return f"over {', '.join(names) or 'any expression'}"
