"""A vague name, and a class with the name of another, fail the lint: planted in a copy of two packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("core/inlaid/graph", "runtime/src/inlaid_runtime/arith")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint(root: Path) -> tuple[int, str]:
    """Return the exit status and the output of the lint."""
    command = [sys.executable, str(ROOT / "tools/names.py"), "--root", str(root)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not process.stderr
    return process.returncode, process.stdout


def test_names_pass(root: Path) -> None:
    status, printed = lint(root)
    assert status == 0 and "expected one" not in printed


def test_vague_names_fail(root: Path) -> None:
    (root / "tests").mkdir()
    (root / "tests/helpers.py").write_text("def total(given):\n    wanted_sizes = sum(given)\n    return wanted_sizes\n")
    status, printed = lint(root)
    assert status == 1 and "tests                         4 names,     2 vague: 50.00%" in printed


def test_a_class_with_the_name_of_another_fails(root: Path) -> None:
    with (root / "runtime/src/inlaid_runtime/arith/expr.py").open("a") as source:
        source.write("\n\nclass Operator:\n    pass\n\n\nclass Function:\n    pass\n")
    status, printed = lint(root)
    assert status == 1
    for name, file in (("Operator", "core/inlaid/graph/operator.py"), ("Function", "core/inlaid/graph/ir.py")):
        assert f"2 classes are named {name}, expected one: runtime/src/inlaid_runtime/arith/expr.py:" in printed
        assert f" {file}:" in printed


def test_a_base_and_private_classes_may_share_a_name(root: Path) -> None:
    with (root / "runtime/src/inlaid_runtime/arith/expr.py").open("a") as source:
        source.write("\n\nclass Operator(operator.Operator):\n    pass\n\n\nclass _Function:\n    pass\n")
    status, printed = lint(root)
    assert status == 0 and "expected one" not in printed
