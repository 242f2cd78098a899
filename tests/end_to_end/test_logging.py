"""Compilation tells what it does by Python's `logging`, and is silent unless an application asks."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import inlaid
from inlaid import ops


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("INLAID_CACHE", raising=False)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def test_stages_and_results_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stages: list[str] = []
    with caplog.at_level(logging.DEBUG, "inlaid"):
        for _ in range(2):
            inlaid.compile(path, ["reference"], progress=lambda stage, count, total: stages.append(stage))
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("inlaid")]
    assert texts[0] == "compile relu.onnx for reference"
    assert any(text.startswith("relu.onnx: import took ") for text in texts)
    results = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert results[0].startswith("compiled relu.onnx in ") and results[0].endswith(": region0_reference on reference")
    assert results[1].startswith("loaded from cache relu.onnx in ") and len(results) == 2
    assert "import" in stages


def test_modules_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    x = inlaid.var("x", (3,))
    with caplog.at_level(logging.INFO, "inlaid"):
        inlaid.compile(inlaid.function([x], ops.relu(x)), ["reference"])
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == ["compiled Function"]


def test_nothing_is_printed_unless_asked_for(path: Path) -> None:
    program = f"import inlaid; inlaid.compile({str(path)!r}, ['reference'])"
    for setup, expected in (("", 0), ("import logging; logging.basicConfig(level=logging.INFO); ", 1)):
        process = subprocess.run([sys.executable, "-c", setup + program], capture_output=True, text=True, check=True)
        assert (process.stderr.count("INFO:inlaid.compile:"), process.stdout) == (expected, "")
        assert expected or process.stderr == ""
