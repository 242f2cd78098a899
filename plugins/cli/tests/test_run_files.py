"""The arrays that `inlaid run` reads and writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlaid_cli.exit_codes import ExitCode

from .conftest import Run

TARGET = ("--target", "reference")


@pytest.fixture(scope="module")
def sums(cli_folder: Path) -> str:
    """A model of two inputs of one symbolic batch, and two outputs."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "abst"]
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Sub", ["a", "b"], ["t"])]
    graph = helper.make_graph(nodes, "sums", values[:2], values[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), cli_folder / "sums.onnx")
    for rows in (2, 5):
        np.save(cli_folder / f"rows{rows}.npy", np.ones((rows, 3), np.float32))
    return "sums.onnx"


def test_one_output_may_be_a_npy_file(run: Run, cli_folder: Path, sums: str) -> None:
    assert run("run", "relu.onnx", *TARGET, "--input", "x=x.npy", "-o", "y.npy")[0] == 0
    np.testing.assert_array_equal(np.load(cli_folder / "y.npy"), [[0, 0, np.inf]])
    code, _, err = run("run", sums, *TARGET, "-o", "two.npy")
    assert code == ExitCode.INPUT and "expected an .npz file for 2 outputs, got two.npy; use two.npz" in err
    assert not (cli_folder / "two.npy").exists()


def test_sizes_of_files_and_options_agree(run: Run, sums: str) -> None:
    assert run("compile", sums, *TARGET, "-o", "sums.inlaid")[0] == 0
    for model in ((sums, *TARGET), ("sums.inlaid",)):
        code, out, err = run("run", *model, "--input", "b=rows5.npy")  # the other input takes the size of this one
        assert code == 0 and "s: float32[5, 3]" in out, err
        assert run("run", *model, "--input", "a=rows2.npy", "--input", "b=rows5.npy")[0] == ExitCode.INPUT
        assert run("run", *model, "--dim", "batch=4", "--input", "b=rows5.npy")[0] == ExitCode.INPUT
    code, _, err = run("run", "sums.inlaid", "--dim", "batch=4", "--input", "b=rows5.npy")
    assert "dimension 'batch' must be 4, got 5 in input 'b'; give one size by --dim and all inputs" in err
