"""Floats far from 1 on every target, beside wider arithmetic: tails of activations, and narrow floats whose squares overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import inlaid
from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]
TARGETS = ["reference", "x86", "microcontroller"]
NUMBERS = {"float32": 1, "float16": 10, "float64": 11, "bfloat16": 16}


def model(op: str, dtype_name: str, shapes: list[tuple[int, ...]], opset: int = 22, **attrs: Any) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(shapes))]
    node = helper.make_node(op, names, ["y"], **attrs)
    inputs = [helper.make_tensor_value_info(name, NUMBERS[dtype_name], shape) for name, shape in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(target: str, model_proto: onnx.ModelProto, *arrays: Array) -> Array:
    executable = inlaid.compile(model_proto, [target], cache=False)
    return np.asarray(executable.run({f"x{index}": array for index, array in enumerate(arrays)})["y"])


def softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.asarray(np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, 1) / (1 + small))


TAILS: dict[str, tuple[Callable[[Array], Array], dict[str, Any]]] = {
    "Softplus": (softplus, {}),
    "Mish": (lambda x: x * np.tanh(softplus(x)), {}),
    "Elu": (lambda x: elu(x, 0.5), {"alpha": 0.5}),
    "Selu": (lambda x: 1.0507010221481323 * elu(x, 1.6732631921768188), {}),
    "Celu": (lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(np.minimum(x, 0) / 2)), {"alpha": 2.0}),
    "Sigmoid": (sigmoid, {}),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "Gelu": (lambda x: x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)), {"approximate": "tanh"}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TAILS)
def test_activations_keep_relative_accuracy_in_their_tails(name: str, target: str) -> None:
    formula, attrs = TAILS[name]
    steps = np.concatenate([np.logspace(-30, np.log10(80), 300), np.linspace(0.1, 40, 200)])
    # The cube in the argument of gelu magnifies the rounding of the argument itself.
    x = np.concatenate([-steps, steps, [0.0]]).astype(np.float32)
    x = x[np.abs(x) < 6] if name == "Gelu" else x
    with np.errstate(under="ignore"):
        expected = formula(x.astype(np.float64))
    actual = run(target, model(name, "float32", [x.shape], **attrs), x)
    # Near -3 and 3 a sum of about 1 cancels in HardSwish: only that is absolute.
    atol = 1e-6 if name == "HardSwish" else 1e-44
    np.testing.assert_allclose(actual, expected, rtol=2e-5 if name == "Gelu" else 2e-6, atol=atol)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("activation", "formula"), [("Softplus", softplus), ("Elu", elu)])
def test_activations_of_recurrent_cells_keep_relative_accuracy(activation: str, formula: Any, target: str) -> None:
    x = np.array([[[-60.0]], [[-30]], [[-17]], [[-1e-6]], [[-1e-20]], [[3]]], np.float32)
    # A weight of 1, no recurrence: each step is the activation of its input.
    names = ["x0", "w", "r"]
    node = helper.make_node("RNN", names, ["y"], hidden_size=1, activations=[activation])
    weights = [helper.make_tensor(name, 1, (1, 1, 1), [value]) for name, value in (("w", 1.0), ("r", 0.0))]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x0", 1, x.shape)], [onnx.ValueInfoProto(name="y")], weights
    )
    recurrent_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    np.testing.assert_allclose(run(target, recurrent_model, x).ravel(), formula(x.astype(np.float64)).ravel(), rtol=2e-6)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def halves(x: Array) -> Array:
    """Pairs of rows, along axis 3."""
    return x.reshape(2, 3, 2, 2, 4)


def mvn(x: Array) -> Array:
    centered = x - x.mean((0, 2, 3), keepdims=True)
    return np.asarray(centered / (np.sqrt((centered**2).mean((0, 2, 3), keepdims=True)) + 1e-9))


NORMS: dict[str, tuple[Callable[..., Array], dict[str, Any], int]] = {
    "LpNormalization 1": (lambda x: x / np.abs(x).sum(-1, keepdims=True), {"p": 1}, 1),
    "LpNormalization 2": (lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), {"p": 2}, 1),
    "LpPool": (lambda x: np.sqrt(halves(x * x).sum(3)), {"kernel_shape": [2, 1], "strides": [2, 1]}, 1),
    "GlobalLpPool": (lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True)), {}, 1),
    "MeanVarianceNormalization": (mvn, {}, 1),
    "ReduceL2": (lambda x: np.sqrt((x * x).sum(keepdims=True)), {}, 1),
    "ReduceMean": (lambda x: x.mean(keepdims=True), {}, 1),
    "ReduceLogSumExp": (lambda x: x.max(keepdims=True) + np.log(np.exp(x - x.max()).sum(keepdims=True)), {}, 1),
    "Mean": (lambda x, y, z: (x + y + z) / 3, {}, 3),
    "Sum": (lambda x, y, z: x + y + z, {}, 3),
    "AveragePool": (lambda x: halves(x).mean(3), {"kernel_shape": [2, 1], "strides": [2, 1]}, 1),
    "GlobalAveragePool": (lambda x: x.mean((2, 3), keepdims=True), {}, 1),
    "Softmax": (softmax, {}, 1),
    "LRN": (lambda x: x / (1 + 1e-4 / 1 * x * x) ** 0.75, {"size": 1}, 1),
    "Einsum": (lambda x, y: (x * y).sum(-1), {"equation": "abcd,abcd->abc"}, 2),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype_name", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", NORMS)
def test_narrow_floats_do_not_overflow_inside(case: str, dtype_name: str, target: str) -> None:
    if (case, dtype_name) == ("Einsum", "bfloat16"):
        pytest.skip("ONNX has no Einsum of bfloat16")
    formula, attrs, count = NORMS[case]
    rng = np.random.default_rng(5)
    large = 3e4 if dtype_name == "float16" else 1e16
    shape = (2, 3, 4, 4)
    arrays = [
        np.asarray(rng.uniform(0.5, 1, shape) * large * rng.choice([-1, 1], shape)).astype(dtype(dtype_name).numpy)
        for _ in range(count)
    ]
    if case in ("Sum", "Einsum"):
        # What cancels: the parts overflow float16, the whole does not.
        arrays[0], arrays[1] = (
            np.broadcast_to(np.array(row, dtype(dtype_name).numpy), shape).copy() for row in ([3e4] * 4, [3e4, -3e4] * 2)
        )
        arrays = arrays if case == "Einsum" else [arrays[0], arrays[0], -arrays[0]]
    if case == "ReduceL2" or case.startswith("GlobalLp"):
        arrays = [(array.astype(np.float64) / 16).astype(array.dtype) for array in arrays]
    exact = [array.astype(np.float64) for array in arrays]
    expected = formula(*exact)
    actual = run(target, model(case.split(" ")[0], dtype_name, [shape] * count, **attrs), *arrays).astype(np.float64)
    assert np.isfinite(expected.astype(dtype(dtype_name).numpy).astype(np.float64)).all()
    rtol = 1e-3 if dtype_name == "float16" else 8e-3
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("target", TARGETS)
def test_narrow_products_are_scaled_before_they_are_rounded(target: str) -> None:
    a, b, c = (np.full(shape, value, np.float16) for shape, value in (((2, 3), 300), ((3, 4), 400), ((4,), -2e4)))
    actual = run(target, model("Gemm", "float16", [a.shape, b.shape, c.shape], alpha=0.125, beta=0.5), a, b, c)
    np.testing.assert_array_equal(actual, np.full((2, 4), 300 * 400 * 3 / 8 - 1e4, np.float16))


@pytest.mark.parametrize("target", ["reference", "x86"])
def test_a_mask_of_nan_shows_in_attention(target: str) -> None:
    q, k, v = (np.ones((1, 1, 2, 4), np.float32) for _ in range(3))
    mask = np.array([[np.nan, 0], [-np.inf, -np.inf]], np.float32)
    actual = run(target, model("Attention", "float32", [q.shape, k.shape, v.shape, mask.shape], 23), q, k, v, mask)
    assert np.isnan(actual[0, 0, 0]).all()
    np.testing.assert_array_equal(actual[0, 0, 1], 0)
