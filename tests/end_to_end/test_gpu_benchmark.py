"""benchmarks/gpu.py without a GPU: page, goals, resumption, and a smoke test on the emulated device."""

from __future__ import annotations

import re
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import inlaid
from inlaid.plugins.registry import default_registry
from inlaid_bench.comparison import Missing, Result, Timing
from inlaid_conformance import case as conformance
from inlaid_conformance.report import Report, as_json
from inlaid_runtime.plugins import DeviceStatus
from onnx_node_suite import Outcome, summary
from zoo import feeds, model_path
from zoo.half import half

pytest.importorskip("inlaid_cuda", reason='the cuda plugin is not installed: pip install "inlaid[cuda]"')
import gpu
import gpu_page
from gpu_cases import cases
from gpu_engines import COMPILED, COPY, TORCH, TRITON, difference, missing
from gpu_page import Row

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"


def row(group: str, name: str, precision: str = "f32", error: float = 0.0, **times: float) -> Row:
    """A row of made times in milliseconds, Inlaid's first."""
    timings = tuple(
        Timing(label.replace("_", "."), "1", "as it is", 1.0, 0.0, 0.0, (time, 2 * time), error if label != "inlaid" else 0.0)
        for label, time in times.items()
    )
    return Row(
        group, name, precision, "GPU (sm_90)", "CUDA 13.0", Result(timings, ()), operations=2_000_000, date="2026-01-01 00:00"
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_without_rows_the_page_says_so():
    text = gpu_page.draw([])
    assert "Not measured yet: no GPU has run this code." in text
    assert "at least 80% of the rate of cuBLAS" in text and "at most 0.90 of the time of `torch.compile`" in text
    assert "at least 85% of the bandwidth" in text and "make bench-gpu" in text
    assert not [line for line in text.splitlines() if line.startswith("|")]


def test_the_committed_page_is_drawn():
    page = (ROOT / "docs" / "benchmarks-gpu.md").read_text(encoding="utf-8")
    if gpu_page.NOT_MEASURED in page:
        assert gpu_page.draw([]) == page, "python benchmarks/gpu.py --draw --write docs/benchmarks-gpu.md"


@pytest.mark.parametrize(
    ("benchmark_row", "value", "meets_goal"),
    [
        (row("gemm", "1024", "f16", inlaid=1.0, torch=0.8), 0.80, True),
        (row("gemm", "1024", "f16", inlaid=1.0, torch=0.79), 0.79, False),
        (row("gemm", "1024", "f16", error=0.1, inlaid=1.0, torch=2.0), 2.0, False),
        (row("models", "a, batch 1", inlaid=0.9, torch_compile=1.0), 0.9, True),
        (row("models", "a, batch 1", inlaid=0.95, torch_compile=1.0), 0.95, False),
        (row("memory", "relu", inlaid=1.0, **{COPY: 0.85}), 0.85, True),
        (row("memory", "relu", inlaid=1.0, **{COPY: 0.80}), 0.80, False),
    ],
)
def test_goals(benchmark_row, value, meets_goal):
    assert benchmark_row.judged is not None
    assert (benchmark_row.judged.value, benchmark_row.judged.reaches_goal) == (pytest.approx(value), meets_goal)


def test_rows_without_a_goal():
    assert row("gemm", "1024", "f32", inlaid=1.0, torch=0.5).judged is None
    assert row("models", "a, batch 32", inlaid=1.0, torch_compile=1.0).judged is None
    assert row("models", "a, batch 1", inlaid=1.0, torch=1.0).judged is None, "its peer is missing"
    failed = replace(row("gemm", "1024", "f16", inlaid=1.0), result="out of memory")
    assert failed.judged is None and failed.wrong
    assert replace(failed, name="suite, runtime", result={"passed": 3, "failed": 1}).wrong
    assert not replace(failed, name="ONNX node cases, a", result={"passed": 3, "failed": 1}).wrong


def test_the_latest_rows_are_drawn(tmp_path):
    path = tmp_path / "rows.jsonl"
    fast = row("gemm", "1024", "f16", inlaid=1.0, torch=0.9)
    absent = replace(
        row("models", "a, batch 1", inlaid=1.0),
        result=Result(row("models", "a", inlaid=1.0).result.timings, (missing(TORCH, ImportError("No module named 'torch'")),)),
        operations=0,
    )
    rows = [
        row("gemm", "1024", "f16", inlaid=9.0),
        fast,
        absent,
        replace(absent, group="attention", name="b", result="the device has no memory left"),
        replace(absent, group="conformance", name="suite, runtime", precision="", result={"passed": 3.0, "failed": 0.0}),
        replace(fast, device="Other (sm_80)"),
    ]
    for item in rows:
        gpu_page.keep(path, item)
    latest_rows = gpu_page.latest(path)
    assert latest_rows == rows[1:]
    text = gpu_page.draw(latest_rows)
    assert gpu_page.NOT_MEASURED not in text
    for part in (
        "## GPU (sm_90)\n\nDriver: CUDA 13.0. Measured from 2026-01-01 00:00 to 2026-01-01 00:00.",
        "## Other (sm_80)",
        "Goals met: gemm: 1 of 1. Failed or beyond the tolerance: b f32.",
        "| 1024 | f16 | 1.50 | 0.0 | 1.35 | 1.11 | 0.90 (at least 0.80): met | 0e+00 | 2026-01-01 00:00 |",
        "| a, batch 1 | f32 | 1.50 | not installed: pip install torch torchvision onnx2torch | - | - | - | 2026-01-01 00:00 |",
        "| b | f32 | the device has no memory left |",
        "| what | passed | failed | date |",
        "| suite, runtime | 3 | 0 | 2026-01-01 00:00 |",
        "- torch 1, gemm: as it is",
    ):
        assert part in text


def test_peers_that_are_kept():
    before = row("gemm", "1024", "f16", inlaid=1.0, torch=2.0, triton=3.0)
    assert [item.label for item in gpu_page.reusable_timings(before, {TRITON: "1", TORCH: "1"})] == [TRITON]
    assert not gpu_page.reusable_timings(before, {TRITON: "2"}), "another version"
    assert not gpu_page.reusable_timings(None, {TRITON: "1"})
    compiled = replace(row("models", "a, batch 1", error=0.5, inlaid=0.5, torch_compile=1.0), kept=(COMPILED,))
    assert (compiled.ratio(COMPILED), compiled.difference) == (0.5, None)
    assert "| 1.50* | 0.50 |" in gpu_page.draw([compiled])


def test_what_is_missing_says_what_to_install():
    assert missing(TRITON, ImportError("No module named 'triton'")).reason.endswith(
        "pip install torch torchvision onnx2torch triton"
    )
    assert missing(TORCH, RuntimeError("too large\nat line 3")) == Missing(TORCH, "RuntimeError: too large")


def test_differences():
    one = np.array([1.0, 2.0], np.float16)
    assert difference([one], [one]) == 0
    assert difference([one], [one.astype(np.float32) + 1]) == pytest.approx(1 / 3)
    assert difference([one], [one[:1]]) == float("inf")
    special = np.array([np.nan, np.inf, 3.0])
    assert difference([special], [special]) == 0
    assert difference([special], [np.array([0.0, np.inf, 3.0])]) == difference([special], [-special]) == float("inf")


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("group", ["gemm", "attention", "memory"])
def test_operators_have_names_of_their_own(group, tiny):
    group_cases = cases(group, tiny)
    assert len({(case.name, case.precision) for case in group_cases}) == len(group_cases)
    for case in group_cases:
        function = case.function()
        moved = sum(int(np.prod(case_shape)) for case_shape in (*case.shapes, function.body.type.shape)) * case.dtype.itemsize
        assert case.moved == moved
        if tiny:
            assert [(item.shape, item.dtype) for item in case.operands()] == [(shape, case.dtype) for shape in case.shapes]


def test_models_in_float16():
    model = onnx.load(model_path("mobilenet_v2", tiny=True))
    (expected,) = inlaid.compile(model, targets=["reference"]).run(feeds(model)).values()
    narrow = half(model)
    onnx.checker.check_model(narrow)
    (actual,) = inlaid.compile(narrow, targets=["reference"]).run(feeds(narrow)).values()
    assert actual.dtype == np.float16
    assert difference([actual], [expected]) < 1e-2


BENCH = gpu.Bench("acme", None, gpu.Settings(), False, True, {})  # type: ignore[arg-type]


def test_counts_of_the_conformance_suite(monkeypatch):
    results = (
        conformance.Result("runtime/a", "runtime", conformance.Outcome.PASSED),
        conformance.Result("runtime/b", "runtime", conformance.Outcome.FAILED, "wrong"),
        conformance.Result("plugin/a", "plugin", conformance.Outcome.PASSED),
    )
    report = Report("acme", "acme", "", "", DeviceStatus(True, ""), (), results, False)

    def suite(arguments, codes, until):
        Path(arguments[-1]).write_text(as_json(report), encoding="utf-8")
        return "", ""

    monkeypatch.setattr(gpu, "_run", suite)
    counts = gpu._suite(BENCH, "runtime")
    assert isinstance(counts, dict) and (counts["passed"], counts["failed"]) == (1, 1)
    monkeypatch.setattr(gpu, "_run", lambda arguments, codes, until: ("", ""))
    assert gpu._suite(BENCH, "runtime") == "no report was written"


def test_counts_of_node_cases(monkeypatch):
    outcomes = [Outcome(name, state) for name, state in (("a", "native"), ("b", "fallback"), ("c", "failed"), ("d", "native"))]
    monkeypatch.setattr(gpu, "_run", lambda arguments, codes, until: ("", summary(outcomes)))
    assert gpu._node_suite(BENCH, "^test_") == {"passed": 3, "failed": 1, "wholly native": 2}
    monkeypatch.setattr(gpu, "_run", lambda arguments, codes, until: ("it crashed", ""))
    assert gpu._node_suite(BENCH, "^test_") == "it crashed"


def test_node_cases_are_all_asked_for():
    for letter in string.ascii_lowercase:
        assert sum(bool(re.fullmatch(f"[{letters}]", letter)) for letters in gpu.NODE_CASES) == 1, letter


def test_suites_are_stopped_with_what_they_started():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(subprocess.TimeoutExpired):
        gpu._run(["-c", child], (0,), until=0.0)
    assert gpu._run(["-c", "print(1); raise SystemExit(3)"], (3,), float("inf")) == ("", "1\n")
    assert gpu._run(["-c", "raise SystemExit('no such case')"], (0,), float("inf")) == ("no such case", "")


def test_without_a_device(tmp_path):
    registry = default_registry()
    if registry.probe(registry.target("cuda")).available:
        pytest.skip("this machine has a device")
    results, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    process = run("--results", str(results), "--write", str(page))
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == f"{registry.probe(registry.target('cuda')).detail}\n"
    assert not results.exists() and not page.exists()


@pytest.mark.slow
def test_the_emulated_device(tmp_path):
    from inlaid_cuda.emulation.build import INSTALL, find_compiler

    if find_compiler() is None:
        pytest.skip(f"there is no C++ compiler: {INSTALL}")
    results, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    options = ["--target", "cuda:arch=host", "--tiny", "--rounds", "2", "--seconds", "0"]
    options += ["--results", str(results), "--write", str(page)]
    groups = ["--group", "gemm", "attention", "memory", "models", "launch"]
    only = "^32|batch 1, 4|^relu|mobilenet|^1 launches"
    process = run(*options, *groups, "--only", only)
    assert (process.returncode, process.stderr) == (0, "")
    text = page.read_text(encoding="utf-8")
    for part in (
        "## host (emulated",
        "| relu, 2048 | f32 |",
        "| 1 launches, enqueued as a graph |",
        "fusion off, ms",
    ):
        assert part in text
    assert {item.precision for item in gpu_page.latest(results) if item.group == "gemm"} == {"f16", "bf16", "tf32", "f32"}
    before = [item.name for item in gpu_page.latest(results)]
    process = run(*options, "--group", "memory", "--only", "^relu|^add", "--minutes", "0.000001")
    assert process.returncode == 0 and len(results.read_text().splitlines()) == len(before), "nothing is begun without time"
    assert run(*options, "--group", "memory", "--only", "^relu|^add").returncode == 0
    names = [gpu_page.parse(line).name for line in results.read_text().splitlines()][len(before) :]
    assert names == ["add, 2048"] * 2 + ["relu, 2048"] * 2, "what was not measured comes first"
