"""Requantized sums that stay in float32."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, constant, function, post_order, tuple_, var
from inlaid.passes.rounded_floats import rounded_floats
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(5)


def names(target: Expr) -> list[str]:
    return [expr.callee.name for expr in post_order(target) if isinstance(expr, Call)]  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("factor", [np.float32(0.01), np.float32([0.01, 0.5, 1e-9]), np.float32([2.5, 0.5, 1e30])])
def test_the_integers_stay(dtype: str, factor: np.ndarray) -> None:
    x = var("x", TensorType((2, 3, 4, 5), "int32"))
    point = constant(np.asarray(100, dtype))
    stored = ops.requantize(x, constant(np.asarray(factor)), point, dtype=dtype, axis=1)
    target = function([x], ops.dequantize(stored, constant(np.float32(0.25)), point, dtype="float32"))
    rounded_function = rounded_floats(target)
    assert names(rounded_function) == ["cast", "mul", "maximum", "minimum", "round", "mul"]
    for scale in (9, 999, 1 << 30):
        data = [RNG.integers(-scale, scale, (2, 3, 4, 5)).astype(np.int32)]
        np.testing.assert_array_equal(evaluate(rounded_function, data), evaluate(target, data))


@pytest.mark.parametrize("why", ["stored too", "other zero point", "scales that are not finite", "computed scale"])
def test_what_stays(why: str) -> None:
    x, s = var("x", TensorType((2, 3), "int32")), var("s", TensorType((), "float32"))
    points = [constant(np.uint8(value)) for value in ((3, 4) if why == "other zero point" else (3, 3))]
    factor = constant(np.float32(np.inf if why == "scales that are not finite" else 0.5))
    stored = ops.requantize(x, s if why == "computed scale" else factor, points[0], dtype="uint8")
    real = ops.dequantize(stored, constant(np.float32(0.25)), points[1], dtype="float32")
    target = function([x, s], tuple_([real, stored]) if why == "stored too" else real)
    assert rounded_floats(target) is target
