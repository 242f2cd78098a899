"""The simulated accelerator, beside the plugins that tests of it need."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.plugin_registry import both_halves, installed_halves

from inlaid.plugins.registry import PluginRegistry


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    core_halves = installed_halves("reference", "x86")
    return PluginRegistry.discover([*core_halves, *both_halves("discrete", "discrete.plugin")])


@pytest.fixture
def machines(registry):
    from discrete.machine import MACHINES, Machine

    MACHINES[:] = [Machine(0), Machine(1)]
    return MACHINES
