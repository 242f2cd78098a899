"""Gathers before element-wise operators on their table."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import Interpreter
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.passes.early_take import early_take
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(5)
TABLE = constant(RNG.integers(-128, 128, (40, 6)).astype(np.int8))
SCALE, ZERO = constant(np.float32(0.5)), constant(np.int8(3))


def order(unit: Function) -> list[str]:
    return [expr.callee.name for expr in post_order(unit) if isinstance(expr, Call)]  # type: ignore[union-attr]


def embedding() -> Expr:
    return ops.mul(ops.dequantize(TABLE, SCALE, ZERO, dtype="float32"), constant(np.float32(2)))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_gathered_first(symbolic: bool, axis: int) -> None:
    indices = var("i", TensorType((2, SizeVar("n", 1, 4) if symbolic else 2), "int64"))
    unit = function([indices], ops.take(embedding(), indices, axis=axis))
    reordered_function = early_take(unit)
    assert order(reordered_function) == ["take", "dequantize", "mul"]
    assert reordered_function.type == unit.type
    data = np.array([[0, 3], [-1, 5]])
    np.testing.assert_array_equal(Interpreter().run(reordered_function, (data,)), Interpreter().run(unit, (data,)))


@pytest.mark.parametrize("why", ["as many elements", "two readers", "a scale per channel", "a single index", "not element-wise"])
def test_what_stays(why: str) -> None:
    indices = var("i", TensorType(() if why == "a single index" else (40 if why == "as many elements" else 3,), "int64"))
    table = embedding()
    if why == "a scale per channel":
        table = ops.dequantize(TABLE, constant(np.ones(6, np.float32)), constant(np.zeros(6, np.int8)), dtype="float32", axis=1)
    elif why == "not element-wise":
        table = ops.softmax(table, axis=1)
    result = ops.take(table, indices, axis=0)
    unit = function([indices], ops.add(result, ops.take(ops.relu(table), indices, axis=0)) if why == "two readers" else result)
    reordered_function = early_take(unit)
    assert reordered_function is unit or why == "two readers"
    assert order(reordered_function).count("dequantize") == 1
