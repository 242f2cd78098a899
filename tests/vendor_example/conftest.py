"""Fixture with the vendors' plugins, loaded from their projects' entry points without installing them, and an option of tests."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from inlaid.plugins.registry import PluginRegistry, default_registry

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "examples" / "acme" / "pyproject.toml", *sorted(Path(__file__).parent.glob("*/pyproject.toml"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs every planted mistake."""
    parser.addoption("--mistakes", action="store_true", help="plant every mistake in the example, not a sample")


def _entry_points(project: Path) -> list[EntryPoint]:
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    return [EntryPoint(name, module, group) for group, points in groups.items() for name, module in points.items()]


@pytest.fixture(scope="session")
def vendors() -> PluginRegistry:
    """A registry with the installed plugins and these."""
    sys.path.extend(str(project.parent / "src") for project in PROJECTS)
    points = [point for project in PROJECTS for point in _entry_points(project)]
    registry = PluginRegistry.discover([*default_registry().entry_points, *points])
    assert not registry.problems() and not registry.runtimes.problems()
    return registry
