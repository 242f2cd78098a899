"""Plugins that tests make of hooks, beside the core's own."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.plugins.hookspecs import GROUP as RUNTIME_GROUP


def both_halves(name: str, module: str, run_module: str | None = None) -> list[EntryPoint]:
    """The entry points of a plugin whose run module is its compile module, unless given."""
    return [EntryPoint(name, module, GROUP), EntryPoint(name, run_module or module, RUNTIME_GROUP)]


def discover(points: Iterable[EntryPoint]) -> PluginRegistry:
    """A registry of plugins whose run modules are their compile modules."""
    return PluginRegistry.discover([half for point in points for half in both_halves(point.name, point.value)])


def installed_halves(*names: str) -> list[EntryPoint]:
    """The entry points of installed plugins."""
    return [point for group in (GROUP, RUNTIME_GROUP) for point in entry_points(group=group) if point.name in names]


REFERENCE = both_halves("reference", "inlaid.reference.plugin", "inlaid.reference.runtime_plugin")
"""Entry points of the reference target."""


def registry_with(kind: str, *hooks: Callable[..., Any]) -> PluginRegistry:
    """A registry with a plugin that provides a kind of target by such hooks, and the reference."""
    module: Any = types.ModuleType(f"{kind}_target_of_a_test")
    module.PLUGIN_API_VERSION = 3
    for hook in hooks:
        setattr(module, hook.__name__, hook)
    sys.modules[module.__name__] = module
    try:
        registry = PluginRegistry.discover([*both_halves(kind, module.__name__), *REFERENCE])
        assert not registry.runtimes.problems(), registry.runtimes.problems()
    finally:
        del sys.modules[module.__name__]
    assert not registry.problems(), registry.problems()
    return registry
