"""Fixture with the vendors' plugins, loaded from their projects' entry points without installing them, and an option of tests."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest

from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "examples" / "acme" / "pyproject.toml", *sorted(Path(__file__).parent.glob("*/pyproject.toml"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs every planted mistake."""
    parser.addoption("--mistakes", action="store_true", help="plant every mistake in the example, not a sample")


def _entry_points(project: Path) -> list[importlib.metadata.EntryPoint]:
    declared = tomllib.loads(project.read_text())["project"]["entry-points"][GROUP]
    return [importlib.metadata.EntryPoint(name, module, GROUP) for name, module in declared.items()]


@pytest.fixture(scope="session")
def vendors() -> PluginRegistry:
    """A registry with the installed plugins and these."""
    sys.path.extend(str(project.parent / "src") for project in PROJECTS)
    points = [point for project in PROJECTS for point in _entry_points(project)]
    registry = PluginRegistry.discover([*importlib.metadata.entry_points(group=GROUP), *points])
    assert not registry.problems()
    return registry
