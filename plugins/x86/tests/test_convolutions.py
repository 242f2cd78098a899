"""Convolutions and pools whose channels or pixels fill no vectors, through the compiler, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import inlaid
from inlaid import ops
from inlaid.graph.ir import constant, function, var
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(0)


def windows(x: np.ndarray, size: int, stride: int, pad: int, outside: float) -> np.ndarray:
    """[n, c, y, x, ky, kx] of an image with a border."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=outside)
    return sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def convolved(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, pad: int) -> np.ndarray:
    return np.einsum("ncyxij,ocij->noyx", windows(x, w.shape[2], stride, pad, 0.0), w.astype(np.float64)) + bias


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 2)])
@pytest.mark.parametrize(
    ("inputs", "outputs", "side", "size", "stride"),
    [(3, 24, 13, 3, 2), (24, 24, 7, 1, 1), (24, 40, 7, 3, 1), (13, 57, 5, 3, 1), (17, 13, 1, 1, 1), (5, 9, 11, 5, 2)],
)
def test_a_chain_of_odd_channels(inputs: int, outputs: int, side: int, size: int, stride: int, threads: int, cpu: str) -> None:
    """A convolution, a pool, a window over each channel, a convolution to as many channels with a residual, and back to rows."""
    data = RNG.standard_normal((2, inputs, side, side)).astype(np.float32)
    shapes = [(outputs, inputs, size, size), (outputs, 1, 3, 3), (outputs, outputs, 1, 1)]
    weights = [(RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32) for shape in shapes]
    bias = RNG.standard_normal((1, outputs, 1, 1)).astype(np.float32)
    x = var("x", TensorType(data.shape, "float32"))
    pad = size // 2
    y = ops.conv(x, constant(weights[0]), strides=(stride,) * 2, pads=(pad,) * 4, dilations=(1, 1), groups=1)
    first = ops.sigmoid(ops.add(y, constant(bias)))
    pooled = ops.max_pool(first, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1))
    each = ops.conv(pooled, constant(weights[1]), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=outputs)
    last = ops.conv(ops.add(each, constant(bias)), constant(weights[2]), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=1)
    unit = function([x], ops.relu(ops.add(ops.add(last, constant(bias)), first)))
    (actual,) = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"]).run({"x": data}).values()

    a = 1 / (1 + np.exp(-convolved(data, weights[0], bias, stride, pad)))
    b = windows(a, 3, 1, 1, -np.inf).max(axis=(4, 5))
    c = np.einsum("ncyxij,cij->ncyx", windows(b, 3, 1, 1, 0.0), weights[1][:, 0].astype(np.float64)) + bias
    expected = np.maximum(convolved(c, weights[2], bias, 1, 0) + a, 0)
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max() + 1e-5, rtol=0)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
def test_infinities_and_nans_stay_where_they_are(cpu: str) -> None:
    """What is not finite in one channel reaches the sums that read it, and no padded lane passes it on."""
    data = RNG.standard_normal((1, 24, 5, 5)).astype(np.float32)
    data[0, 3, 2, 2], data[0, 20, 0, 0] = np.nan, np.inf
    weights = RNG.standard_normal((40, 24, 1, 1)).astype(np.float32)
    x = var("x", TensorType(data.shape, "float32"))
    pooled = ops.max_pool(x, kernel=(1, 1), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1))
    unit = function([x], ops.conv(pooled, constant(weights), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=1))
    (actual,) = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"]).run({"x": data}).values()
    finite = np.ones((5, 5), bool)
    finite[2, 2] = finite[0, 0] = False
    assert np.isnan(actual[0, :, 2, 2]).all()
    assert np.isinf(actual[0, :, 0, 0]).all()
    assert np.isfinite(actual[0][:, finite]).all()
