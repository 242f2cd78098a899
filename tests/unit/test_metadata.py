"""Versions, extras, plugin folders and the settings of tools are in step."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import inlaid

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
VERSION = PROJECT["project"]["version"]
OTHERS = {"conformance": ["hypothesis>=6.100", "pytest>=8"], "cost": ["scipy>=1.11"]}
"""Extras that are no plugins."""


def series(version: str) -> str:
    """The versions of a release series: the same major and minor number."""
    major, minor, _ = version.split(".")
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def extras(monkeypatch: pytest.MonkeyPatch, released: bool) -> dict[str, list[str]]:
    """What the build hook makes of the checkout."""
    monkeypatch.setenv("INLAID_RELEASE", "1" if released else "")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {"version": VERSION}
    module.CustomMetadataHook(str(ROOT), {}).update(metadata)
    return metadata["optional-dependencies"]


def test_there_is_a_plugin():
    assert PLUGINS


def test_every_folder_of_plugins_is_one():
    folders = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and any(path.glob("*.*"))}
    assert folders == set(PLUGINS)


def test_the_package_states_the_version_of_its_project():
    assert inlaid.__version__ == VERSION


def test_the_changelog_knows_the_version():
    headings = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert VERSION in headings or len(headings) == 1, "a released version has a section of its own"


def test_extras_of_a_checkout_are_the_plugin_folders(monkeypatch):
    expected = {name: [f"inlaid-{name.replace('_', '-')} @ {(ROOT / 'plugins' / name).as_uri()}"] for name in PLUGINS}
    assert extras(monkeypatch, released=False) == {**expected, **OTHERS}


def test_extras_of_a_release_are_versions(monkeypatch):
    expected = {name: [f"inlaid-{name.replace('_', '-')}{series(VERSION)}"] for name in PLUGINS}
    assert extras(monkeypatch, released=True) == {**expected, **OTHERS}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_is_named_after_its_folder_and_in_step_with_the_core(name):
    folder = ROOT / "plugins" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == f"inlaid-{name.replace('_', '-')}"
    assert project["version"] == VERSION
    assert f"inlaid{series(VERSION)}" in project["dependencies"]
    assert project["requires-python"] == PROJECT["project"]["requires-python"]
    assert project["entry-points"] == {"inlaid.plugins": {name: f"inlaid_{name}.plugin"}}
    package = folder / "src" / f"inlaid_{name}"
    for part in (package / "plugin.py", package / "py.typed", folder / "README.md", folder / "LICENSE", folder / "tests"):
        assert part.exists(), part


@pytest.mark.parametrize("name", PLUGINS)
def test_the_tools_look_at_every_plugin(name):
    tool, package = PROJECT["tool"], f"inlaid_{name}"
    assert f"plugins/{name}/src" in tool["ruff"]["src"]
    assert package in tool["mypy"]["packages"]
    assert f"plugins/{name}/src" in tool["mypy"]["mypy_path"].split(":")
    assert package in tool["importlinter"]["root_packages"]
    forbidden = next(item for item in tool["importlinter"]["contracts"] if item["type"] == "forbidden")
    assert package in forbidden["forbidden_modules"]


def test_the_import_contract_lists_every_part_of_the_core():
    layers = next(item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    listed = {part for layer in layers["layers"] for part in layer.split(" | ")}
    parts = {path.stem for path in (ROOT / "core" / "inlaid").iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
    assert listed == parts - {"__init__"}


def test_no_part_of_the_core_hides_a_public_function():
    # `import inlaid.partition` would put the package in place of the function `inlaid.partition`.
    packages = {"onnx_backend", "ops", "runtime"}
    hidden = {name for name in inlaid.__all__ if importlib.util.find_spec(f"inlaid.{name}") is not None}
    assert hidden == packages
    assert all(getattr(inlaid, name) is not None for name in inlaid.__all__)


def test_the_core_is_marked_as_typed():
    assert (ROOT / "core" / "inlaid" / "py.typed").exists()
