"""The scripts under benchmarks/ run and print what they promise. What they measure is not tested here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inlaid.cli.contest import Result, Timing
from inlaid.plugins.registry import default_registry
from machine import Limits
from page import Measurement, draw, latest
from zoo import path_of
from zoo.light import FOLDER as LIGHT
from zoo.operators import SIZES, cases, convolutions

FOLDER = Path(__file__).parents[2] / "benchmarks"


def measured(name: str, own: float, peer: float, **facts: Any) -> Measurement:
    engines = (("inlaid", own), ("openvino", peer))
    timings = tuple(Timing(label, "1", "as it is", 1.0, 10.0, 0.0, (time, time), 0.0) for label, time in engines)
    return Measurement.of("model", name, "f32", Limits(1, 1e11, 1e10), Result(timings, ()), **facts)


def test_goals():
    assert measured("resnet50", 6.9, 10.0).goal == 0.70
    assert measured("other", 7.9, 10.0).goal == 0.80
    bounded = measured("other", 9.9, 10.0, moved=int(7.1e-3 * 1e10))
    assert (bounded.goal, bounded.bounded) == (1.0, True)
    assert bounded.bound == pytest.approx(7.1)
    assert Measurement.of("model", "other", "f32", Limits(1, 1e11, 1e10), "cannot run").ratio is None


def test_the_latest_of_each_is_drawn(tmp_path):
    path = tmp_path / "results.jsonl"
    assert "Nothing is measured yet" in draw(latest(path))
    for own in (9.0, 5.0):
        measured("a", own, 10.0).keep(path, "this machine", "these versions")
    measured("b", 20.0, 10.0).keep(path, "this machine", "these versions")
    first, second = latest(path)
    assert (first.ratio, second.ratio) == (0.5, 2.0)
    text = draw([first, second])
    assert "Geometric mean of the ratios over 2 models: **1.00**; 1 meet their goal; slower than the best peer: b." in text
    assert "- Machine: this machine." in text
    assert "- Versions: these versions." in text


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
def test_loads():
    printed = run("loads.py", "--loads", "40")
    assert re.search(r"^ +40 loads: +[0-9]+ KiB resident, +[0-9]+ us a load$", printed, re.M)
    assert re.search(r"^(flat|leaking): -?[0-9.]+ bytes a load$", printed, re.M)


@needs_x86
def test_scaling():
    printed = run("scaling.py", "100", "200", "--passes", codes=(0, 1))
    for part in ("import", "optimise", "partition", "verify", "dead_code"):
        assert part in printed


@needs_x86
@pytest.mark.slow
def test_the_page_of_benchmarks(tmp_path):
    pytest.importorskip("onnxruntime")
    text, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    kept = ["--results", str(results), "--write", str(text)]
    options = ["--tiny", "--threads", "1", "--against", "onnxruntime", "--rounds", "2", "--seconds", "0", *kept]
    printed = run("bench.py", *options, "--only", "bert|gemm_64|relu")
    assert "bert_base f32 1 thread: inlaid " in printed
    run("bench.py", *options, "--only", "mobilenet", "--models", "--precisions", "int8")
    for part in (
        "## Whole models in f32, 1 thread",
        "## Whole models in bf16, 1 thread",
        "| bert_base_int8 | ",
        "| mobilenet_v2_int8 | ",
        "Geometric mean of the ratios over 2 models",
        "| gemm | gemm_64 | ",
        "| memory | relu_",
        "- inlaid ",
        "- onnxruntime, bf16: computes in bfloat16 only what the model has in it (bert_base)",
    ):
        assert part in text.read_text()
    lines = results.read_text().splitlines()
    run("bench.py", "--draw", *kept)
    assert results.read_text().splitlines() == lines


@needs_x86
def test_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = run("compile.py", "squeezenet", "--rounds", "1", "--counts", "2", "8", codes=(0, 1)).splitlines()
    assert lines[1].split()[-3:] == ["cold", "objects", "warm"]
    names = [line.split()[0] for line in lines[2:] if line and line[0] != " " and "processor" not in line and "finish" not in line]
    operators = ["add", "conv", "max_pool", "matmul", "softmax", "relu", "transpose", "reduce_sum"]
    assert names == ["squeezenet", *operators, "2", "8", "import"]


@needs_x86
@pytest.mark.slow
def test_quantised_models_take_turns():
    (line,) = run("quantized.py", "squeezenet", "--seconds", "0.01").splitlines()
    assert [word for word in line.split() if word.isalpha() and word != "ms"] == ["squeezenet", "fixed", "float", "QDQ"]
    ratios = [float(part) for part in re.findall(r"\(([\d.]+)\)", line)]
    assert ratios[0] == 1 and len(ratios) > 1 and min(ratios) > 0
