"""Strided 1x1 convolutions of copied pixels."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, constant, function, post_order, tuple_, var
from inlaid.passes.subsample import subsample
from inlaid.plugins import CostConstants
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_convolutions_share_a_copy(dtype: str, symbolic: bool) -> None:
    height = SizeVar("h", 1) if symbolic else 5
    x = var("x", TensorType((2, 3, height, 6), dtype))
    weights = [constant(RNG.integers(-9, 9, (64, 3, 1, 1)).astype(dtype)) for _ in range(2)]
    target = function([x], tuple_([ops.conv(x, w, strides=(2, 3)) for w in weights]))
    subsampled_function = subsample(target, CostConstants())
    names = [expr.callee.name for expr in post_order(subsampled_function) if isinstance(expr, Call)]  # type: ignore[union-attr]
    assert names == ["strided_slice", "conv", "conv"] and subsampled_function.type == target.type
    data = [RNG.integers(-9, 9, (2, 3, 5, 6)).astype(dtype)]
    for actual, expected in zip(evaluate(subsampled_function, data), evaluate(target, data), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("why", ["stride 1", "window", "padding", "few channels"])
def test_what_stays(why: str) -> None:
    x = var("x", TensorType((2, 3, 5, 6), "float32"))
    side = 3 if why == "window" else 1
    w = constant(RNG.standard_normal((8 if why == "few channels" else 64, 3, side, side)).astype(np.float32))
    step, pad = 1 if why == "stride 1" else 2, int(why == "padding")
    target = function([x], ops.conv(x, w, strides=(step, step), pads=(pad,) * 4))
    assert subsample(target, CostConstants()) is target
