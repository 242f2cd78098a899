"""Functions of one byte as tables: the same bytes, and only where a function is dear and of one tensor alone."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.tables import tabulate
from inlaid_runtime.types import TensorType

BYTES = ("uint8", "int8")


def real(x: Expr, scale: float, point: int, dtype: str) -> Expr:
    return ops.dequantize(x, constant(np.float32(scale)), constant(point, dtype), dtype="float32")


def stored(x: Expr, scale: float, point: int, dtype: str) -> Expr:
    return ops.quantize(x, constant(np.float32(scale)), constant(point, dtype), dtype=dtype)


def gelu(x: Expr, source: str, to: str) -> Expr:
    """As a quantizer leaves it: every step stored in between, and constants of one element of any rank."""
    value = real(x, 0.03, 3, source)
    error = real(stored(ops.erf(ops.div(value, constant(np.float32([1.5])))), 0.008, 0, "int8"), 0.008, 0, "int8")
    total = ops.mul(value, ops.add(error, constant(np.float32(1))))
    return stored(ops.mul(total, constant(np.float32([[0.5]]))), 0.02, 5, to)


def names(unit: Function) -> list[str]:
    return [e.callee.name for e in post_order(unit) if isinstance(e, Call) and isinstance(e.callee, Operator)]


def every(dtype: str) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(dtype).reshape(2, 128)


@pytest.mark.parametrize("source", BYTES)
@pytest.mark.parametrize("to", BYTES)
def test_a_chain_becomes_one_table(source: str, to: str) -> None:
    x = var("x", TensorType((2, 128), source))
    unit = function([x], gelu(x, source, to))
    changed = tabulate(unit)
    verify(changed)
    assert names(changed) == (["take"] if source == "uint8" else ["bitcast", "take"])
    np.testing.assert_array_equal(evaluate(changed, [every(source)]), evaluate(unit, [every(source)]))


def test_what_is_used_on_the_way_is_looked_up_too() -> None:
    x = var("x", TensorType((2, 128), "uint8"))
    first = stored(ops.exp(real(x, 0.01, 128, "uint8")), 0.05, 0, "uint8")
    second = stored(ops.tanh(real(first, 0.05, 0, "uint8")), 0.01, 0, "int8")
    unit = function([x], tuple_([first, second]))
    changed = tabulate(unit)
    assert names(changed) == ["take", "take"]
    for a, b in zip(evaluate(changed, [every("uint8")]), evaluate(unit, [every("uint8")]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_cheap_or_of_more_than_one_byte_stays() -> None:
    x, y = (var(name, TensorType((2, 128), "uint8")) for name in "xy")
    a, b = real(x, 0.1, 0, "uint8"), real(y, 0.1, 0, "uint8")
    by_channel = ops.mul(ops.tanh(a), constant(np.ones(128, np.float32)))
    wider = ops.tanh(ops.add(a, constant(np.ones((3, 1, 1), np.float32))))
    for value in (ops.relu(a), ops.div(a, b), by_channel, wider):
        unit = function([x, y], stored(value, 0.1, 0, "uint8"))
        assert tabulate(unit) is unit


def test_repeated_quantization_is_looked_up_if_asked() -> None:
    x = var("x", TensorType((2, 128), "uint8"))
    value = real(x, 0.05, 128, "uint8")
    gate = stored(ops.clip(ops.add(value, constant(np.float32(0.5))), minimum=0.0, maximum=1.0), 0.004, 0, "uint8")
    unit = function([x], stored(ops.mul(value, real(gate, 0.004, 0, "uint8")), 0.03, 7, "uint8"))
    assert tabulate(unit) is unit
    changed = tabulate(unit, repeated=True)
    verify(changed)
    assert names(changed) == ["take"]
    np.testing.assert_array_equal(evaluate(changed, [every("uint8")]), evaluate(unit, [every("uint8")]))


def test_a_zero_point_is_no_data() -> None:
    """It has no more axes than the constant that it belongs to, so that it cannot be all of the bytes at once."""
    point = var("point", TensorType((), "int8"))
    value = ops.dequantize(constant(6, "int8"), constant(np.float32(0.0625)), point, dtype="float32", axis=0)
    unit = function([point], stored(ops.exp(value), 0.05, 0, "int8"))
    changed = tabulate(unit)
    verify(changed)
    for byte in (-128, -3, 6, 127):
        expected = np.clip(np.rint(np.exp((6 - byte) / 16) / 0.05), -128, 127)
        np.testing.assert_array_equal(evaluate(changed, [np.array(byte, np.int8)]), expected)
