"""Look-ups of bytes in tables of 256 bytes, between convolutions in channel-blocked layouts, against the numpy reference."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import Expr, constant, function, tuple_, var
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(7)


def looked_up(x: Expr, table: np.ndarray, channels: int) -> Expr:
    """A requantized convolution, a look-up, and another convolution that reads the bytes."""

    def convolved(data: Expr) -> Expr:
        weights = RNG.integers(-9, 9, (channels, data.type.shape[1], 1, 1)).astype(np.int8)  # type: ignore[union-attr]
        total = ops.conv(data, constant(weights), out_dtype="int32")
        return ops.requantize(total, constant(np.float32(0.02)), constant(np.uint8(100)), dtype="uint8")

    return convolved(ops.take(constant(table), convolved(x), axis=0))


@pytest.mark.parametrize("size", [(4, 8), (3, 6), (5, 7), (1, 1)])
@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("x86-64-v3", 1), ("x86-64-v3", 2), ("x86-64-v2", 1)])
def test_every_byte_is_found(cpu: str, threads: int, size: tuple[int, int]) -> None:
    table = RNG.permutation(256).astype(np.uint8)
    x = var("x", TensorType((2, 8, *size), "uint8"))
    unit = function([x], looked_up(x, table, 16))
    data = RNG.integers(0, 256, (2, 8, *size)).astype(np.uint8)
    (expected,) = inlaid.compile(unit, ["reference"]).run({"x": data}).values()
    for check in ("false", "true"):
        (actual,) = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu},check={check}"]).run({"x": data}).values()
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("index", ["uint8", "int8"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_tables_of_every_type(cpu: str, dtype: str, index: str) -> None:
    x = var("x", TensorType((3, 64), index))
    table = RNG.permutation(256).astype(np.uint8).view("int8" if dtype == "int8" else "uint8").astype(dtype)
    unit = function([x], ops.take(constant(table), x, axis=0))
    data = np.arange(192, dtype=np.uint8).reshape(3, 64).view(index)
    (expected,) = inlaid.compile(unit, ["reference"]).run({"x": data}).values()
    (actual,) = inlaid.compile(unit, [f"x86:cpu={cpu}"]).run({"x": data}).values()
    np.testing.assert_array_equal(actual, expected)


def test_a_scalar_parameter_is_no_table() -> None:
    """From three equal kernels on, scalars are parameters, which have no index."""
    value: Expr = var("x", TensorType((1, 16, 5, 8), "float32"))
    inputs, results = [value], []
    for scale in (0.5, 0.75, 1.25, 1.5):
        weights = RNG.normal(size=(16, 16, 1, 1)).astype(np.float32)
        total = ops.conv(value, constant(weights))
        value = ops.mul(total, constant(np.float32(scale)))
        results.append(total)  # a second reader, so that the product is a kernel of its own
    unit = function(inputs, tuple_([*results, value]))
    data = {"x": RNG.normal(size=(1, 16, 5, 8)).astype(np.float32)}
    expected = inlaid.compile(unit, ["reference"]).run(data)
    for name, actual in inlaid.compile(unit, ["x86"]).run(data).items():
        np.testing.assert_allclose(actual, expected[name], rtol=1e-4, atol=1e-4)
