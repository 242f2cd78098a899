"""inlaid compile --isolate."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlaid.plugins.registry import default_registry
from inlaid_cli import main
from inlaid_runtime import load

pytestmark = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Compile a model of one node in isolation, with further arguments: the exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "small", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), "small.onnx")

    def command(*arguments):
        with pytest.raises(SystemExit) as exit_info:
            main(["compile", "small.onnx", "--target", "x86:threads=1", *arguments])
        out, err = capsys.readouterr()
        return exit_info.value.code, out, err

    return command


def test_what_works_is_as_without(run):
    code, out, err = run("--isolate", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["fallbacks"] == [] and [region["target"] for region in facts["regions"]] == ["x86:threads=1"]
    (result,) = load("small.inlaid").run({"x": np.array([-1, 0, 1, 2], np.float32)}).values()
    assert result.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_fails_goes_elsewhere_and_is_told_every_time(run, as_json):
    run()  # a package of the same model is in the cache now
    words = (
        "region region0_x86 falls back from x86:threads=1 to reference: the code generator took more than 0.001 s and was killed "
        "(at act, region region0_x86, plugin x86)"
    )
    for _ in range(2):
        code, out, err = run("--isolate", "--time-limit", "0.001", *(["--json"] if as_json else []))
        assert (code, err.strip()) == (0, words)
        if as_json:
            assert json.loads(out)["fallbacks"] == [words]
        else:
            assert "region0_x86_region0_reference on reference: 1 source nodes" in out
    (result,) = load("small.inlaid").run({"x": np.array([-1, 0, 1, 2], np.float32)}).values()
    assert result.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("limit", [("--time-limit", "5"), ("--memory-limit", "4096")])
def test_limits_are_of_isolation(run, limit):
    code, _, err = run(*limit)
    assert code == 2 and "add --isolate" in err
