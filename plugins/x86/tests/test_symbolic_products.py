"""Attention, feed-forward blocks and recurrent layers whose batch and sequence are known only when they run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Function, constant, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

B, S = SizeVar("batch"), SizeVar("seq")
SIZES = ((1, 1), (1, 7), (2, 3), (3, 4), (1, 16), (2, 33), (1, 50), (0, 5), (2, 0))
TARGETS = (("native", "threads=2"), ("x86-64-v3", "threads=1"), ("x86-64-v2", "threads=1,check=true"))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def attention() -> Function:
    """Attention of two heads of 8 with its projections, over rows of 16."""
    x = var("x", TensorType((B, S, 16), "float32"))
    q, k, v = (
        ops.transpose(ops.reshape(ops.matmul(x, constant(numbers(16, 16) + n)), shape=(B, S, 2, 8)), perm=(0, 2, 1, 3))
        for n in range(3)
    )
    scores = ops.softmax(ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))), axis=3)
    context = ops.reshape(ops.transpose(ops.matmul(scores, v), perm=(0, 2, 1, 3)), shape=(B, S, 16))
    return function([x], ops.matmul(context, constant(numbers(16, 50))))


def feed_forward() -> Function:
    x = var("x", TensorType((B, S, 16), "float32"))
    wide = ops.relu(ops.add(ops.matmul(x, constant(numbers(16, 70))), constant(numbers(70))))
    return function([x], ops.add(ops.matmul(wide, constant(numbers(70, 16))), x))


@pytest.mark.parametrize(("cpu", "options"), TARGETS)
@pytest.mark.parametrize("build", [attention, feed_forward])
def test_blocks_of_symbolic_batch_and_sequence(build, cpu, options):
    unit = build()
    executable = inlaid.compile(unit, [f"x86:cpu={cpu},{options}"])
    for batch, length in SIZES:
        x = numbers(batch, length, 16)
        (actual,) = executable.run({"x": x}).values()
        np.testing.assert_allclose(actual, evaluate(unit, [x]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("cpu", "options"), TARGETS)
def test_decoding_steps_of_growing_length(cpu, options):
    """One query and keys and values of a length that grows by one in each step."""
    q = var("q", TensorType((B, 2, 1, 8), "float32"))
    k, v = (var(name, TensorType((B, 2, S, 8), "float32")) for name in "kv")
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))), axis=3)
    unit = function([q, k, v], ops.matmul(weights, v))
    executable = inlaid.compile(unit, [f"x86:cpu={cpu},{options}"])
    for length in (1, 2, 15, 16, 17, 70):
        feeds = {"q": numbers(2, 2, 1, 8), "k": numbers(2, 2, length, 8), "v": numbers(2, 2, length, 8) + 1}
        scores = np.exp(feeds["q"] @ feeds["k"].swapaxes(2, 3))
        (actual,) = executable.run(feeds).values()
        np.testing.assert_allclose(actual, scores / scores.sum(-1, keepdims=True) @ feeds["v"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("cpu", "options"), TARGETS)
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(kind, gates, cpu, options):
    hidden = 24
    weights = {"w": numbers(1, gates * hidden, 8), "r": numbers(1, gates * hidden, hidden) / 8, "b": numbers(1, 2 * gates * hidden)}
    node = helper.make_node(kind, ["x", *weights], ["y"], hidden_size=hidden)
    shapes = {"x": ["seq", "batch", 8], "y": ["seq", 1, "batch", hidden]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    opset = [helper.make_opsetid("", 17)]
    model: onnx.ModelProto = helper.make_model(
        helper.make_graph([node], kind, [x], [y], initializers), opset_imports=opset, ir_version=8
    )
    executable, module = inlaid.compile(model, [f"x86:cpu={cpu},{options}"]), inlaid.load(model)
    for batch, length in SIZES[:7]:
        feeds = {"x": numbers(length, batch, 8)}
        np.testing.assert_allclose(executable.run(feeds)["y"], evaluate(module, feeds), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_each_number_of_rows(cpu: str) -> None:
    """A product with constant weights, of a batch of each size up to three tiles, with an epilogue that reads rows."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((24, 100)).astype(np.float32)
    batch = SizeVar("batch")
    x, y = (var(name, TensorType((batch, width), "float32")) for name, width in (("x", 24), ("y", 100)))
    executable = inlaid.compile(function([x, y], ops.add(ops.matmul(x, constant(w)), y)), [f"x86:threads=1,cpu={cpu}"])
    for rows in range(27):
        data, added = (rng.standard_normal((rows, width)).astype(np.float32) for width in (24, 100))
        (actual,) = executable.run({"x": data, "y": added}).values()
        expected = data.astype(np.float64) @ w + added
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max(initial=0) + 1e-5, rtol=0)
