"""Vectors of floats become integers as single floats do: saturated, NaN as 0."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid_runtime.types import TensorType

VALUES = (0.0, -0.0, 0.5, -0.5, 1.99, -1.99, 127.0, 128.0, -128.9, -129.0, 255.9, 256.0, 32767.5, -32769.0, 65536.0)
VALUES += (2147483520.0, 2147483648.0, -2147483648.0, -3e9, 1e30, -1e30, float("inf"), -float("inf"), float("nan"), 1e-42)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_vectors_saturate(cpu, to, source):
    data = np.resize(np.asarray(VALUES, source), (5, 64))
    x = graph.var("x", TensorType(data.shape, source))
    y = ops.quantize(x, graph.constant(1.0, source), dtype=to) if to != "int32" else ops.cast(x, dtype=to)
    executable = inlaid.compile(graph.function([x], y), targets=[f"x86:threads=1,cpu={cpu}"])
    (actual,) = executable.run({"x": data}).values()
    limits = np.iinfo(to)
    integers = np.trunc(data.astype(np.float64)) if to == "int32" else np.rint(data.astype(np.float64))
    expected = np.clip(np.nan_to_num(integers, nan=0.0), limits.min, limits.max).astype(np.int64)
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize(("to", "point"), [("int8", -128), ("int8", 7), ("uint8", 128), ("uint16", 40000), ("int16", -3)])
def test_zero_points_are_added_before(cpu, to, point):
    """NaN is stored as zero; what is rounded lies between the limits, less the zero point."""
    data = np.resize(np.asarray(VALUES, np.float32), (5, 64))
    x, zero_point = graph.var("x", TensorType(data.shape, "float32")), graph.constant(np.asarray(point, to), to)
    y = ops.quantize(x, graph.constant(1.0, "float32"), zero_point, dtype=to)
    executable = inlaid.compile(graph.function([x], y), targets=[f"x86:threads=1,cpu={cpu}"])
    (actual,) = executable.run({"x": data}).values()
    integers = np.rint(np.nan_to_num(data.astype(np.float64), nan=0.0)) + point
    assert np.array_equal(actual, np.clip(integers, np.iinfo(to).min, np.iinfo(to).max).astype(np.int64))
