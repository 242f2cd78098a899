"""The passes that plugins provide for a target."""

from __future__ import annotations

from typing import Any

from inlaid.passes.manager import PluginPass
from inlaid.plugins import Phase, Target
from inlaid.plugins.registry import PluginRegistry


def target_passes(target: Target, phase: Phase, registry: PluginRegistry) -> tuple[PluginPass[Any], ...]:
    """List the passes of all plugins for a target and phase, those of the target's own plugin first. They transform modules or, in
    the phases of kernels, loop programs."""
    return tuple(PluginPass(plugin, step) for plugin, step in registry.passes(target, phase))
