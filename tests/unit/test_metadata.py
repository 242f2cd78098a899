"""Versions, extras, plugin folders and the settings of tools are in step."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import inlaid

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
VERSION = PROJECT["project"]["version"]
RUNTIME = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HALVES = [name for name in PLUGINS if f"inlaid_{name}.plugin" in RUNTIME["entry-points"]["inlaid.plugins"].values()]
"""Plugins whose run half is part of inlaid-runtime."""
OTHERS = {"conformance": ["hypothesis>=6.100", "pytest>=8"], "cost": ["scipy>=1.11"], "tflite": ["tflite>=2.18"]}
"""Extras that are no plugins."""


def series(version: str) -> str:
    """The versions of a release series: the same major and minor number."""
    major, minor, _ = version.split(".")
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def hooked(monkeypatch: pytest.MonkeyPatch, variable: str = "") -> dict[str, Any]:
    """The metadata that the build hook makes of the checkout; `variable` is the environment variable that is set."""
    for name in ("INLAID_RELEASE", "INLAID_EDITABLE"):
        monkeypatch.setenv(name, "1" if name == variable else "")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {"version": VERSION}
    module.CustomMetadataHook(str(ROOT), PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]).update(metadata)
    return metadata


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


def spellings(name: str) -> set[str]:
    """The spellings of an extra. pip below 23.3 compares them literally."""
    return {name, name.replace("_", "-")}


def test_extras_of_a_checkout_are_the_plugin_folders(monkeypatch):
    expected = {
        extra: [f"inlaid-{name.replace('_', '-')} @ {(ROOT / 'plugins' / name).as_uri()}"]
        for name in PLUGINS
        for extra in spellings(name)
    }
    assert hooked(monkeypatch)["optional-dependencies"] == {**expected, **OTHERS}


def test_extras_of_a_release_are_versions(monkeypatch):
    expected = {extra: [f"inlaid-{name.replace('_', '-')}{series(VERSION)}"] for name in PLUGINS for extra in spellings(name)}
    assert hooked(monkeypatch, "INLAID_RELEASE")["optional-dependencies"] == {**expected, **OTHERS}


def test_the_core_depends_on_the_equal_runtime(monkeypatch):
    folder = (ROOT / "runtime").as_uri()
    for variable, needed in (
        ("", [f"inlaid-runtime @ {folder}"]),
        ("INLAID_RELEASE", [f"inlaid-runtime=={VERSION}"]),
        ("INLAID_EDITABLE", RUNTIME["dependencies"]),  # a copy of the runtime would hide the sources
    ):
        found = hooked(monkeypatch, variable)["dependencies"]
        assert found[: len(needed)] == needed and not any("tflite" in name for name in found)
    assert RUNTIME["version"] == VERSION and RUNTIME["requires-python"] == PROJECT["project"]["requires-python"]
    assert [*PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]] == ["core", *(f"plugins/{name}/src" for name in HALVES)]
    assert sorted(re.split(r"\W", need)[0] for need in RUNTIME["dependencies"]) == ["ml_dtypes", "numpy", "pluggy"]


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_is_named_after_its_folder_and_in_step_with_the_core(name):
    folder = ROOT / "plugins" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == f"inlaid-{name.replace('_', '-')}"
    assert project["version"] == VERSION
    assert (f"inlaid=={VERSION}" if name in HALVES else f"inlaid{series(VERSION)}") in project["dependencies"]
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
    forbidden = next(
        item for item in tool["importlinter"]["contracts"] if item["name"] == "the core knows no target and no vendor library"
    )
    assert package in forbidden["forbidden_modules"]


def test_the_import_contract_lists_every_part_of_the_core():
    layers = next(item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    listed = {part for layer in layers["layers"] for part in layer.split(" | ")}
    parts = {path.stem for path in (ROOT / "core" / "inlaid").iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
    assert listed == parts - {"__init__"}


def test_the_import_contract_lists_every_module_of_the_runtime():
    contract = next(item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["name"].startswith("the runtime"))
    excluded = [(ROOT, path) for path in PROJECT["tool"]["hatch"]["build"]["exclude"]]
    for name in HALVES:
        settings = tomllib.loads((ROOT / "plugins" / name / "pyproject.toml").read_text(encoding="utf-8"))
        excluded += [(ROOT / "plugins" / name, path) for path in settings["tool"]["hatch"]["build"]["exclude"]]
    parts = set()
    for project, text in excluded:
        path = project / text.removeprefix("/")
        assert path.exists(), path
        if path.suffix in ("", ".py") and path.stem not in ("__init__", "__main__", "plugin"):  # these import lazily
            package = ROOT / "core" if path.is_relative_to(ROOT / "core") else project / "src"
            parts.add(".".join(path.relative_to(package).with_suffix("").parts))
    assert set(contract["source_modules"]) == parts
    layers = next(item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    core = {f"inlaid.{part}" for layer in layers["layers"] for part in layer.split(" | ")} - {"inlaid.__main__"}
    assert {name for name in contract["forbidden_modules"] if name.startswith("inlaid.")} == core - parts


def test_no_part_of_the_core_hides_a_public_function():
    # `import inlaid.partition` would put the package in place of the function `inlaid.partition`.
    packages = {"onnx_backend", "ops", "runtime"}
    hidden = {name for name in inlaid.__all__ if importlib.util.find_spec(f"inlaid.{name}") is not None}
    assert hidden == packages
    assert all(getattr(inlaid, name) is not None for name in inlaid.__all__)


def test_the_core_is_marked_as_typed():
    assert (ROOT / "core" / "inlaid" / "py.typed").exists()
