"""Parts of the compiler are taken away in turn: what fires, and what would be missed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import second_order
from inlaid.plugins.registry import default_registry
from second_order import Firings, Subject, outcome, without
from zoo.net import Net

TARGET = "x86:threads=1,cpu=x86-64-v3"
pytestmark = pytest.mark.skipif("x86" not in default_registry().kinds(), reason='no plugin "x86": pip install "inlaid[x86]"')


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The file of a model that divides by two, whose power is exact, and multiplies by a matrix."""
    net = Net("halves")
    halves = net.node("Div", net.input("x", (8, 16)), net.constant(2.0))
    net.output(net.node("MatMul", halves, net.weight("w", (16, 32), 1.0)), "y", (8, 32))
    path = tmp_path / "model.onnx"
    onnx.save(net.build(), path)
    return str(path)


def test_parts_that_are_taken_away_do_nothing(model):
    subject = Subject(TARGET, model)
    whole, other = outcome(subject), outcome(subject, ["rewrite divided by a power of two"])
    assert {"rewrite divided by a power of two", "pass flatten_blocks", "schedule matmul"} <= {*whole.fired} <= {*whole.used}
    assert "rewrite divided by a power of two" not in other.fired
    assert whole.digest != other.digest and not whole.error and not other.error
    assert outcome(subject).digest == whole.digest


def test_a_pass_that_a_list_has_twice_is_also_taken_away_once(model):
    firings = Firings()
    with without(["pass simplify, 1 of 2"], firings):
        assert not second_order.texts(Subject(TARGET, model)).get("error")
    assert {"pass simplify", "pass simplify, 1 of 2", "pass simplify, 2 of 2"} <= firings.used
    assert "pass simplify, 2 of 2" in firings.fired and "pass simplify, 1 of 2" not in firings.fired


def test_trials_are_written_and_not_repeated(model, tmp_path):
    results = tmp_path / "results.jsonl"
    program = [sys.executable, second_order.__file__, "--results", str(results), "--only", "^rewrite|flatten_blocks"]

    def run(*arguments: str) -> str:
        return subprocess.run([*program, *arguments], capture_output=True, text=True, check=True, timeout=300).stdout

    assert run("survey", "--case", TARGET, model).startswith(f"{TARGET} {model}: ")
    assert run("survey", "--case", TARGET, model) == ""
    printed = run("trials")
    assert "rewrite divided by a power of two: all tried; 1 of 1 differ" in printed and "pass flatten_blocks: needed: " in printed
    assert run("trials") == ""
    assert {json.loads(line)["kind"] for line in results.read_text(encoding="utf-8").splitlines()} == {"survey", "trial"}
    page = run("table")
    assert "\n| `rewrite divided by a power of two` | 1 | 1 of 1 |" in page
    assert re.search(r"^Do not fire: .*`rewrite plus zero`", page, re.MULTILINE)
    assert re.search(r"^A case cannot be compiled without them: `pass flatten_blocks`\.", page, re.MULTILINE)
