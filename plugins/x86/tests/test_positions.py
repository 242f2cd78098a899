"""The first elements of rows, positions of extremes and running sums through the compiler, against the numpy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(5)
TYPES = [("float32", "native"), ("float32", "x86-64-v3"), ("int64", "x86-64-v2"), ("uint8", "native")]


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few distinct numbers, so that many are equal; of floats some are NaN and zeros of either sign."""
    array = RNG.integers(-9, 9, shape).astype(dtype)
    if dtype == "float32":
        array[RNG.random(shape) < 0.02] = np.nan
        array[RNG.random(shape) < 0.1] *= -1.0
    return array


def check_positions(name: str, data: list[np.ndarray], cpu: str, **attrs: Any) -> None:
    """One symbolic package, and a static one of the first shape, give what the reference gives."""
    free = TensorType(tuple(SizeVar(f"n{axis}", 1) for axis in range(data[0].ndim)), data[0].dtype.name)
    packages = {
        target: inlaid.compile(function([x := var("x", free)], ops.TABLE[name](x, **attrs)), [target])
        for target in ("reference", f"x86:threads=2,cpu={cpu}")
    }
    static = TensorType(data[0].shape, data[0].dtype.name)
    packages["static"] = inlaid.compile(function([x := var("x", static)], ops.TABLE[name](x, **attrs)), [f"x86:cpu={cpu}"])
    for number, array in enumerate(data):
        reference = packages["reference"].run({"x": array}).values()
        for target, package in packages.items():
            if target != "static" or number == 0:
                for actual, expected in zip(package.run({"x": array}).values(), reference, strict=True):
                    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("dtype", "cpu"), TYPES)
@pytest.mark.parametrize(("k", "axis", "largest"), [(1, 1, True), (5, 1, False), (40, 1, True), (3, 0, True)])
def test_first_elements(k: int, axis: int, largest: bool, dtype: str, cpu: str) -> None:
    shapes = ((3, 40), (2, 81), (5, 700), (4, 64)) if axis else ((300, 5), (3, 9), (65, 1))
    check_positions("topk", [values(shape, dtype) for shape in shapes], cpu, k=k, axis=axis, largest=largest)


@pytest.mark.parametrize(("dtype", "cpu"), TYPES)
@pytest.mark.parametrize(
    ("name", "axis", "last"), [("argmax", 1, False), ("argmin", 1, True), ("argmax", 0, True), ("argmin", 0, False)]
)
def test_positions_of_extremes(name: str, axis: int, last: bool, dtype: str, cpu: str) -> None:
    check_positions(name, [values(shape, dtype) for shape in ((7, 33), (1, 1), (16, 16), (3, 257))], cpu, axis=axis, last=last)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
@pytest.mark.parametrize("attrs", [{"axis": 0}, {"axis": 1, "reverse": True}, {"axis": 2, "exclusive": True}], ids=str)
def test_running_sums(attrs: dict[str, Any], cpu: str) -> None:
    shapes = ((3, 5, 300), (4, 1, 1), (1, 7, 256), (2, 3, 17))
    check_positions("cumsum", [RNG.integers(-9, 9, shape).astype("float32") for shape in shapes], cpu, **attrs)
