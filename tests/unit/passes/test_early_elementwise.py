"""Element-wise operators before what rearranges a convolution's result."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import Interpreter
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.passes.early_elementwise import early_elementwise
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(3)
WEIGHTS = RNG.standard_normal((12, 2, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal((3, 1, 1)).astype(np.float32)


def shuffled(x: Expr, height: object, width: object) -> Expr:
    """A convolution to 12 channels, which are 2 x 2 pixels of 3 channels each, cropped by a row and a column."""
    y = ops.conv(x, constant(WEIGHTS), pads=(1, 1, 1, 1))
    batch = x.type.shape[0]  # type: ignore[union-attr]
    y = ops.reshape(y, shape=(batch, 2, 2, 3, height, width))
    y = ops.reshape(ops.transpose(y, perm=(0, 3, 4, 1, 5, 2)), shape=(batch, 3, height * 2, width * 2))  # type: ignore[operator]
    begin, end = (0, 0, 1, 0), (batch, 3, height * 2, width * 2 - 1)  # type: ignore[operator]
    return ops.strided_slice(y, begin=begin, end=end, strides=(1,) * 4)


def order(unit: Function) -> list[str]:
    return [expr.callee.name for expr in post_order(unit) if isinstance(expr, Call)]  # type: ignore[union-attr]


@pytest.mark.parametrize("symbolic", [False, True])
def test_bias_and_activation_join_the_convolution(symbolic: bool) -> None:
    batch, height, width = (SizeVar("n"), SizeVar("h", 1), SizeVar("w", 1)) if symbolic else (2, 4, 5)
    x = var("x", TensorType((batch, 2, height, width), "float32"))
    unit = function([x], ops.relu(ops.mul(constant(np.float32(0.5)), ops.add(shuffled(x, height, width), constant(BIAS)))))
    reordered_function = early_elementwise(unit)
    assert order(reordered_function) == ["conv", "add", "mul", "relu", "reshape", "transpose", "reshape", "strided_slice"]
    assert reordered_function.type == unit.type
    data = RNG.standard_normal((2, 2, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(Interpreter().run(reordered_function, (data,)), Interpreter().run(unit, (data,)))


@pytest.mark.parametrize("why", ["a constant of an axis that is split", "two readers", "no convolution", "broadcasting"])
def test_what_stays(why: str) -> None:
    x = var("x", TensorType((2, 2, 4, 5), "float32"))
    y = shuffled(x, 4, 5)
    if why == "a constant of an axis that is split":
        last: Expr = ops.add(y, constant(RNG.standard_normal((7, 9)).astype(np.float32)))
    elif why == "two readers":
        last = ops.add(ops.relu(y), y)
    elif why == "broadcasting":
        last = ops.add(y, constant(np.zeros((5, 2, 3, 7, 9), np.float32)))
    else:
        last = ops.relu(ops.transpose(x, perm=(0, 2, 3, 1)))
    unit = function([x], last)
    assert early_elementwise(unit) is unit


@pytest.mark.parametrize("by_phase", [False, True])
def test_parameters_of_channels_join_each_of_several_convolutions(by_phase: bool) -> None:
    """Phases that are separate convolutions are joined and interleaved, and only then requantized per channel."""
    x = var("x", TensorType((2, 2, 4, 5), "uint8"))
    weights = RNG.integers(-100, 100, (2, 3, 2, 3, 3)).astype(np.int8)
    parts = [
        ops.reshape(ops.conv(x, constant(part), pads=(1, 1, 1, 1), out_dtype="int32"), shape=(2, 1, 3, 4, 5)) for part in weights
    ]
    y = ops.transpose(ops.concat(*parts, axis=1), perm=(0, 2, 3, 4, 1))
    y = y if by_phase else ops.reshape(y, shape=(2, 3, 4, 10))
    scale, point = (constant(np.array(value)) for value in (np.float32([0.01, 0.02, 0.005][: 2 + (not by_phase)]), np.uint8(3)))
    bias = constant(RNG.integers(-99, 99, (3, 1, 1, 1) if by_phase else (3, 1, 1)).astype(np.int32))
    last = ops.requantize(ops.add(y, bias), scale, point, dtype="uint8", axis=4 if by_phase else 1)
    unit = function([x], last)
    reordered_function = early_elementwise(unit)
    names = order(reordered_function)
    if by_phase:  # a parameter for each phase cannot join both
        assert names.index("requantize") == len(names) - 1
    else:
        assert names == [*["conv", "add", "requantize", "reshape"] * 2, "concat", "transpose", "reshape"]
    data = RNG.integers(0, 255, (2, 2, 4, 5)).astype(np.uint8)
    np.testing.assert_array_equal(Interpreter().run(reordered_function, (data,)), Interpreter().run(unit, (data,)))


def test_wider_elements_are_not_moved() -> None:
    x = var("x", TensorType((2, 2, 4, 5), "uint8"))
    y = ops.conv(x, constant(RNG.integers(-9, 9, (3, 2, 3, 3)).astype(np.int8)), out_dtype="int32")
    stored = ops.transpose(ops.cast(y, dtype="uint8"), perm=(0, 2, 3, 1))
    unit = function([x], ops.cast(stored, dtype="float32"))
    assert early_elementwise(unit) is unit
