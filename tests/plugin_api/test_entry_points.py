"""Entry points are those that `importlib.metadata` finds."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from inlaid_runtime.plugins.entry_points import InstalledDistribution, InstalledEntryPoint, installed

GROUP = "inlaid.plugins"


def metadata(folder: Path, name: str, version: str, text: str) -> None:
    """A folder of metadata as pip writes it."""
    facts = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(text, encoding="utf-8")


def facts(points: object) -> set[tuple[str, str, str, str]]:
    return {(point.name, point.value, point.dist.name, point.dist.version) for point in points}  # type: ignore[attr-defined]


def test_the_installed_ones_are_found() -> None:
    assert facts(installed(GROUP)) == facts(importlib.metadata.entry_points(group=GROUP)) != set()


def test_folders_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first distribution of a name counts; other groups, comments and folders without entry points do not."""
    first, second = tmp_path / "first", tmp_path / "second"
    metadata(
        first, "acme-npu", "2.0", f"[console_scripts]\nacme = a:b\n\n[{GROUP}]\n# why\nacme = acme.plugin\nother=acme.other:made \n"
    )
    metadata(second, "acme-npu", "1.0", f"[{GROUP}]\nacme = acme.old\n")
    metadata(second, "plain", "1.0", "[console_scripts]\nacme = a:b\n")
    (second / "empty-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(first), str(tmp_path / "missing"), str(second)])
    expected = {("acme", "acme.plugin", "acme-npu", "2.0"), ("other", "acme.other:made", "acme-npu", "2.0")}
    assert facts(installed(GROUP)) == facts(importlib.metadata.entry_points(group=GROUP)) == expected


def test_other_finders_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_distributions(_: object) -> list[importlib.metadata.Distribution]:
            return []

        @staticmethod
        def find_spec(*_: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert all(isinstance(point, importlib.metadata.EntryPoint) for point in installed(GROUP))


def test_a_value_may_name_an_attribute() -> None:
    distribution = InstalledDistribution("acme", "1.0")
    assert InstalledEntryPoint("a", "os.path", GROUP, distribution).load() is os.path
    assert InstalledEntryPoint("a", "os : path.join", GROUP, distribution).load() is os.path.join
