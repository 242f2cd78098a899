"""Plugins that tests make of hooks, beside the core's own."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Callable
from typing import Any

from inlaid.plugins.registry import PluginRegistry


def registry_with(kind: str, *hooks: Callable[..., Any]) -> PluginRegistry:
    """A registry with a plugin that provides a kind of target by such hooks, and the reference."""
    module: Any = types.ModuleType(f"{kind}_target_of_a_test")
    module.PLUGIN_API_VERSION = 2
    for hook in hooks:
        setattr(module, hook.__name__, hook)
    sys.modules[module.__name__] = module
    points = [(kind, module.__name__), ("reference", "inlaid.reference.plugin")]
    try:
        found = PluginRegistry.discover([importlib.metadata.EntryPoint(*point, "inlaid.plugins") for point in points])
    finally:
        del sys.modules[module.__name__]
    assert not found.problems(), found.problems()
    return found
