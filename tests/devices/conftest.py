"""The simulated accelerator, beside the plugins that tests of it need."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    own = [point for point in entry_points(group=GROUP) if point.name in ("reference", "x86")]
    return PluginRegistry.discover([*own, EntryPoint("discrete", "discrete.plugin", GROUP)])


@pytest.fixture
def machines(registry):
    from discrete.machine import MACHINES, Machine

    MACHINES[:] = [Machine(0), Machine(1)]
    return MACHINES
