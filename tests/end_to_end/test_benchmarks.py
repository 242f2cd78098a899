"""The scripts under benchmarks/ run and print what they promise. What they measure is not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inlay.plugins.registry import default_registry
from zoo import path_of
from zoo.light import FOLDER as LIGHT
from zoo.operators import SIZES, cases, convolutions

FOLDER = Path(__file__).parents[2] / "benchmarks"

needs_x86 = pytest.mark.skipif("x86" not in default_registry().kinds(), reason="the x86 plugin is not installed")


def run(script: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / script), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in codes, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_models_are_built_once(tmp_path):
    for _ in range(2):
        assert run("make_models.py", "lstm", "--tiny", "--out", str(tmp_path)).startswith(f"{tmp_path}/lstm_tiny.onnx: ")
    assert [path.name for path in tmp_path.iterdir()] == ["lstm_tiny.onnx"]


def test_a_model_that_there_is_not(tmp_path):
    done = subprocess.run(
        [sys.executable, str(FOLDER / "make_models.py"), "gpt9"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 2
    assert "there is no model 'gpt9'" in done.stderr


def test_the_convolutions_of_resnet50():
    found = convolutions(LIGHT / "light_resnet50.onnx")
    assert sum(found.values()) == 53
    operations = sum(shape.operations * times for shape, times in found.items())
    assert operations == pytest.approx(8.17e9, rel=0.01), "twice the 4.09 G multiply-adds known of ResNet-50"


def test_operators_have_names_of_their_own(tmp_path):
    found = list(cases({"mobilenet_v2": path_of("mobilenet_v2", tiny=True, folder=tmp_path)}))
    assert len({(case.group, case.name) for case in found}) == len(found)
    assert {case.group for case in found} == {"gemm", "conv mobilenet_v2", "attention", "memory"}
    for case in found:
        if not case.name.endswith(tuple(f"gemm_{size}" for size in SIZES[3:])):
            case.build()


@needs_x86
def test_scaling():
    printed = run("scaling.py", "100", "200", "--passes", codes=(0, 1))
    for part in ("import", "optimise", "partition", "verify", "dead_code"):
        assert part in printed


@needs_x86
@pytest.mark.slow
def test_the_page_of_benchmarks(tmp_path):
    pytest.importorskip("onnxruntime")
    page = tmp_path / "page.md"
    options = ["--tiny", "--only", "bert|gemm_64|relu", "--threads", "1", "--against", "onnxruntime", "--rounds", "2"]
    printed = run("bench.py", *options, "--seconds", "0", "--write", str(page))
    for part in (
        "| bert_base | ",
        "Geometric mean of the ratios over 1 models",
        "| gemm | gemm_64 | ",
        "| memory | relu_",
        "- inlay ",
    ):
        assert part in printed
        assert part in page.read_text()


@needs_x86
def test_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = run("compile.py", "squeezenet", "--rounds", "1", "--counts", "2", "8", codes=(0, 1)).splitlines()
    assert lines[1].split()[-3:] == ["cold", "objects", "warm"]
    names = [line.split()[0] for line in lines[2:] if line and line[0] != " " and "processor" not in line and "finish" not in line]
    assert names == ["squeezenet", "add", "conv", "max_pool", "matmul", "softmax", "relu", "transpose", "reduce_sum", "2", "8"]
