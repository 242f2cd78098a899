"""Convolutions as products of unfolded windows, through the compiler, against the reference in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import constant, function, var
from inlaid_runtime.types import TensorType


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("x86-64-v3", 2), ("x86-64-v2", 0)])
@pytest.mark.parametrize(
    ("data", "weights", "strides", "groups"),
    [
        ((2, 1, 301), (6, 1, 9), (1,), 1),
        ((1, 1, 97), (15, 1, 7), (1,), 1),
        ((1, 24, 17, 13), (1, 24, 3, 3), (1, 1), 1),
        ((1, 1, 28, 28), (6, 1, 5, 5), (2, 1), 1),
        ((1, 3, 5, 9, 7), (5, 3, 3, 3, 3), (1, 2, 1), 1),
    ],
)
def test_unfolded(
    cpu: str, threads: int, data: tuple[int, ...], weights: tuple[int, ...], strides: tuple[int, ...], groups: int
) -> None:
    rng = np.random.default_rng(0)
    image, w = rng.standard_normal(data).astype(np.float32), rng.standard_normal(weights).astype(np.float32)
    bias = rng.standard_normal((weights[0], *(1 for _ in strides))).astype(np.float32)
    pads = tuple(size // 2 for size in weights[2:]) * 2
    x = var("x", TensorType(data, "float32"))
    unit = function([x], ops.relu(ops.add(ops.conv(x, constant(w), strides=strides, pads=pads, groups=groups), constant(bias))))
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    (actual,) = executable.run({"x": image}).values()
    assert any("unfold" in row.name for row in executable.profile({"x": image}).rows())
    attrs = ops.conv.attrs(strides=strides, pads=pads, groups=groups)
    assert ops.conv.reference is not None
    expected = np.maximum(ops.conv.reference(attrs, image.astype(np.float64), w.astype(np.float64)) + bias, 0)
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max() + 1e-5, rtol=0)
