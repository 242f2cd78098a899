"""Timing engines beside one another. The peers here are stand-ins, so that none needs to be installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import inlaid
from inlaid.plugins.registry import default_registry
from inlaid_bench import comparison
from inlaid_bench.command import render
from inlaid_bench.comparison import UNFUSED, Comparison, Missing, Result, Timing, compare_engines, with_threads
from inlaid_cli.exit_codes import ExitCode
from inlaid_runtime.errors import CompileError, InputError

STAND_IN = """
import os
import time

import numpy as np

__version__ = "1.0"

class SessionOptions:
    pass

class InferenceSession:
    def __init__(self, model, options, providers):
        self.runs = 0

    def run(self, names, arrays):
        self.runs += 1
        print("chatter")
        {extra}
        return [np.maximum(arrays["file"] + arrays["b"], 0)]
"""
"""An onnxruntime that knows one model."""


@pytest.fixture
def model(tmp_path) -> Path:
    """relu(file + b): one input bears a name that numpy's archives would take for their own."""
    shape = ["batch", 3]
    graph = helper.make_graph(
        [helper.make_node("Add", ["file", "b"], ["sum"]), helper.make_node("Relu", ["sum"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("file", "b")],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a module of that name before those installed."""
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))

    def put(name: str, text: str) -> None:
        (folder / f"{name}.py").write_text(text)

    return put


def make_comparison(model: Path, *against: str, **changes) -> Comparison:
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((2, 3), np.float32) for name in ("file", "b")}
    return Comparison(model, inputs, ("reference",), 1, against, **{"rounds": 3, "seconds": 0.0, **changes})


def test_engines_take_turns_and_agree(model, stand_in):
    stand_in("onnxruntime", STAND_IN.format(extra=""))
    stand_in("openvino", "raise ImportError('no such library')")
    reports = []
    result = compare_engines(make_comparison(model, "onnxruntime", "openvino"), lambda stage, count, total: reports.append(stage))
    assert [item.label for item in result.timings] == ["inlaid", UNFUSED, "onnxruntime"]
    assert all(len(item.rounds) == 3 and min(item.rounds) > 0 for item in result.timings)
    assert result.inlaid.difference == 0
    assert result.peers[0].difference < 1e-6
    assert result.best is result.peers[0]
    assert result.missing == (Missing("openvino", "is not installed: no such library (pip install openvino)"),)
    turns = [stage.removeprefix("time ") for stage in reports if stage.startswith("time ")]
    assert turns[0] != turns[3] != turns[6], "each round starts with another engine"
    assert sorted(turns[:3]) == sorted(turns[3:6]) == sorted(turns[6:])


def test_alone(model):
    result = compare_engines(make_comparison(model))
    assert [item.label for item in result.timings] == ["inlaid"]
    assert result.best is None


@pytest.mark.parametrize("when", ["prepared", "timed"])
@pytest.mark.parametrize(
    ("extra", "reason"),
    [("raise ValueError('first line\\nlast line')", "ValueError: last line"), ("os._exit(3)", "its process ended with code 3")],
    ids=["raises", "dies"],
)
def test_a_peer_that_fails_is_left_out(model, stand_in, extra, reason, when):
    stand_in("onnxruntime", STAND_IN.format(extra=extra if when == "prepared" else f"if self.runs > 3: {extra}"))
    result = compare_engines(make_comparison(model, "onnxruntime", rounds=2))
    assert result.missing == (Missing("onnxruntime", reason),)
    assert len(result.timings) == 2


def test_a_peer_that_hangs_is_left_out(model, stand_in, monkeypatch):
    stand_in("onnxruntime", STAND_IN.format(extra="time.sleep(60)"))

    def report(stage, count, total):
        monkeypatch.setattr(comparison, "TIME_LIMIT", 2.0 if stage == "prepare onnxruntime" else 60.0)

    assert compare_engines(make_comparison(model, "onnxruntime"), report).missing == (Missing("onnxruntime", "took more than 2 s"),)


def test_an_engine_is_stopped_unless_it_is_timed(model, stand_in, tmp_path):
    stand_in("onnxruntime", STAND_IN.format(extra=""))
    job = comparison._jobs(make_comparison(model, "onnxruntime"), tmp_path)[2]
    engine = comparison._Engine(job)
    try:
        assert engine.prepare() == ""
        assert _state(engine) == "T"
        assert engine.time(0.0) == ""
        assert _state(engine) == "T"
        assert len(engine.rounds) == 1
    finally:
        engine.end()


def _state(engine: comparison._Engine) -> str:
    return Path(f"/proc/{engine._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_only_inlaid_cannot_run_is_an_error(model, tmp_path):
    with pytest.raises(CompileError, match=r"cannot run.*wrong"):
        compare_engines(make_comparison(_with_operator(model, tmp_path, "wrong")))


def _with_operator(model: Path, folder: Path, operator: str) -> Path:
    proto = onnx.load(model)
    proto.graph.node[1].op_type = operator
    path = folder / "other.onnx"
    onnx.save(proto, path)
    return path


def test_every_engine_gets_the_sizes_that_inlaid_is_told(model, tmp_path):
    jobs = comparison._jobs(make_comparison(model, "onnxruntime", dims={"batch": 2}), tmp_path)
    assert len({job.model for job in jobs}) == 1
    dims = onnx.load(jobs[0].model).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 3]
    assert comparison._jobs(make_comparison(model, "onnxruntime", dims={"batch": (1, 4)}), tmp_path)[0].model == str(model)


def test_mistakes(model, tmp_path):
    with pytest.raises(InputError, match="unknown peer 'abacus'"):
        compare_engines(make_comparison(model, "abacus"))
    with pytest.raises(InputError, match="peers need a model"):
        compare_engines(make_comparison(tmp_path / "model.inlaid", "onnxruntime"))


def test_threads():
    registry = default_registry()
    assert with_threads(["reference"], 3, registry) == (("reference",), 3)
    assert with_threads(["reference"], None, registry)[1] == len(os.sched_getaffinity(0))
    if "x86" in registry.kinds():
        assert with_threads(["x86:threads=2", "reference"], None, registry) == (("x86:threads=2", "reference"), 2)
        assert with_threads(["x86:threads=2"], 1, registry) == (("x86:threads=1",), 1)


def test_the_table():
    inlaid_timing = Timing("inlaid", "0", "here", 1.0, 10.0, 0.0, (1.0, 2.0, 3.0), 0.0)
    peer = Timing("openvino", "9", "there", 1.0, 10.0, 0.0, (2.0, 2.0, 2.0), 1e-7)
    result = Result((inlaid_timing, peer), (Missing("tvm", "is not installed"),))
    assert result.ratios(peer) == (0.5, 1.0, 1.5)
    text = render(Comparison(Path("m.onnx"), {"x": np.zeros((1, 2), np.float32)}, ("x86",), 2), result)
    for part in (
        "x float32[1, 2]",
        "1.000 .. 3.000",
        "1.00  0.50 .. 1.50",
        "tvm       is not",
        "openvino 9: there",
    ):
        assert part in text


def test_the_table_fits_and_does_not_contradict_itself():
    """Each round is noisy; the ratio is that of the medians beside it."""
    long = "CPU provider, 16 intra-op threads, spinning, all graph optimizations, " + "and still more of them, " * 5
    inlaid_timing = Timing("inlaid", "0", "here", 100.0, 12345.0, 0.0, (1000.0, 2000.0, 3999.0), 0.0)
    peer = Timing("onnxruntime", "9", long, 100.0, 99999.0, 0.0, (1999.0, 1000.0, 3000.0), 1e-7)
    result = Result((inlaid_timing, peer), (Missing("tvm", f"failed: {long}"),))
    inputs = {f"input_{number}": np.zeros((1, 2), np.float32) for number in range(9)}
    text = render(Comparison(Path("m.onnx"), inputs, ("x86",), 2), result)
    assert max(map(len, text.splitlines())) <= 100
    assert result.ratio(peer) == inlaid_timing.median / peer.median
    assert min(result.ratios(peer)) <= result.ratio(peer) <= max(result.ratios(peer))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("onnxruntime ")]
    assert float(row[5]) == pytest.approx(2000 / float(row[1]), abs=0.01)


def test_a_package_is_timed_as_it_is(model, tmp_path):
    package = tmp_path / "model.inlaid"
    inlaid.compile(model, ["reference"]).save(package)
    command = [
        sys.executable,
        "-c",
        "from inlaid_cli import main; main()",
        "bench",
        str(package),
        "--rounds",
        "1",
        "--seconds",
        "0",
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "model.inlaid: file float32[1, 3], b float32[1, 3]; 1 rounds" in process.stdout
    process = subprocess.run([*command, "--threads", "2"], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "leave out --threads" in process.stderr


def test_the_command(model, stand_in, tmp_path):
    stand_in("onnxruntime", STAND_IN.format(extra=""))
    options = ["--target", "reference", "--against", "onnxruntime", "--rounds", "1", "--seconds", "0", "--dim", "batch=4", "--json"]
    command = [sys.executable, "-c", "from inlaid_cli import main; main()", "bench", str(model), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    facts = json.loads(process.stdout)
    assert [item["label"] for item in facts["timings"]] == ["inlaid", UNFUSED, "onnxruntime"]
    assert facts["timings"][2]["difference"] < 1e-6
    assert len(facts["ratios"]["onnxruntime"]) == 1


def test_a_missing_engine_fails_before_anything_is_compiled(cli_folder, run, monkeypatch):
    monkeypatch.setattr(comparison, "_importable", lambda module: module != "tvm")
    monkeypatch.setattr("inlaid_bench.command.compare_engines", None)
    code, out, err = run("bench", "relu.onnx", "--target", "reference", "--against", "tvm")
    assert (code, out) == (ExitCode.INPUT, "")
    assert "engine 'tvm' is not installed; pip install apache-tvm, or leave it out of --against" in err


def test_an_engine_that_cannot_take_part_fails_after_the_table(cli_folder, run, monkeypatch):
    inlaid_timing = Timing("inlaid", "0", "here", 1.0, 10.0, 0.0, (1.0,), 0.0)
    result = Result((inlaid_timing,), (Missing("onnxruntime", "InvalidGraph: no"),))
    monkeypatch.setattr("inlaid_bench.command.compare_engines", lambda *_: result)
    monkeypatch.setattr("inlaid_bench.command.check_installed", lambda _: None)
    code, out, _ = run("bench", "relu.onnx", "--target", "reference", "--against", "onnxruntime")
    assert code == ExitCode.CHECK_FAILED and "onnxruntime  InvalidGraph: no" in out
    code, out, _ = run("bench", "relu.onnx", "--target", "reference", "--against", "onnxruntime", "--json")
    assert code == ExitCode.CHECK_FAILED and json.loads(out)["missing"] == [{"label": "onnxruntime", "reason": "InvalidGraph: no"}]
