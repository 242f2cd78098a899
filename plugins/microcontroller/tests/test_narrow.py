"""Constants that bytes hold are bytes, where all that reads them takes that."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Expr, Module, constant, function, var
from inlaid_microcontroller.export import firmware
from inlaid_runtime.types import TensorType

INPUT = np.random.default_rng(1).integers(-128, 128, (1, 8, 4, 4)).astype(np.int8)


def layer(value: Expr, shifts: Expr, bias: Expr, stride: int = 1) -> Expr:
    weights = constant(np.random.default_rng(stride).integers(-127, 128, (8, 8, 1, 1)).astype(np.int8))
    total = ops.add(ops.conv(value, weights, strides=(stride, stride), pads=(0, 0, 0, 0), dilations=(1, 1)), bias)
    factors = constant(np.arange(8, dtype=np.int32) * 9_999_999 + (1 << 30))
    scaled = ops.multiply_fixed(total, factors, shifts, axis=1, rounding="up")
    return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(3))), minimum=-128.0, maximum=127.0), dtype="int8")


def kinds(module: Module, cpu: str) -> dict[str, set[str]]:
    """The types in C of what calls read, by what it is; the outputs are those of the reference."""
    compiled = [compile_module(module, [target], keep=False) for target in (f"microcontroller:cpu={cpu}", "reference")]
    (actual,), (expected,) = (each.run({"x": INPUT}).values() for each in compiled)
    np.testing.assert_array_equal(actual, expected)
    source = firmware(compiled[0], "m")
    sizes: dict[str, set[str]] = {}
    for number, array in enumerate(source.arrays):
        role = "shift" if array.max() < 0 and array.min() > -32 else "other"
        sizes.setdefault(role, set()).add(source.kinds[number])
    return sizes


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55", "c99"])
def test_shifts_are_bytes(cpu: str) -> None:
    x = var("x", TensorType(INPUT.shape, "int8"))
    bias = constant(np.arange(8, dtype=np.int32).reshape(1, 8, 1, 1) * 99)
    module = Module({"main": function([x], layer(x, constant(np.full(8, -9, np.int32)), bias))})
    assert kinds(module, cpu)["shift"] == {"int8_t"}


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55", "c99"])
def test_shifts_of_large_sums_and_of_small_ones_are_stored_for_both(cpu: str) -> None:
    x, shifts = var("x", TensorType(INPUT.shape, "int8")), constant(np.arange(-16, -8, dtype=np.int32))
    small, large = (constant(np.full((1, 8, 1, 1), value, np.int32)) for value in (5, 1 << 30))
    module = Module({"main": function([x], layer(layer(x, shifts, small), shifts, large, 2))})
    assert kinds(module, cpu)["shift"] == {"int8_t", "int32_t"}


def test_what_is_bias_and_shift_at_once_stays_as_it_is() -> None:
    x, zeros = var("x", TensorType(INPUT.shape, "int8")), constant(np.zeros(8, np.int32))
    module = Module({"main": function([x], layer(x, zeros, ops.reshape(zeros, shape=(1, 8, 1, 1))))})
    kinds(module, "cortex-m4")
