"""Transposed convolutions through the compiler, against the numpy reference: static, and with a free batch, height and width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import Expr, constant, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(7)

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "sub-pixel": ((2, 24, 5, 7), (24, 40, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "phases apart": ((2, 8, 4, 3), (8, 64, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "one pixel": ((2, 24, 1, 1), (24, 16, 3, 4), {"strides": (1, 2), "pads": (0, 1, 0, 1)}),
    "phases of different taps": ((1, 16, 4, 3), (16, 8, 3, 5), {"strides": (2, 3), "output_padding": (1, 0)}),
    "stride 1": ((1, 16, 6, 5), (16, 16, 3, 3), {"pads": (1, 0, 1, 2)}),
    "depthwise": ((2, 6, 5, 7), (6, 1, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1), "groups": 6}),
    "several results per channel": ((1, 5, 4, 9), (5, 2, 3, 5), {"strides": (2, 3), "output_padding": (1, 2), "groups": 5}),
    "groups and gaps": ((1, 8, 4, 5), (8, 3, 2, 3), {"strides": (2, 3), "dilations": (2, 2), "groups": 2}),
}


def transposed(x: Expr, weights: np.ndarray, attrs: dict[str, Any]) -> Expr:
    channels = weights.shape[1] * attrs.get("groups", 1)
    bias = constant(np.linspace(-1, 1, channels, dtype=np.float32).reshape(channels, 1, 1))
    return ops.relu(ops.add(ops.conv_transpose(x, constant(weights), **attrs), bias))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("x86-64-v3", 2), ("x86-64-v2", 1)])
@pytest.mark.parametrize("layer", LAYERS)
def test_static_and_symbolic_packages_agree_with_the_reference(layer: str, cpu: str, threads: int) -> None:
    shape, kernel, attrs = LAYERS[layer]
    weights = RNG.standard_normal(kernel).astype(np.float32) / np.float32(np.sqrt(kernel[0]))
    free = TensorType((SizeVar("n"), shape[1], SizeVar("h", 1), SizeVar("w", 1)), "float32")
    target = f"x86:threads={threads},cpu={cpu}"
    symbolic = inlaid.compile(function([v := var("x", free)], transposed(v, weights, attrs)), [target])
    for sizes in (shape, (0, *shape[1:]), (1, shape[1], 1, 1), (1, shape[1], 17, 9)):
        data = RNG.standard_normal(sizes).astype(np.float32)
        fixed = function([v := var("x", TensorType(sizes, "float32"))], transposed(v, weights, attrs))
        (expected,) = inlaid.compile(fixed, ["reference"]).run({"x": data}).values()
        packages = [symbolic, inlaid.compile(fixed, [target])] if sizes == shape else [symbolic]
        for package in packages:
            (actual,) = package.run({"x": data}).values()
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
def test_integers_are_exact(cpu: str, groups: int) -> None:
    data = RNG.integers(-128, 128, (1, 16, 5, 4)).astype(np.int8)
    weights = RNG.integers(-127, 128, (16, 24 // groups, 4, 4)).astype(np.int8)
    x = var("x", TensorType(data.shape, "int8"))
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (1, 1, 1, 1), "groups": groups}
    unit = function([x], ops.conv_transpose(x, constant(weights), out_dtype="int32", **attrs))
    (expected,) = inlaid.compile(unit, ["reference"]).run({"x": data}).values()
    (actual,) = inlaid.compile(unit, [f"x86:cpu={cpu}"]).run({"x": data}).values()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("x86-64-v3", 2), ("x86-64-v2", 1)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("types", "points"), [(("uint8", "int8"), (117, 0)), (("int8", "int8"), (-3, 5)), (("int8", "uint8"), (0, 117))]
)
def test_dequantized_integers_of_computed_weights(
    types: tuple[str, str], points: tuple[int, int], groups: int, cpu: str, threads: int
) -> None:
    """Static and symbolic: the integer sum is exact, so that its float32 product with a power of two is, too."""
    sizes, kernel = (2, 16, 5, 4), (16, 24, 4, 3)
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (1, 1, 1, 1), "groups": groups}
    data, weights = (
        RNG.integers(np.iinfo(name).min, np.iinfo(name).max, shape, name, endpoint=True)
        for name, shape in zip(types, (sizes, kernel), strict=True)
    )
    shifted = [integers.astype(np.int32) - point for integers, point in zip((data, weights), points, strict=True)]
    whole = [var(name, TensorType(item.shape, "int32")) for name, item in zip("xw", shifted, strict=True)]
    reference = function(whole, ops.conv_transpose(*whole, out_dtype="int32", **attrs))
    (expected,) = inlaid.compile(reference, ["reference"]).run(dict(zip("xw", shifted, strict=True))).values()
    for shape in (sizes, (SizeVar("n"), sizes[1], SizeVar("h", 1), SizeVar("w", 1))):
        stored = [var("x", TensorType(shape, types[0])), var("w", TensorType(kernel, types[1]))]
        real = [
            ops.dequantize(item, constant(np.float32(0.25)), constant(np.asarray(point, name)), dtype="float32")
            for item, point, name in zip(stored, points, types, strict=True)
        ]
        executable = inlaid.compile(function(stored, ops.conv_transpose(*real, **attrs)), [f"x86:threads={threads},cpu={cpu}"])
        (actual,) = executable.run({"x": data, "w": weights}).values()
        np.testing.assert_array_equal(actual, expected.astype(np.float32) / 16)
