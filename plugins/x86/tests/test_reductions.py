"""Reductions over bfloat16 and bool against the numpy references: any axes, odd sizes, special values, each instruction set."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.graph.interp import evaluate
from inlaid_runtime.types import TensorType

CPUS = ("native", "x86-64-v3", "x86-64-v2")
SHAPES = ((1, 1, 1), (3, 7, 13), (2, 5, 64), (2, 33, 17), (1, 3, 1000))
AXES = ((2,), (1,), (0,), (1, 2), (0, 2), (0, 1, 2))
FLOAT = (ops.reduce_sum, ops.reduce_prod, ops.reduce_max, ops.reduce_min)
BOOL = (ops.reduce_max, ops.reduce_min)
"""Any and all."""


def both(arrays, dtype, operators, cpu, threads=1):
    """What x86 and the references make of arrays of one shape: pairs, by array, operator and axes."""
    x = graph.var("x", TensorType(arrays[0].shape, dtype))
    results = [operator(x, axes=axes, keepdims=number % 2 == 0) for operator in operators for number, axes in enumerate(AXES)]
    module = graph.Module({"main": graph.function([x], graph.tuple_(results))})
    executable = inlaid.compile(module, targets=[f"x86:threads={threads},cpu={cpu}"])
    assert all(region.target.startswith("x86") for region in executable.regions)
    actual = [np.asarray(value) for array in arrays for value in executable.run({"x": array}).values()]
    expected = [np.asarray(value) for array in arrays for value in evaluate(module, {"x": array})]
    assert [(item.dtype, item.shape) for item in actual] == [(item.dtype, item.shape) for item in expected]
    return zip(actual, expected, strict=True)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16(cpu, shape):
    """Sums and products are formed in float32, so that they differ by the last rounding at most."""
    array = np.random.default_rng(sum(shape)).uniform(-1.5, 1.5, shape).astype(ml_dtypes.bfloat16)
    for actual, expected in both([array], "bfloat16", FLOAT, cpu):
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=2**-7, atol=1e-6 * max(shape))


@pytest.mark.parametrize("cpu", CPUS)
def test_special_values_of_bfloat16(cpu):
    """Infinities and what is undefined go through sums and extremes; extremes of bfloat16 are exact, denormals included."""
    array = np.random.default_rng(1).normal(size=(4, 5, 70)).astype(np.float32)
    array[0, 0, 3], array[1, 2, 69], array[2, 4, 0], array[3, 1, 1] = np.inf, -np.inf, np.nan, 1e-39
    array[3, 2] = 1e-39
    array = array.astype(ml_dtypes.bfloat16)
    for actual, expected in both([array], "bfloat16", (ops.reduce_max, ops.reduce_min), cpu):
        np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))
    for actual, expected in both([array], "bfloat16", (ops.reduce_sum,), cpu):
        np.testing.assert_allclose(actual.astype(np.float32), expected.astype(np.float32), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bool(cpu, shape):
    """All false, all true, and a few of the other."""
    arrays = [np.random.default_rng(sum(shape)).random(shape) < share for share in (0.0, 0.02, 0.98, 1.0)]
    for actual, expected in both(arrays, "bool", BOOL, cpu, threads=2):
        np.testing.assert_array_equal(actual, expected)
