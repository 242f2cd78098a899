"""Grouped convolutions whose channels do not fill vectors, through the compiler, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import constant, function, var
from inlaid_runtime.types import TensorType


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize(("groups", "depth", "outputs", "side"), [(4, 6, 34, 28), (4, 68, 17, 7), (3, 10, 13, 13), (2, 5, 9, 1)])
def test_grouped_pointwise(cpu: str, groups: int, depth: int, outputs: int, side: int) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((groups * outputs, depth, 1, 1)).astype(np.float32)
    bias = rng.standard_normal((1, groups * outputs, 1, 1)).astype(np.float32)
    data = rng.standard_normal((2, groups * depth, side, side)).astype(np.float32)
    x = var("x", TensorType(data.shape, "float32"))
    conv = ops.conv(x, constant(w), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=groups)
    unit = function([x], ops.relu(ops.add(conv, constant(bias))))
    (actual,) = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"]).run({"x": data}).values()
    split = data.reshape(2, groups, depth, -1).astype(np.float64)
    expected = np.einsum("goc,ngcp->ngop", w.reshape(groups, outputs, depth).astype(np.float64), split)
    expected = np.maximum(expected.reshape(2, groups * outputs, side, side) + bias, 0)
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max() + 1e-5, rtol=0)
