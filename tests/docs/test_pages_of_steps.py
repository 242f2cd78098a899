"""The pages of numbered steps, followed to the letter, in a copy of the sources or in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlaid.plugins.registry import default_registry

from .steps import ROOT, WIDTH, check_style, copy_checkout, follow

COPIED = ("core", "plugins/onnx", "plugins/microcontroller", "tests")
"""What the pages edit."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like this checkout. The pages change it one after the other."""
    return copy_checkout(tmp_path_factory.mktemp("steps") / "checkout", COPIED)


@pytest.mark.parametrize(
    ("page", "edited"),
    [
        ("add-an-onnx-converter", 1),
        ("add-a-target-option", 3),
        ("add-a-schedule-rule", 2),
        ("add-a-pass", 1),
    ],
)
def test_a_page_extends_the_checkout(sources: Path, page: str, edited: int) -> None:
    """`edited` is the number of existing files that the page edits by hand."""
    if page == "add-a-schedule-rule" and "x86" not in default_registry().kinds():
        pytest.skip('the x86 plugin is not installed: pip install "inlaid[x86]"')
    changed = follow(ROOT / "docs" / f"{page}.md", sources, sources)
    assert sum((ROOT / path.relative_to(sources)).exists() for path in changed) == edited
    check_style(sources, changed)


@pytest.mark.parametrize("page", ["add-a-command", "add-a-target"])
def test_a_page_makes_a_project(sources: Path, tmp_path: Path, page: str) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    changed = follow(ROOT / "docs" / f"{page}.md", sources, tmp_path)
    assert changed and all(len(line) <= WIDTH for path in changed for line in path.read_text(encoding="utf-8").splitlines())
