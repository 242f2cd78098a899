"""Sizes that no package can store are refused by the name of the input or the operator."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import build_package
from inlaid.graph.ir import Module, function, tuple_, var
from inlaid_runtime import load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.package import write_package
from inlaid_runtime.types import TensorType

N = SizeVar("n")


def doubled(*shape, name="x") -> Module:
    x = var(name, TensorType(shape, "float32"))
    return Module({"main": function([x], ops.relu(ops.add(x, x)))})


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((1 << 59,), r"expected input 'image' to have extents that are < 2\^47, got 576460752303423488"),
        ((N, 1 << 47), r"expected input 'image' to have extents that are < 2\^47, got 140737488355328"),
        ((0, 1 << 63), "expected input 'image' to have extents"),
        ((1 << 70,), "expected input 'image' to have extents"),
        ((1 << 31, N, 1 << 31), r"expected input 'image' to have static extents of less than 2\^47 bytes together, got 1844674"),
        ((1,) * 33, "expected input 'image' to have at most 32 dimensions, got 33"),
        ((SizeVar("n", 1 << 59),), "expected bounds of dimension n of input 'image'"),
        ((SizeVar("n", 0, 1 << 63),), "expected bounds of dimension n of input 'image'"),
    ],
    ids=repr,
)
def test_inputs_are_refused_by_name(shape, problem) -> None:
    with pytest.raises(CompileError, match=problem):
        build_package(doubled(*shape, name="image"), ["reference"])


def test_results_are_refused_by_operator() -> None:
    x = var("x", TensorType((N, 1), "float32"))
    with pytest.raises(CompileError, match=r"expected the result to have extents.*operator broadcast_to"):
        build_package(Module({"main": function([x], ops.broadcast_to(x, shape=(N, 1 << 59)))}), ["reference"])
    y = var("y", TensorType((N,), "float32"))
    for size in (1 << 59, (1 << 62) + 1):
        padded = ops.broadcast_to(ops.reduce_sum(y, axes=(0,)), shape=(N + size,))
        module = Module({"main": function([y], tuple_([padded, y]))})
        if size <= 1 << 62:
            build_package(module, ["reference"])
        else:
            with pytest.raises(CompileError, match=r"constants of at most 2\^62, got 4611686018427387905 \(operator broadcast_to"):
                build_package(module, ["reference"])


@pytest.mark.parametrize("count", [9, 24, 32])
def test_many_dimensions(count, tmp_path) -> None:
    """The product of their assumed sizes, 128^32, exceeds 64 bits by far."""
    write_package(build_package(doubled(*(f"d{axis}" for axis in range(count))), ["reference"]), tmp_path / "model.inlaid")
    value = np.arange(-12, 12, dtype=np.float32).reshape(*([1] * (count - 3)), 2, 3, 4)
    result = load(tmp_path / "model.inlaid").run({"x": value})["output0"]
    np.testing.assert_array_equal(result, np.maximum(2 * value, 0))
