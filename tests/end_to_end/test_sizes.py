"""Sizes that operators do not take: clear errors before anything runs, on native code and on the reference alike."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid import ops
from inlaid.graph.interp import Interpreter
from inlaid_runtime import load
from inlaid_runtime.errors import InlaidError, InputError, KernelFault, TypeInferenceError

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
        feeds = {"x": x[:, :, :n]}
        if n >= 5:
            expected = np.maximum(np.einsum("bcnk,ock->bon", windows[:, :, : n - 4], weights), 0).mean(2)
            np.testing.assert_allclose(executable.run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)
            continue
        with pytest.raises(InputError) as caught:
            executable.run(feeds)
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
    model, runs = CASES[name]
    executable = inlaid.compile(model, targets=[target])
    reference = inlaid.compile(model, targets=["reference"])
    for shape, message in runs:
        feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        if message is None:
            np.testing.assert_allclose(executable.run(feeds)["y"], reference.run(feeds)["y"], rtol=1e-5, atol=1e-6)
            continue
        with pytest.raises(InputError) as caught:
            executable.run(feeds)
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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    executable = inlaid.compile(model, targets=[target])
    x = np.random.default_rng(1).standard_normal((1, 4, 40)).astype(np.float32)
    good = [{"x": x[:, :, :n], "i": np.arange(n - 4)[::step]} for n, step in ((5, 1), (12, 2), (40, 3))]
    expected = [executable.run(feeds)["y"] for feeds in good]
    short, outside = {"x": x[:, :, :4], "i": np.arange(1)}, {"x": x[:, :, :9], "i": np.array([0, 5])}

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for kind in rng.integers(0, 5, 40):
            if kind < 3:
                np.testing.assert_array_equal(executable.run(good[kind])["y"], expected[kind])
            else:
                with pytest.raises(InputError if kind == 3 else KernelFault):
                    executable.run(short if kind == 3 else outside)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, seed) for seed in range(4)]:
            future.result()


# --- relations between operands ---------------------------------------------------------------------------------------


class Operands:
    """The operands of a model: random ones, named, with a symbolic dimension where a shape has a name."""

    def __init__(self) -> None:
        self.vars: list[inlaid.graph.ir.Var] = []  # type: ignore[name-defined]

    def __call__(self, *shape: int | str, dtype: str = "float32") -> inlaid.graph.ir.Var:  # type: ignore[name-defined]
        self.vars.append(inlaid.var(f"x{len(self.vars)}", shape, dtype))
        return self.vars[-1]

    def values(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """Values of given sizes. Integers are valid indices: 0."""
        arrays = {}
        for number, each in enumerate(self.vars):
            shape = [dim if isinstance(dim, int) else sizes[repr(dim)] for dim in each.shape]
            random = np.random.default_rng(number).standard_normal(shape)
            arrays[each.name] = random.astype(np.float32) if each.type.dtype.is_float else np.zeros(shape, np.int64)
        return arrays


def related() -> tuple[inlaid.graph.ir.Function, Operands]:  # type: ignore[name-defined]
    """A model of operators whose operands' sizes are related, and its operands. Each relation has a size of its own."""
    x = Operands()
    results = [
        ops.take_along_axis(x(1, "gather"), x(1, 6, dtype="int64"), axis=0),
        ops.take_along_axis(x(3, 5), x("rows", 2, dtype="int64"), axis=1),
        ops.scatter_along_axis(x(3, "scatter"), x(1, 6, dtype="int64"), x(1, 6), axis=0),
        ops.scatter_along_axis(x(1, 5), x("places", 2, dtype="int64"), x("updates", 2), axis=1, reduction="add"),
        ops.deform_conv(x(1, "channels", 5, 5), x(4, 2, 3, 3), x(1, 18, 3, 3), groups=2),
        ops.deform_conv(x(1, 4, 5, 5), x("filters", 2, 3, 3), x(1, 18, 3, 3), groups=2),
        ops.col2im(x(1, "columns", 4), shape=(3, 3), kernel=(2, 2)),
        ops.layer_norm(x(3, "hidden"), x(4), axis=1),
        ops.dynamic_slice(x(8), x("starts", dtype="int64"), np.array([4]), axes=(0,), strides=(1,)),
        ops.tile(x(3), repeats=(x("repeats").shape[0] - 2,)),
        ops.non_max_suppression(x(1, 4, 4), x(1, 1, 4), np.float32(0.5), np.float32(0), max_output=x("most").shape[0] - 2),
        *ops.split(x("parts"), (2, 3)),
    ]
    return inlaid.function(x.vars, inlaid.tuple_(results)), x


