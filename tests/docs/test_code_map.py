"""The map of the code: what `tools/code_map.py` draws, and what its check rejects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the Python files of core, runtime and two plugins, with a fresh picture and page."""
    root = tmp_path_factory.mktemp("sources")
    for folder in ("core/inlaid", "runtime/src", "plugins/x86/src", "plugins/cli/src"):
        for path in (ROOT / folder).rglob("*.py"):
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (root / "docs").mkdir()
    shutil.copyfile(ROOT / "docs/architecture.md", root / "docs/architecture.md")
    assert run_tool(root)[0] == 0
    return root


@pytest.fixture
def root(sources: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sources, tmp_path / "root"))


def run_tool(root: Path, *options: str) -> tuple[int, str]:
    """Return the exit status and the output of the tool."""
    command = [sys.executable, str(ROOT / "tools/code_map.py"), "--root", str(root), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not process.stderr
    return process.returncode, process.stdout


def picture(root: Path) -> str:
    return (root / "docs/code-map.svg").read_text()


def plant(root: Path, file: str, text: str) -> None:
    with (root / file).open("a") as source:
        source.write(text)


def test_the_committed_map_is_that_of_the_code() -> None:
    status, printed = run_tool(ROOT, "--check")
    assert status == 0, printed


def test_an_import_between_rooms_changes_the_map(root: Path) -> None:
    plant(root, "plugins/cli/src/inlaid_cli/__init__.py", "\n\ndef late():\n    import inlaid_x86\n")
    status, printed = run_tool(root, "--check")
    assert status == 1 and "run python tools/code_map.py" in printed
    before = picture(root)
    assert run_tool(root)[0] == 0 and run_tool(root, "--check")[0] == 0
    assert picture(root) != before


@pytest.mark.parametrize(
    "text",
    [
        "\n\ndef late():\n    from inlaid.graph import ir\n",  # another path of arrows leads there
        "\n\nif TYPE_CHECKING:\n    import inlaid_x86\n",
        "\n\nif True:\n    COUNT = 1\n" * 100,
    ],
    ids=["indirect", "types", "lines"],
)
def test_what_leaves_the_map_as_it_is(root: Path, text: str) -> None:
    plant(root, "plugins/cli/src/inlaid_cli/__init__.py", text)
    assert run_tool(root, "--check")[0] == 0


def test_a_docstring_changes_map_and_table(root: Path) -> None:
    path = root / "core/inlaid/passes/__init__.py"
    path.write_text('"""Rewrites of graphs. And more."""\n')
    assert run_tool(root, "--check")[0] == 1
    assert run_tool(root)[0] == 0
    assert ">Rewrites of graphs<" in picture(root)
    assert "| `inlaid.passes` | Rewrites of graphs | " in (root / "docs/architecture.md").read_text()


def test_a_cycle_fails(root: Path) -> None:
    plant(root, "runtime/src/inlaid_runtime/arith/__init__.py", "\nfrom inlaid_runtime import artifact\n")
    status, printed = run_tool(root)
    assert status == 1 and "expected imports without cycles" in printed and "inlaid_runtime.arith" in printed


def test_no_boxes_overlap_and_all_text_is_large(root: Path) -> None:
    text = picture(root)
    boxes = [
        tuple(map(float, box)) for box in re.findall(r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="4"', text)
    ]
    assert len(boxes) > 20
    for number, (x, y, width, height) in enumerate(boxes):
        for left, top, other_width, other_height in boxes[:number]:
            assert x + width < left or left + other_width < x or y + height < top or top + other_height < y
    assert min(map(float, re.findall(r"font-size: ([\d.]+)px", text))) >= 12
