"""Sizes that operators do not take: clear errors before anything runs, on native code and on the reference alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid.errors import InlaidError, InputError, KernelFault, TypeInferenceError
from inlaid.runtime import load

TARGETS = ("x86:threads=2", "reference")


def model(nodes: list[onnx.NodeProto], shape: list[Any], weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model of one input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "sizes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def convolution(n: Any = "n") -> onnx.ModelProto:
    """A window of 5 over n, whose rectified mean is the result."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1"),
        helper.make_node("Relu", ["c"], ["r"], name="relu1"),
        helper.make_node("ReduceMean", ["r"], ["y"], name="mean1", axes=[2], keepdims=0),
    ]
    return model(nodes, ["batch", 4, n], {"w": np.random.default_rng(0).standard_normal((8, 4, 5)).astype(np.float32)})


@pytest.mark.parametrize("target", TARGETS)
def test_a_window_that_does_not_fit(target: str) -> None:
    executable = inlaid.compile(convolution(), targets=[target])
    x = np.random.default_rng(1).standard_normal((1, 4, 9)).astype(np.float32)
    (weights,) = (numpy_helper.to_array(item) for item in convolution().graph.initializer)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 5, 2)
    for n in (5, 4, 3, 1, 0, 9, 4, 5):
        given = {"x": x[:, :, :n]}
        if n >= 5:
            wanted = np.maximum(np.einsum("bcnk,ock->bon", windows[:, :, : n - 4], weights), 0).mean(2)
            np.testing.assert_allclose(executable.run(given)["y"], wanted, rtol=1e-5, atol=1e-5)
            continue
        with pytest.raises(InputError) as caught:
            executable.run(given)
        error = caught.value
        what = "dimension 2 of the output (windows of extent 5 over n padded by 0 and 0)"
        assert f"{what} must be >= 1, got {n - 4} where n is {n}" in str(error)
        assert (error.operator, error.node) == ("conv", "<model>:conv1")
        assert error.on_command_line().endswith("; give inputs with --dim n=5")
    assert executable.run({"x": x[:0]})["y"].shape == (0, 8)


def test_the_same_words_when_compiled() -> None:
    with pytest.raises(InlaidError) as caught:
        inlaid.compile(convolution(4), targets=["reference"])
    assert "dimension 2 of the output (windows of extent 5 over 4 padded by 0 and 0) must be >= 1, got 0" in str(caught.value)
    assert isinstance(caught.value, TypeInferenceError) or isinstance(caught.value.__cause__, TypeInferenceError)


CASES: dict[str, tuple[onnx.ModelProto, list[tuple[tuple[int, ...], str | None]]]] = {
    "negative pads": (
        model([helper.make_node("Pad", ["x", "p"], ["y"], name="it")], ["n", 3], {"p": np.array([-2, 0, -2, 0], np.int64)}),
        [
            ((5, 3), None),
            ((4, 3), None),
            ((3, 3), "dimension 0 of the output must be >= 0, got -1 where n is 3"),
            ((0, 3), "got -4"),
        ],
    ),
    "reflection of nothing": (
        model([helper.make_node("Pad", ["x", "p"], ["y"], name="it", mode="reflect")], ["n"], {"p": np.array([1, 1], np.int64)}),
        [((4,), None), ((0,), "an axis that is padded in mode reflect must be >= 1, got 0")],
    ),
    "a product of unlike extents": (
        model([helper.make_node("MatMul", ["x", "w"], ["y"], name="it")], [2, "k"], {"w": np.ones((5, 3), np.float32)}),
        [((2, 5), None), ((2, 4), "must be 5"), ((2, 6), "must be 5")],
    ),
    "a reshape that does not divide": (
        model([helper.make_node("Reshape", ["x", "s"], ["y"], name="it")], ["n", 3], {"s": np.array([-1, 4], np.int64)}),
        [((4, 3), None), ((0, 3), None), ((2, 3), "must be")],
    ),
    "broadcasting": (
        model([helper.make_node("Add", ["x", "w"], ["y"], name="it")], ["n", 3], {"w": np.ones((4, 3), np.float32)}),
        [((4, 3), None), ((1, 3), None), ((2, 3), "1 or 4 to broadcast"), ((0, 3), "1 or 4 to broadcast")],
    ),
    "a transposed convolution": (
        model(
            [helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="it", pads=[1, 1])],
            [1, 2, "n"],
            {"w": np.ones((2, 2, 2), np.float32)},
        ),
        [((1, 2, 3), None), ((1, 2, 1), "must be >= 1, got 0"), ((1, 2, 0), "got -1")],
    ),
    "a pool": (
        model([helper.make_node("MaxPool", ["x"], ["y"], name="it", kernel_shape=[2, 2], strides=[2, 2])], ["b", 1, "h", "w"]),
        [((2, 1, 2, 3), None), ((0, 1, 2, 2), None), ((1, 1, 1, 2), "dimension 2"), ((1, 1, 4, 1), "dimension 3")],
    ),
    "too many of the largest": (
        model([helper.make_node("TopK", ["x", "k"], ["y", "i"], name="it")], ["n"], {"k": np.array([3], np.int64)}),
        [((3,), None), ((2,), "k must be 0 to n")],
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_operators_refuse(name: str, target: str) -> None:
    made, runs = CASES[name]
    executable = inlaid.compile(made, targets=[target])
    reference = inlaid.compile(made, targets=["reference"])
    for shape, message in runs:
        given = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        if message is None:
            np.testing.assert_allclose(executable.run(given)["y"], reference.run(given)["y"], rtol=1e-5, atol=1e-6)
            continue
        with pytest.raises(InputError) as caught:
            executable.run(given)
        assert message in str(caught.value)
        assert caught.value.node == "<model>:it"


def test_a_package_keeps_them(tmp_path: Path) -> None:
    inlaid.compile(convolution(), targets=["x86:threads=1"]).save(tmp_path / "model.inlaid")
    loaded = load(tmp_path / "model.inlaid")
    assert loaded.run({"x": np.zeros((1, 4, 5), np.float32)})["y"].shape == (1, 8)
    with pytest.raises(InputError, match=r"must be >= 1, got 0 where n is 4 \(operator conv, at <model>:conv1\)"):
        loaded.run({"x": np.zeros((1, 4, 4), np.float32)})


@pytest.mark.parametrize("target", TARGETS)
def test_runs_after_failed_ones(target: str) -> None:
    """Runs that fail, before and while kernels run, leave nothing behind for those that share their workspaces."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1"),
        helper.make_node("Gather", ["c", "i"], ["g"], name="gather1", axis=2),
        helper.make_node("ReduceMean", ["g"], ["y"], name="mean1", axes=[2], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "failing",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "n"]),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        list(convolution().graph.initializer),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    executable = inlaid.compile(made, targets=[target])
    x = np.random.default_rng(1).standard_normal((1, 4, 40)).astype(np.float32)
    good = [{"x": x[:, :, :n], "i": np.arange(n - 4)[::step]} for n, step in ((5, 1), (12, 2), (40, 3))]
    wanted = [executable.run(given)["y"] for given in good]
    short, outside = {"x": x[:, :, :4], "i": np.arange(1)}, {"x": x[:, :, :9], "i": np.array([0, 5])}

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for kind in rng.integers(0, 5, 40):
            if kind < 3:
                np.testing.assert_array_equal(executable.run(good[kind])["y"], wanted[kind])
            else:
                with pytest.raises(InputError if kind == 3 else KernelFault):
                    executable.run(short if kind == 3 else outside)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result()
