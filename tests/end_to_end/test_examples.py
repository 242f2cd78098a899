"""Every example runs, without a warning, and prints what it promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlaid.plugins.registry import default_registry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROMISES = {
    "classify_digits.py": ("is 0, taken for 0", "353 of 360 handwritten digits recognized", "the demo works"),
    "custom_operator.py": ("largest difference from numpy", "my.swish"),
    "partition.py": ("string is not among its capabilities", "regions: region0_reference on reference, region1_x86 on x86"),
    "profile_model.py": ("source nodes", "the longest"),
    "resnet50.py": ("top-5", "largest difference", "latency", "where each operator ran", "peak memory", "the answer is right"),
    "save_and_load.py": ("square.inlaid", "the compiler was loaded: False"),
    "show_model.py": ("def @main", "conv("),
    "symbolic_sizes.py": ("(5, 17, 8): right",),
}
SLOW = {"resnet50.py", "profile_model.py"}

pytestmark = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def run(name: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stderr == "", "a progress bar is for terminals only"
    return process.stdout


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PROMISES])
def test_the_example_keeps_its_promises(name):
    printed = run(name)
    for promise in PROMISES[name]:
        assert promise in printed


@pytest.mark.slow
def test_the_profile_is_written_as_a_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    run("profile_model.py", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"region", "kernel"}


def test_the_demo_notices_a_network_that_is_wrong(tmp_path):
    """Its network is trained, so that spoilt weights give other answers; one of constant weights would not tell."""
    folder = tmp_path / "digits"
    folder.mkdir()
    (tmp_path / "demo.py").write_text((EXAMPLES / "classify_digits.py").read_text())
    (folder / "digits.npz").write_bytes((EXAMPLES / "digits" / "digits.npz").read_bytes())
    spoilt = onnx.load(EXAMPLES / "digits" / "digits.onnx")
    (weight,) = [each for each in spoilt.graph.initializer if each.name == "w3"]
    weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), "w3"))
    onnx.save(spoilt, folder / "digits.onnx")
    process = subprocess.run([sys.executable, str(tmp_path / "demo.py")], capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 1 and "THE RESULT IS WRONG" in process.stdout


def test_the_model_of_the_demo_is_small():
    assert sum(path.stat().st_size for path in (EXAMPLES / "digits").iterdir()) < 50_000


@pytest.mark.slow
def test_a_wrong_answer_gives_a_status_that_is_not_zero(tmp_path):
    spoilt = (
        (EXAMPLES / "resnet50.py")
        .read_text()
        .replace("(answer,) = executable.run(inputs).values()", "answer = np.zeros((1, 1000))")
    )
    script = tmp_path / "spoilt.py"
    script.write_text(spoilt)
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 1
    assert "THE ANSWER IS WRONG" in process.stdout


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The model.onnx of the README, in the current folder."""
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("input", "output")]
    graph = helper.make_graph([helper.make_node("Relu", ["input"], ["output"])], "relu", sides[:1], sides[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("model")
def test_the_python_of_the_readme_runs():
    use, model = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {"array": np.array([[-1, 0, 2], [3, -4, 5]], np.float32)}
    exec(use, names)
    assert names["outputs"]["output"].tolist() == [[0, 0, 2], [3, 0, 5]]
    exec(model, names)
    assert names["outputs"]["output0"].tolist() == [[0.25] * 4]


@pytest.mark.usefixtures("model")
def test_the_commands_of_the_readme_run():
    commands = re.findall(r"^inlaid .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        _, *arguments = command.split()
        main = "from inlaid_cli import main; main()"
        process = subprocess.run([sys.executable, "-c", main, *arguments], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
    assert "output: float32[2, 3]" in process.stdout
