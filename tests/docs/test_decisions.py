"""The index of decision records: what `tools/decisions.py` writes, and what its check rejects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST, SECOND, THIRD = "0001-first.md", "0002-second.md", "0003-third.md"
RECORDS = {
    FIRST: f"# 1. Trees are shared\n\nArea: core IR. Status: superseded by [3]({THIRD}).\n\n## Context\n",
    SECOND: f"# 2. Loops are unrolled\n\nArea: x86. Status: in force, superseded in part by\n[3]({THIRD}).\n\n## Context\n",
    THIRD: "# 3. Nodes are unique\n\nArea: core IR. Status: in force."
    f" Supersedes: [1]({FIRST}). Supersedes in part: [2]({SECOND}).\n\nText.\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs/adr"
    folder.mkdir(parents=True)
    for name, text in RECORDS.items():
        (folder / name).write_text(text)
    return tmp_path


def run_tool(root: Path, *options: str) -> tuple[int, str]:
    """Return the exit status and the output of the tool."""
    command = [sys.executable, str(ROOT / "tools/decisions.py"), "--root", str(root), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not process.stderr
    return process.returncode, process.stdout


def replace(root: Path, name: str, old: str, new: str) -> None:
    path = root / "docs/adr" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_the_page_has_areas_and_superseded_records_last(root: Path) -> None:
    assert run_tool(root)[0] == 0 and run_tool(root, "--check")[0] == 0
    page = (root / "docs/decisions.md").read_text()
    areas, retired = page.split("## Superseded")
    assert "## Core IR" in areas and "* [3](adr/0003-third.md) Nodes are unique" in areas and "Trees are shared" not in areas
    assert "* [2](adr/0002-second.md) Loops are unrolled (superseded in part by [3](adr/0003-third.md))" in areas
    assert "* [1](adr/0001-first.md) Trees are shared: superseded by [3](adr/0003-third.md)" in retired


def test_a_changed_title_fails_the_check(root: Path) -> None:
    run_tool(root)
    replace(root, THIRD, "Nodes are unique", "Nodes are shared")
    status, printed = run_tool(root, "--check")
    assert status == 1 and "docs/decisions.md differs" in printed


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (SECOND, "Area: x86. ", "", "0002-second.md: expected 'Area: AREA. Status: STATUS.'"),
        (SECOND, "Area: x86. Status: ", "", "0002-second.md: expected 'Area: AREA. Status: STATUS.'"),
        (SECOND, "x86", "x87", "unknown area 'x87'"),
        (SECOND, "# 2.", "# 4.", "expected the title '# 2. ...', found '# 4. Loops are unrolled'"),
        (SECOND, ", superseded in part by\n[3](0003-third.md)", "", "record 2: expected the status 'superseded in part by 3'"),
        (THIRD, " Supersedes: [1](0001-first.md).", "", "record 3: expected 'Supersedes: 1', since record 1 has the status"),
        (THIRD, "[1](0001-first.md)", "[1](0001-other.md)", "[1](0001-other.md) is not a link to record 1"),
    ],
)
def test_incomplete_records_fail(root: Path, name: str, old: str, new: str, message: str) -> None:
    replace(root, name, old, new)
    status, printed = run_tool(root)
    assert status == 1 and message in printed


def test_missing_and_duplicate_numbers_fail(root: Path) -> None:
    records = root / "docs/adr"
    (records / SECOND).rename(records / "0005-second.md")
    (records / "0003-other.md").write_text(RECORDS[THIRD])
    status, printed = run_tool(root)
    assert status == 1
    assert {"number 2: missing", "number 3: expected one record, found 2", "number 4: missing"} <= set(printed.splitlines())
