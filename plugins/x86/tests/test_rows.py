"""Reductions by rows on this machine: any number of columns, any axis, special values; at every level of the instruction set."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid_runtime.types import TensorType

CPUS = ("native", "x86-64-v3", "x86-64-v2")
COLUMNS = (1, 2, 15, 16, 17, 100, 1000, 4097)


def run(cpu, array, *bodies):
    """The results of several operators on one array."""
    x = graph.var("x", TensorType(array.shape, str(array.dtype)))
    module = inlaid.function([x], graph.tuple_([body(x) for body in bodies]))
    executable = inlaid.compile(module, targets=[f"x86:cpu={cpu},threads=2" if cpu != "native" else "x86:threads=2"])
    return list(executable.run({"x": array}).values())


def close(actual, expected):
    assert np.allclose(
        actual, expected, rtol=0, atol=1e-4 * np.abs(expected[np.isfinite(expected)]).max(initial=0) + 1e-5, equal_nan=True
    )


def softmax(x, axis):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_of_any_length(cpu, columns):
    array = np.random.default_rng(columns).normal(size=(5, columns)).astype(np.float32) * 10
    wide = array.astype(np.float64)
    total, top, along, across, logs, every = run(
        cpu,
        array,
        lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False),
        lambda x: ops.reduce_max(x, axes=(1,), keepdims=True),
        lambda x: ops.softmax(x, axis=1),
        lambda x: ops.softmax(x, axis=0),
        lambda x: ops.log_softmax(x, axis=1),
        lambda x: ops.reduce_sum(x, axes=(0, 1), keepdims=False),
    )
    close(total, wide.sum(1))
    assert np.array_equal(top, array.max(1, keepdims=True))
    close(along, softmax(wide, 1))
    close(across, softmax(wide, 0))
    close(logs, np.log(softmax(wide, 1)))
    close(np.asarray(every), np.asarray(wide.sum()))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("columns", [7, 64, 100, 769])
def test_normalizations(cpu, columns):
    array = np.random.default_rng(columns).normal(3, 2, size=(2, 3, columns)).astype(np.float32)
    wide = array.astype(np.float64)
    scale = np.linspace(0.5, 2, columns).astype(np.float32)
    weights = graph.constant(scale)
    normal, root, local = run(
        cpu,
        array,
        lambda x: ops.layer_norm(x, weights, weights, axis=2, epsilon=1e-5),
        lambda x: ops.rms_norm(x, weights, axis=2, epsilon=1e-5),
        lambda x: ops.lrn(x, size=3, alpha=0.1),
    )
    centered = wide - wide.mean(2, keepdims=True)
    close(normal, centered / np.sqrt((centered**2).mean(2, keepdims=True) + 1e-5) * scale + scale)
    close(root, wide / np.sqrt((wide**2).mean(2, keepdims=True) + 1e-5) * scale)
    padded = np.pad(wide**2, ((0, 0), (1, 1), (0, 0)))
    close(local, wide / (1 + 0.1 / 3 * (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:])) ** 0.75)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("column", [0, 15, 16, 36])
def test_special_values(cpu, column):
    array = np.zeros((5, 37), np.float32)
    array[0, column], array[1, column], array[2, column], array[3] = np.nan, np.inf, -np.inf, -0.0
    array[4] = -np.inf
    top, bottom, powers = run(
        cpu,
        array,
        lambda x: ops.reduce_max(x, axes=(1,), keepdims=False),
        lambda x: ops.reduce_min(x, axes=(1,), keepdims=False),
        lambda x: ops.softmax(x, axis=1),
    )
    assert np.array_equal(top, array.max(1), equal_nan=True)
    assert np.array_equal(bottom, array.min(1), equal_nan=True)
    assert np.isnan(powers[0]).all() and np.isnan(powers[1, column]) and powers[2, column] == 0 and np.isnan(powers[4]).all()


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "float16"])
def test_element_types(cpu, dtype):
    array = np.random.default_rng(1).integers(-9, 10, (6, 133)).astype(dtype)
    along, across, top = run(
        cpu,
        array,
        lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False),
        lambda x: ops.reduce_sum(x, axes=(0,), keepdims=False),
        lambda x: ops.reduce_max(x, axes=(1,), keepdims=False),
    )
    assert np.array_equal(along, array.sum(1)) and np.array_equal(across, array.sum(0)) and np.array_equal(top, array.max(1))
