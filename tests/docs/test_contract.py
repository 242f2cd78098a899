"""The page on the contract says what the contract is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import inlaid.plugins
import inlaid_runtime.plugins
from inlaid.plugins import hookspecs
from inlaid_runtime.plugins import hookspecs as runtime_hookspecs
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")
HALVES = {"compile": hookspecs, "run": runtime_hookspecs}
HOOKS = {name: hook for half in HALVES.values() for name, hook in vars(half).items() if name.startswith("inlaid_")}


@pytest.mark.parametrize("half", HALVES)
def test_every_hook_has_a_section_and_no_other_has(half: str) -> None:
    part = PAGE.split(f"## Hooks of the {half} module\n")[1].split("\n## ")[0]
    written = [name for name in vars(HALVES[half]) if name.startswith("inlaid_")]
    assert re.findall(r"^### (inlaid_\w+)$", part, re.MULTILINE) == written


@pytest.mark.parametrize("name", HOOKS)
def test_signatures_are_exact(name: str) -> None:
    section = PAGE.split(f"### {name}\n")[1].split("\n### ")[0]
    signature = re.search(r"```text\n(.*?)\n```", section, re.DOTALL)
    assert signature is not None
    written = inspect.signature(HOOKS[name])
    parameters = ", ".join(f"{p.name}: {p.annotation}" for p in written.parameters.values())
    assert signature.group(1) == f"{name}({parameters}) -> {written.return_annotation}"


@pytest.mark.parametrize("name", HOOKS)
def test_who_is_asked_is_what_the_hook_says(name: str) -> None:
    section = PAGE.split(f"### {name}\n")[1].split("\n### ")[0]
    owner = "Called only for the " in " ".join((HOOKS[name].__doc__ or "").split())
    assert ("Asked of the owner." in section) == owner
    assert ("Asked of every plugin" in section) != owner


def test_every_public_name_is_listed() -> None:
    run_half, compile_half = PAGE.split("\n## The data\n")[1].split("\n## ")[0].split("Names of the compile half")
    assert set(inlaid_runtime.plugins.__all__) - set(re.findall(r"`(\w+)`", run_half)) == set()
    compile_names = set(inlaid.plugins.__all__) - set(inlaid_runtime.plugins.__all__)
    assert compile_names - set(re.findall(r"`(\w+)`", compile_half)) == set()


def test_the_version_is_the_one_in_force() -> None:
    assert f"the version of this contract, now {PLUGIN_API_VERSION}." in PAGE
