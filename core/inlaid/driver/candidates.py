"""Targets with their operator rules."""

from __future__ import annotations

from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.rules import check_rule
from inlaid.plugins import Target
from inlaid.plugins.registry import PluginRegistry


def build_candidate(target: Target, registry: PluginRegistry) -> Candidate:
    """Return a target with its operator rules. Raises `PluginError` for invalid rules."""
    capabilities = registry.capabilities(target)
    dtypes, plugin = frozenset(capabilities.dtypes), registry.owner(target.kind)
    rules = registry.op_rules(target, check_rule)
    return Candidate(target, rules, dtypes, capabilities.dynamic_dims, plugin, capabilities.requantization)
