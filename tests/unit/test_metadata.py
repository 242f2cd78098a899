"""Versions, extras, distributions, plugin folders and the settings of tools are in step."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import inlaid
import inlaid_runtime
from inlaid.attributes import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]


def settings(folder: str) -> dict[str, Any]:
    """The `pyproject.toml` of a folder."""
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements: list[str]) -> list[str]:
    """The sorted distributions of requirements."""
    return sorted(re.split(r"[^\w-]", text)[0] for text in requirements)


ROOT_SETTINGS = settings(".")
PROJECT, TOOL = ROOT_SETTINGS["project"], ROOT_SETTINGS["tool"]
CORE, RUNTIME = settings("core"), settings("runtime")
VERSION = PROJECT["version"]
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
FORMATS, TOOLS = ["onnx", "tflite"], ["bench", "cli", "conformance", "quantization"]
TARGETS = [name for name in PLUGINS if name not in FORMATS + TOOLS]
SPLIT = ["x86"]
"""Plugins whose run half is part of inlaid-runtime."""
PARTS = ["runtime", "core", "plugins/onnx", "plugins/quantization", "plugins/cli"]
"""Folders of the distributions that every installation has."""
PACKAGES = {
    "inlaid": "core",
    **{path.name: "runtime/src" for path in (ROOT / "runtime" / "src").iterdir() if path.name.startswith("inlaid_")},
    **{f"inlaid_{name}": f"plugins/{name}/src" for name in PLUGINS},
}
"""Import packages, with the folders that contain them."""
EXTRAS = {"cost": ["scipy>=1.11"]}
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
    module.CustomMetadataHook(str(ROOT), TOOL["hatch"]["metadata"]["hooks"]["custom"]).update(metadata)
    return metadata


def contract(name: str) -> dict[str, Any]:
    """An import contract by the beginning of its name."""
    (item_by_name,) = [item for item in TOOL["importlinter"]["contracts"] if item["name"].startswith(name)]
    return item_by_name


def test_every_folder_of_plugins_is_one():
    folders = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and any(path.glob("*.*"))}
    assert PLUGINS
    assert folders == set(PLUGINS)


def test_packages_state_the_version_of_their_projects():
    assert inlaid.__version__ == inlaid_runtime.__version__ == VERSION
    for project in (CORE["project"], RUNTIME["project"]):
        assert project["version"] == VERSION
        assert project["requires-python"] == PROJECT["requires-python"]


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
    assert hooked(monkeypatch)["optional-dependencies"] == {**expected, **EXTRAS}


def test_extras_of_a_release_are_versions(monkeypatch):
    expected = {extra: [f"inlaid-{name.replace('_', '-')}{series(VERSION)}"] for name in PLUGINS for extra in spellings(name)}
    assert hooked(monkeypatch, "INLAID_RELEASE")["optional-dependencies"] == {**expected, **EXTRAS}


def test_an_installation_has_the_equal_core_and_runtime(monkeypatch):
    equal = [f"inlaid-{Path(folder).name}=={VERSION}" for folder in PARTS]
    for variable, needs in (
        ("", [f"inlaid-{Path(folder).name} @ {(ROOT / folder).as_uri()}" for folder in PARTS]),
        ("INLAID_RELEASE", equal),
        ("INLAID_EDITABLE", equal),  # pip refuses a folder that is required beside the same one as editable
    ):
        assert hooked(monkeypatch, variable)["dependencies"] == needs
    assert TOOL["hatch"]["build"]["targets"]["wheel"]["bypass-selection"], "inlaid has no files of its own"
    assert equal[0] in CORE["project"]["dependencies"]
    assert names(RUNTIME["project"]["dependencies"]) == ["ml_dtypes", "numpy", "pluggy"]


def test_each_package_is_in_one_distribution():
    wheels = [project["tool"]["hatch"]["build"]["targets"]["wheel"] for project in (CORE, RUNTIME)]
    shipped = sorted(Path(path).name for wheel in wheels for path in wheel["packages"])
    assert shipped == sorted(name for name, folder in PACKAGES.items() if not folder.startswith("plugins"))
    assert all((ROOT / folder / name / part).exists() for name, folder in PACKAGES.items() for part in ("__init__.py", "py.typed"))


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_is_named_after_its_folder_and_in_step_with_the_core(name):
    folder = ROOT / "plugins" / name
    project = settings(f"plugins/{name}")["project"]
    assert project["name"] == f"inlaid-{name.replace('_', '-')}"
    assert project["version"] == VERSION
    assert project["requires-python"] == PROJECT["requires-python"]
    for part in (folder / "src" / f"inlaid_{name}" / "py.typed", folder / "README.md", folder / "LICENSE"):
        assert part.exists(), part
    assert (folder / "tests").exists() or (ROOT / "tests" / name).exists()


@pytest.mark.parametrize("name", [*FORMATS, *TOOLS])
def test_a_format_or_tool_requires_the_equal_core(name):
    project = settings(f"plugins/{name}")["project"]
    assert any(f"inlaid-{part}=={VERSION}" in project["dependencies"] for part in ("core", "cli"))
    declared = {name: f"inlaid_{name}.plugin"} if name in FORMATS else None
    assert project["entry-points"].get("inlaid.plugins") == declared


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_a_compile_half_and_a_run_half(name):
    project = settings(f"plugins/{name}")["project"]
    assert (f"inlaid-core=={VERSION}" if name in SPLIT else f"inlaid-core{series(VERSION)}") in project["dependencies"]
    assert project["entry-points"]["inlaid.plugins"] == {name: f"inlaid_{name}.plugin"}
    if name in SPLIT:
        assert RUNTIME["project"]["entry-points"]["inlaid.runtimes"][name] == f"inlaid_{name}_runtime.plugin"
        assert "inlaid.runtimes" not in project["entry-points"]
    else:
        assert project["entry-points"]["inlaid.runtimes"] == {name: f"inlaid_{name}.runtime_plugin"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tools_look_at_every_package(package):
    assert PACKAGES[package] in TOOL["ruff"]["src"]
    assert package in TOOL["mypy"]["packages"]
    assert PACKAGES[package] in TOOL["mypy"]["mypy_path"].split(":")
    assert package in TOOL["importlinter"]["root_packages"]


def test_import_contracts_list_every_package():
    plugin_packages = set(PACKAGES) - {"inlaid", "inlaid_runtime"}
    formats, tools = ({f"inlaid_{name}" for name in group} for group in (FORMATS, TOOLS))
    assert plugin_packages <= set(contract("the core knows no target")["forbidden_modules"])
    assert {"inlaid", *plugin_packages} <= set(contract("the runtime imports no compiler")["forbidden_modules"])
    lower = contract("targets and formats import no tool")
    assert {f"inlaid_{name}" for name in TARGETS} | formats == set(lower["source_modules"])
    assert tools == set(lower["forbidden_modules"])
    upper = contract("tools import no target and no format")
    assert (tools, plugin_packages - tools) == (set(upper["source_modules"]), set(upper["forbidden_modules"]))
    halves = {f"inlaid_{name}_runtime" if name in SPLIT else f"inlaid_{name}.runtime_plugin" for name in TARGETS}
    assert set(contract("run halves import no compiler")["source_modules"]) == halves


def test_no_part_of_the_core_hides_a_public_function():
    # `import inlaid.partition` would put the package in place of the function `inlaid.partition`.
    public = {*inlaid.__all__, *DISTRIBUTIONS}
    hidden = {name for name in public if importlib.util.find_spec(f"inlaid.{name}") is not None}
    assert hidden == {"onnx_backend", "ops", "runtime"}
    assert all(getattr(inlaid, name) is not None for name in public)