FIT = {
    "gather": 6, "rows": 3, "scatter": 6, "places": 1, "updates": 1, "channels": 4, "filters": 4, "columns": 8, "hidden": 4,
    "starts": 1, "repeats": 4, "most": 4, "parts": 5,
}  # fmt: skip
UNFIT = [
    ("gather", (0, 1, 5), "dimension 1 of the indices must be <= gather, got 6 where gather is {}"),
    ("rows", (4, 9), "dimension 0 of the indices must be <= 3, got {}"),
    ("scatter", (0, 2, 5), "dimension 1 of the indices must be <= scatter, got 6 where scatter is {}"),
    ("places", (2,), "dimension 0 of the indices must be <= 1, got {}"),
    ("updates", (0, 2), "dimension 0 of the updates must be places, got {}"),
    ("channels", (3, 5), "the number of input channels must be a multiple of 2, got {}"),
    ("filters", (3, 5), "the number of output channels must be a multiple of 2, got {}"),
    ("columns", (3, 9), "dimension 1 of x, of channels and taps, must be a multiple of 4, got {}"),
    ("hidden", (0, 1, 5), "dimension 0 of the scale must be 1 or hidden to broadcast, got 4 where hidden is {}"),
    ("starts", (0, 2), "dimension 0 of the starts must be 1, got {}"),
    ("repeats", (1,), "a repeat must be >= 0, got -1"),
    ("most", (1,), "max_output must be >= 0, got -1"),
    ("parts", (4, 6), "the number of elements of the new shape must be parts, got 5 where parts is {}"),
]
MORE = {"gather": (7,), "rows": (0, 2), "scatter": (7,), "filters": (6,), "columns": (0, 4), "repeats": (2, 5), "most": (2, 9)}
"""Further sizes that fit."""


@pytest.mark.parametrize("target", ["reference", "x86:threads=1", "x86:threads=1,check=true"])
def test_relations_between_operands(target: str) -> None:
    """They are checked before anything runs: kernels loop over one operand and index another."""
    model, operands = related()
    executable = inlaid.compile(model, targets=[target])
    oracle = Interpreter()
    for name, size in (("", 0), *((name, size) for name, sizes in MORE.items() for size in sizes)):
        feeds = operands.values({**FIT, name: size})
        for value, expected in zip(executable.run(feeds).values(), oracle.run(model, list(feeds.values())), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    for name, sizes, message in UNFIT:
        for size in sizes:
            with pytest.raises(InputError, match=re.escape(message.format(size))):
                executable.run(operands.values({**FIT, name: size}))


def test_static_relations_have_the_same_words() -> None:
    with pytest.raises(TypeInferenceError, match="dimension 1 of the indices must be <= 2, got 6"):
        ops.scatter_along_axis(np.zeros((3, 2)), np.zeros((1, 6), np.int64), np.zeros((1, 6)), axis=0)
    with pytest.raises(TypeInferenceError, match="dimension 0 of the scale must be 1 to broadcast, got 4"):
        ops.layer_norm(inlaid.var("x", (3, 1)), np.zeros(4, np.float32), axis=1)
    with pytest.raises(TypeInferenceError, match=r"the mask must have rank 4 \(shape \(1, 9, 3, 3\)\), got shape \(1, 9, 3\)"):
        ops.deform_conv(*(inlaid.var("x", shape) for shape in ((1, 4, 5, 5), (2, 4, 3, 3), (1, 18, 3, 3), (1, 9, 3))))
