"""Copies that choose by place what they read: padded in every mode, joined and repeated, of static and of symbolic sizes."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Function, function, tuple_, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

N, H, W = SizeVar("n"), SizeVar("h"), SizeVar("w")
CPUS = ("native", "x86-64-v3", "x86-64-v2")
SIZES = ((1, 4, 4), (2, 5, 7), (1, 16, 33), (0, 4, 9), (3, 5, 64))


def check(unit: Function, cpu: str, threads: int = 1, sizes: tuple[tuple[int, int, int], ...] = SIZES) -> None:
    """A package at many sizes against the interpreter of graphs, which it equals bit for bit."""
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    rng = np.random.default_rng(0)
    for n, h, w in sizes:
        extents = {N: n, H: h, W: w}
        feeds = {
            param.name: rng.integers(-9, 10, [extents.get(dim, dim) for dim in param.type.shape]).astype(param.type.dtype.numpy)
            for param in unit.params
        }
        for actual, expected in zip(executable.run(feeds).values(), evaluate(unit, list(feeds.values())), strict=True):
            np.testing.assert_array_equal(actual, expected)


def image(dtype: str = "float32", name: str = "x", channels: int = 3) -> Expr:
    return var(name, TensorType((N, channels, H, W), dtype))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 1)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pads(cpu: str, threads: int, dtype: str) -> None:
    """Of one side and of both, wider than the axis, and that take away; alone, after and before other operators."""
    x = image(dtype)
    pads = (
        (0, 0, 1, 1, 0, 0, 1, 1),
        (0, 0, 0, 2, 0, 0, 3, 0),
        (0, 0, 9, 11, 0, 0, 0, 7),
        (0, 0, 2, -1, 0, 0, -3, 2),
        (0, 1, 2, 0, 0, 0, 0, 0),
    )
    results = [ops.pad(x, pads=each, mode=mode) for mode in ("reflect", "edge", "wrap") for each in pads]
    results.append(ops.maximum(ops.pad(ops.add(x, x), pads=pads[0], mode="reflect"), ops.pad(x, pads=pads[0], mode="edge")))
    check(function([x], tuple_(results)), cpu, threads)


@pytest.mark.parametrize("cpu", CPUS)
def test_pads_of_static_sizes(cpu: str) -> None:
    x = var("x", TensorType((2, 3, 5, 21), "float32"))
    pads = ((0, 0, 1, 1, 0, 0, 1, 1), (0, 0, 0, 2, 0, 0, 3, 0), (0, 0, 9, 30, 0, 0, 0, 7), (0, 0, 2, -1, 0, 0, -3, 2))
    results = [ops.pad(x, pads=each, mode=mode) for mode in ("reflect", "edge", "wrap") for each in pads]
    check(function([x], tuple_(results)), cpu, sizes=((0, 0, 0),))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 1)])
def test_joined_and_repeated(cpu: str, threads: int) -> None:
    """Along every axis, several at a time, with operators between."""
    x, y, z = image(), image(name="y", channels=1), image(name="z")
    results = [
        ops.concat(x, z, x, axis=3),
        ops.concat(x, y, z, axis=1),
        ops.relu(ops.concat(ops.relu(x), z, axis=3)),
        ops.tile(x, repeats=(1, 1, 1, 3)),
        ops.tile(x, repeats=(2, 1, 2, 1)),
        ops.pad(ops.concat(x, x, axis=3), pads=(0, 0, 0, 2, 0, 0, 0, 2), mode="wrap"),
    ]
    check(function([x, y, z], tuple_(results)), cpu, threads)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 24])
def test_rows_are_repeated_without_division(columns: int) -> None:
    x = var("x", TensorType((N, columns), "float32"))
    check(function([x], tuple_([ops.relu(ops.tile(x, repeats=(1, 5)))])), "native")


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 1)])
@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "float32", "int64"])
def test_channels_last(cpu: str, threads: int, dtype: str) -> None:
    """Of three channels, whose vectors are interleaved, and of two; there and back."""
    images = [image(dtype, "two", 2), image(dtype, "three")]
    last = var("last", TensorType((N, H, W, 3), dtype))
    moved = [*(ops.transpose(x, perm=(0, 2, 3, 1)) for x in images), ops.transpose(last, perm=(0, 3, 1, 2))]
    check(function([*images, last], tuple_(moved)), cpu, threads)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float32", "int64"])
def test_transposes(cpu: str, dtype: str) -> None:
    """Squares of 2, 4, 8 and 16 rows, also where these fill 16 bytes."""
    shapes = ((2, 64, 24), (1, 300, 257), (3, 8, 40), (1, 4, 40), (1, 2, 17))
    params = [var(f"x{number}", TensorType(shape, dtype)) for number, shape in enumerate(shapes)]
    check(function(params, tuple_([ops.transpose(x, perm=(0, 2, 1)) for x in params])), cpu, sizes=((1, 1, 1),))
