"""A folder with a small model, and commands that run in it in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlaid_cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def cli_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`relu.onnx`, y = relu(x) on a batch of three numbers, and the beginning of it as `cut.onnx`."""
    folder = tmp_path_factory.mktemp("commands")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "relu", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "relu.onnx")
    model_bytes = (folder / "relu.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(model_bytes[: len(model_bytes) // 2])
    np.save(folder / "x.npy", np.array([[-1.5, 0, np.inf]], np.float32))
    return folder


@pytest.fixture
def run(cli_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the folder; its exit code, standard output and standard error."""
    monkeypatch.chdir(cli_folder)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(exit_info.value.code, int)
        return exit_info.value.code, out, err

    return command
