"""ONNX holds float attributes and their defaults in float32: float64 models compute with that value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from plugins.onnx.tests.one_node import make_feeds, make_model, run

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).normal(size=(2, 3, 4)) * 3
SCALE, BIAS, MEAN = np.random.default_rng(1).normal(size=(3, 3))
SMALL = np.array([1e-6, 3e-6, 2e-5])


def f32(value: float) -> np.float64:
    return np.float64(np.float32(value))


def batch_norm(epsilon: float) -> Array:
    by_channel = (slice(None), None)
    return (X - MEAN[by_channel]) / np.sqrt(SMALL[by_channel] + f32(epsilon)) * SCALE[by_channel] + BIAS[by_channel]


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    variance = x.var(axis=axes, keepdims=True)
    return np.asarray((x - x.mean(axis=axes, keepdims=True)) / np.sqrt(variance + f32(epsilon)))


FLAT = X * 1e-3
CASES: list[tuple[str, int, list[Array], dict[str, Any], Array]] = [
    ("LeakyRelu", 16, [X], {}, np.where(X < 0, X * f32(0.01), X)),
    ("LeakyRelu", 16, [X], {"alpha": 0.3}, np.where(X < 0, X * f32(0.3), X)),
    ("HardSigmoid", 6, [X], {}, np.clip(X * f32(0.2) + 0.5, 0, 1)),
    ("HardSwish", 22, [X], {}, X * np.clip(X * f32(1 / 6) + 0.5, 0, 1)),
    ("BatchNormalization", 15, [X, SCALE, BIAS, MEAN, SMALL], {}, batch_norm(1e-5)),
    ("BatchNormalization", 15, [X, SCALE, BIAS, MEAN, SMALL], {"epsilon": 1e-3}, batch_norm(1e-3)),
    ("InstanceNormalization", 6, [FLAT, np.ones(3), np.zeros(3)], {}, normalized(FLAT, (2,), 1e-5)),
    ("LayerNormalization", 17, [FLAT, np.ones(4)], {}, normalized(FLAT, (2,), 1e-5)),
]


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attrs", "expected"), CASES, ids=lambda item: item if isinstance(item, str) else ""
)
def test_attributes_of_float64_models(op: str, opset: int, inputs: list[Array], attrs: dict[str, Any], expected: Array) -> None:
    (actual,) = run(op, opset, inputs, **attrs)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", ["HardSigmoid", "LeakyRelu"])
def test_defaults_of_the_activations_of_recurrent_layers(activation: str) -> None:
    rng = np.random.default_rng(2)
    inputs = [rng.normal(size=(1, 2, 3)), rng.normal(size=(1, 4, 3)), np.zeros((1, 4, 4))]
    (actual,) = run("RNN", 14, inputs, hidden_size=4, activations=[activation])
    total = inputs[0] @ inputs[1][0].T
    expected = (
        np.clip(total * f32(0.2) + 0.5, 0, 1) if activation == "HardSigmoid" else np.where(total < 0, total * f32(0.01), total)
    )
    np.testing.assert_allclose(actual[:, 0], expected, rtol=1e-12)


def test_batch_statistics_move_by_the_momentum_of_float32() -> None:
    inputs = [X, SCALE, BIAS, MEAN, SMALL]
    _, moved, _ = run("BatchNormalization", 15, inputs, 3, training_mode=1)
    _, expected, _ = ReferenceEvaluator(make_model("BatchNormalization", 15, inputs, 3, training_mode=1)).run(
        None, make_feeds(inputs)
    )
    momentum = f32(0.9)
    np.testing.assert_allclose(moved, MEAN * momentum + X.mean(axis=(0, 2)) * (1 - momentum), rtol=1e-13)
    np.testing.assert_allclose(moved, expected, rtol=1e-13)
