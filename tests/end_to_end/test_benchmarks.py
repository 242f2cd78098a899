"""The scripts under benchmarks/ run and print what they promise. What they measure is not tested here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import by_hand
import installation
import summary
import symbolic_page
from inlaid.plugins.registry import default_registry
from inlaid_bench.comparison import Result, Timing
from machine import Limits
from page import Measurement, draw, latest
from scaling import installed
from zoo import GENERATED, model_path
from zoo.kernels import KERNELS
from zoo.light import FOLDER as LIGHT
from zoo.operators import SIZES, cases, convolutions

FOLDER = Path(__file__).parents[2] / "benchmarks"


def measured(name: str, inlaid_seconds: float, peer_seconds: float, **facts: Any) -> Measurement:
    engines = (("inlaid", inlaid_seconds), ("openvino", peer_seconds))
    timings = tuple(Timing(label, "1", "as it is", 1.0, 10.0, 0.0, (time, time), 0.0) for label, time in engines)
    return Measurement.create("model", name, "f32", Limits(1, 1e11, 1e10), Result(timings, ()), **facts)


def test_goals():
    assert measured("resnet50", 6.9, 10.0).goal == 0.70
    assert measured("other", 7.9, 10.0).goal == 0.80
    bounded = measured("other", 9.9, 10.0, moved=int(7.1e-3 * 1e10))
    assert (bounded.goal, bounded.bounded) == (1.0, True)
    assert bounded.bound == pytest.approx(7.1)
    assert Measurement.create("model", "other", "f32", Limits(1, 1e11, 1e10), "cannot run").ratio is None


def test_the_latest_of_each_is_drawn(tmp_path):
    path = tmp_path / "results.jsonl"
    assert "Nothing is measured yet" in draw(latest(path))
    for inlaid_seconds in (9.0, 5.0):
        measured("a", inlaid_seconds, 10.0).keep(path, "this machine", "these versions")
    measured("b", 20.0, 10.0).keep(path, "this machine", "these versions")
    first, second = latest(path)
    assert (first.ratio, second.ratio) == (0.5, 2.0)
    text = draw([first, second])
    assert "Geometric mean of the ratios over 2 models: **1.00**; 1 meet their goal; slower than the best peer: b." in text
    assert "- Machine: this machine." in text
    assert "- Versions: these versions." in text


def test_summary_reads_what_bench_writes(tmp_path):
    every = [measured("a", 5.0, 10.0), measured("b", 20.0, 10.0)]
    assert summary.ratios(draw(every), "f32", 1) == {"a": 0.5, "b": 2.0}
    assert summary.ratios(draw(every), "int8", 1) == {}
    (tmp_path / summary.SOURCES[0].page).write_text(draw(every), encoding="utf-8")
    lines = summary.summary(tmp_path).splitlines()
    assert lines[0] == f"| model | {summary.SOURCES[0].column}: f32 |"
    assert lines[2:6] == ["| a | 0.50 |", "| b | 2.00 |", "| geometric mean | **1.00** |", "| slower models | 1 |"]


def test_summary_is_up_to_date():
    text = summary.OVERVIEW.read_text(encoding="utf-8")
    assert text.partition(summary.BEGIN)[2].partition(summary.END)[0] == summary.summary()


needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def run(script: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / script), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode in codes, process.stdout + process.stderr
    assert process.stderr == ""
    return process.stdout


def test_models_are_built_once(tmp_path):
    for _ in range(2):
        assert run("make_models.py", "lstm", "--tiny", "--out", str(tmp_path)).startswith(f"{tmp_path}/lstm_tiny.onnx: ")
    assert [path.name for path in tmp_path.iterdir()] == ["lstm_tiny.onnx"]


def test_a_model_that_there_is_not(tmp_path):
    process = subprocess.run(
        [sys.executable, str(FOLDER / "make_models.py"), "gpt9"], capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 2
    assert "there is no model 'gpt9'" in process.stderr


def test_the_convolutions_of_resnet50():
    shapes = convolutions(LIGHT / "light_resnet50.onnx")
    assert sum(shapes.values()) == 53
    operations = sum(shape.operations * times for shape, times in shapes.items())
    assert operations == pytest.approx(8.17e9, rel=0.01), "twice the 4.09 G multiply-adds known of ResNet-50"


def test_operators_have_names_of_their_own(tmp_path):
    case_list = list(cases({"mobilenet_v2": model_path("mobilenet_v2", tiny=True, folder=tmp_path)}))
    assert len({(case.group, case.name) for case in case_list}) == len(case_list)
    assert {case.group for case in case_list} == {"gemm", "conv mobilenet_v2", "attention", "memory"}
    for case in case_list:
        if not case.name.endswith(tuple(f"gemm_{size}" for size in SIZES[3:])):
            case.build()


@needs_x86
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("dispatch --rounds 1 --calls 5", r"inlaid +median +[0-9.]+ us, [0-9.]+ to [0-9.]+"),
        ("load --loads 5", r"load: median +[0-9.]+ us, 95 % under +[0-9.]+ us"),
        ("fork-join --threads 1,2 --jobs 10", r"2 threads, asleep: median +[0-9.]+ us, 95 % under +[0-9.]+ us"),
        ("opencl-launch --launches 2 --rounds 1 --calls 5", r" +2( +[0-9.]+){4}"),
        (
            "throughput lstm --tiny --rounds 1 --seconds 0.01",
            r"lstm +ratio [0-9.]+ +[0-9.]+ calls/s by one thread, +[0-9.]+ by two",
        ),
    ],
)
def test_call_costs(arguments: str, line: str) -> None:
    case, *options = arguments.split()
    if case == "dispatch":
        pytest.importorskip("onnxruntime")
    if case == "opencl-launch" and "opencl" not in installed():
        pytest.skip("no OpenCL device")
    assert re.search(f"^{line}$", run("call_costs.py", case, *options, codes=(0, 1)), re.M)


@needs_x86
def test_scaling():
    printed = run("scaling.py", "100", "200", "--passes", codes=(0, 1))
    for part in ("import", "optimize", "partition", "verify", "simplify"):
        assert part in printed


@needs_x86
@pytest.mark.slow
def test_the_page_of_benchmarks(tmp_path):
    pytest.importorskip("onnxruntime")
    text, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    destinations = ["--results", str(results), "--write", str(text)]
    options = ["--tiny", "--threads", "1", "--against", "onnxruntime", "--rounds", "2", "--seconds", "0", *destinations]
    printed = run("bench.py", *options, "--only", "bert_base$|gemm_64|relu")
    assert "bert_base f32 1 thread: inlaid " in printed
    run("bench.py", *options, "--only", "mobilenet", "--models", "--precisions", "int8")
    for part in (
        "## Whole models in f32, 1 thread",
        "## Whole models in bf16, 1 thread",
        "| mobilenet_v2_int8 | ",
        "| mobilenet_v2_int8_signed | ",
        "Geometric mean of the ratios over 2 models",
        "| gemm | gemm_64 | ",
        "| memory | relu_",
        "- inlaid ",
        "- onnxruntime, bf16: cannot run a float32 model in bfloat16 (bert_base)",
    ):
        assert part in text.read_text()
    lines = results.read_text().splitlines()
    run("bench.py", "--draw", *destinations)
    assert results.read_text().splitlines() == lines


def row(name: str, symbolic_seconds: float, static_seconds: float, peer_seconds: float) -> symbolic_page.Row:
    timings = tuple(
        Timing(label, "1", "as it is", 1.0, 10.0, 0.0, (time, time), 0.0)
        for label, time in (("symbolic", symbolic_seconds), ("static", static_seconds), ("onnxruntime", peer_seconds))
    )
    at = symbolic_page.At({"batch": 3}, 2.0, Result(timings, ()))
    return symbolic_page.Row("kernel", name, "f32", "native", 1, seed=7, compile_s=5.0, at=(at,))


def test_rows_of_symbolic_sizes(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert "Nothing is measured yet" in symbolic_page.draw(symbolic_page.latest(path))
    rows = [row("slow", 9.0, 9.0, 9.0), row("slow", 6.0, 5.0, 5.0), row("good", 2.0, 2.0, 8.0)]
    for item in rows:
        symbolic_page.keep(path, item)
    latest_rows = symbolic_page.latest(path)
    assert latest_rows == rows[1:]
    assert [(item.static_ratio, item.peer_ratio, item.compile_ratio) for item in latest_rows] == [(1.2, 1.2, 2.5), (1.0, 0.25, 2.5)]
    text = symbolic_page.draw(latest_rows)
    assert "| slow | batch=3 | 6.00 | 5.00 | 1.20 | 5.00 | 1.20 | 5.0 | 2.50 | 0e+00 | " in text
    assert (
        "geometric mean 1.10, above 1.15: slow; by that of the best peer: geometric mean 0.55 (goal 0.90), above 1.00: slow" in text
    )


def test_sizes_are_drawn_within_their_ranges():
    generator = np.random.default_rng(0)
    for entry in GENERATED.values():
        assert entry.symbolic is not None
        for _ in range(20):
            for name, size in entry.symbolic.draw(generator).items():
                low, high = entry.symbolic.sizes[name]
                assert low <= size <= high and size % entry.symbolic.multiples.get(name, 1) == 0


def test_kernels_are_models():
    for name, kernel in KERNELS.items():
        if not name.endswith("_int8"):
            assert {dim.dim_param for item in kernel.build().graph.input for dim in item.type.tensor_type.shape.dim} >= set(
                kernel.sizes
            )


@needs_x86
@pytest.mark.slow
def test_symbolic_sizes_take_turns(tmp_path):
    pytest.importorskip("onnxruntime")
    text, results = tmp_path / "page.md", tmp_path / "rows.jsonl"
    options = ["--kernels", "--rounds", "2", "--seconds", "0", "--results", str(results), "--write", str(text)]
    printed = run("symbolic.py", *options, "--only", "^softmax$|^concat$", "--cpu", "x86-64-v2", "--minutes", "0")
    assert "not measured: none" in printed and not results.exists()
    run("symbolic.py", *options, "--only", "^softmax$", "--seed", "1")
    run("symbolic.py", *options, "--only", "^softmax$|^concat$", "--seed", "1")
    names = [symbolic_page.parse(line).name for line in results.read_text().splitlines()]
    assert names == ["softmax", "concat", "softmax"], "what was measured longest ago comes first"
    assert "## Single kernels in f32, 1 thread" in text.read_text()
    assert "above 1.15" in text.read_text()


def test_starts_of_processes_take_turns():
    quiet, larger = (sys.executable, "-c", "pass"), (sys.executable, "-c", "bytearray(1 << 26)")
    start_costs = installation.interleaved({"quiet": quiet, "larger": larger}, 3)
    assert start_costs["larger"].memory > start_costs["quiet"].memory + 32 and start_costs["quiet"].wall > 0
    with pytest.raises(RuntimeError, match="ended with status"):
        installation.start((sys.executable, "-c", "raise SystemExit(3)"))


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
def test_quantized_models_take_turns():
    (line,) = run("quantized.py", "squeezenet", "--seconds", "0.01").splitlines()
    labels = [part.split(" ms ")[0].rsplit(maxsplit=1)[0] for part in line.removeprefix("squeezenet").split(")")[:-1]]
    assert [label.strip() for label in labels] == [
        "float32", "fixed", "float", "uint8", "int8", "ONNX Runtime uint8", "ONNX Runtime int8",
    ]  # fmt: skip
    ratios = [float(part) for part in re.findall(r"\(([\d.]+)\)", line)]
    assert ratios[0] == 1 and len(ratios) > 1 and min(ratios) > 0


@needs_x86
def test_the_sweep_of_operators(tmp_path):
    pytest.importorskip("onnxruntime")
    text, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    options = ["--results", str(results), "--rounds", "1", "--seconds", "0", "--sizes", "small", "--write", str(text)]
    run("sweep.py", *options, "--only", "^(relu|softmax of rows)$")
    printed = run("sweep.py", *options, "--missing", "--only", "^(relu|gemm)$")
    assert [line.split(":")[0] for line in printed.splitlines()] == [
        f"{form} gemm, small model 1 thread" for form in ("static", "symbolic")
    ]
    for part in ("| static | small | 3 | median ", "| softmax of rows, small | 0.", "- exp2: no operator of ONNX"):
        assert part in text.read_text()


def test_the_table_of_schedules_by_hand():
    rounds = [{"loops": 4.0, "tiles": 2.0, by_hand.SHIPPED: 1.0}, {"loops": 2.0, "tiles": 1.0, by_hand.SHIPPED: 0.5}]
    assert by_hand.ratios(rounds) == {"loops": 0.25, "tiles": 0.5, by_hand.SHIPPED: 1.0}
    lines = by_hand.table(rounds, ["loops", "tiles"], 3e9)
    assert lines[2:] == [
        "| loops | 3000.00 | 1.0 | 0.25 |  |",
        "| tiles | 1500.00 | 2.0 | 0.50 | 2.00 |",
        "| inlaid.compile | 750.00 | 4.0 | 1.00 |  |",
    ]
    page = by_hand.PAGE.read_text(encoding="utf-8")
    once = by_hand.written(page, lines, "on a machine")
    assert by_hand.written(once, lines, "on a machine") == once
    assert once.count("| tiles |") == 1 and once.partition(by_hand.BEGIN)[0] == page.partition(by_hand.BEGIN)[0]
    assert by_hand.picture(by_hand.ratios(rounds)).count("<rect") == 4


@needs_x86
@pytest.mark.slow
def test_steps_of_a_schedule_take_turns():
    pytest.importorskip("onnxruntime")
    printed = run("by_hand.py", "--rounds", "1", codes=(0, 1))
    for step in ("three loops", "reorder", "registers", "pack", "inlaid.compile", "numpy", "ONNX Runtime"):
        assert f"| {step} | " in printed
