"""`inlaid compile --quantize`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from inlaid_cli import main
from inlaid_runtime import load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a small model and samples for it."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> small (float[1, 3] x) => (float[1, 2] y)
        <float[3, 2] w = {0.5, -1.0, 2.0, 0.25, -0.75, 1.5}> { product = MatMul(x, w)  y = Sigmoid(product) }"""
    )
    onnx.save(model, tmp_path / "small.onnx")
    np.savez(tmp_path / "samples.npz", x=np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 1, 3))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_info:
        main(["compile", "small.onnx", "--target", "reference", *words])
    captured = capsys.readouterr()
    return int(exit_info.value.code or 0), captured.out, captured.err


def test_a_package_and_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = run(capsys, "--quantize", "samples.npz")
    assert status == 0
    assert "2 layers in integers" in text
    (actual,) = load(folder / "small.inlaid").run({"x": np.array([[0.5, 0.6, 0.7]], np.float32)}).values()
    np.testing.assert_allclose(actual, 1 / (1 + np.exp([[-0.925, -0.7]])), atol=0.02)


def test_choices_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--quantize", "samples.npz", "--calibration", "mse", "--scales", "power_of_two", "--borders", "int8", "--json")
    status, text, _ = run(capsys, *words)
    assert status == 0
    facts = json.loads(text)["quantization"]
    assert [facts["settings"][name] for name in ("calibration", "scales", "borders")] == ["mse", "power_of_two", "int8"]
    assert [facts[side][0]["dtype"] for side in ("inputs", "outputs")] == ["int8", "int8"]
    assert facts["inputs"][0]["scale"] == 2**-7
    assert facts["samples"] == 4


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--scales", "any"), 2, "add --quantize"),
        (("--quantize", "nowhere.npz"), 3, "does not exist"),
        (("--quantize", "small.onnx"), 3, "is not an .npz file"),
        (("--quantize", "samples.npz", "--calibration", "max"), 2, "is not one of"),
    ],
)
def test_what_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, message: str
) -> None:
    exit_code, _, stderr = run(capsys, *words)
    assert (exit_code, message in stderr) == (status, True), stderr
