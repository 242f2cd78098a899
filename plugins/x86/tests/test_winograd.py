"""Winograd convolution through the compiler, against numpy: floats in double precision, integers exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import constant, function, var
from inlaid.ops.winograd import transform_weights, winograd_conv
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType


@pytest.mark.parametrize(
    ("cpu", "threads", "batch", "channels", "outputs", "height", "width"),
    [
        ("native", 1, 1, 64, 64, 28, 28),
        ("native", 2, 1, 64, 96, 14, 14),
        ("native", 0, 2, 32, 48, 13, 9),
        ("native", 1, 2, 24, 64, 17, 5),
        ("native", 1, 1, 256, 256, 7, 7),
        ("x86-64-v3", 2, 1, 32, 32, 31, 11),
        ("x86-64-v2", 1, 1, 32, 32, 12, 14),
    ],
)
def test_winograd(cpu: str, threads: int, batch: int, channels: int, outputs: int, height: int, width: int) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    bias = rng.standard_normal((1, outputs, 1, 1)).astype(np.float32)
    data = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
    residual = rng.standard_normal((batch, outputs, height, width)).astype(np.float32)
    x, r = var("x", TensorType(data.shape, "float32")), var("r", TensorType(residual.shape, "float32"))
    conv = ops.conv(x, constant(w), pads=(1, 1, 1, 1))
    unit = function([x, r], ops.relu(ops.add(ops.add(conv, constant(bias)), r)))
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    inputs = {"x": data, "r": residual}
    assert any("winograd" in row.name for row in executable.profile(inputs).rows())
    (actual,) = executable.run(inputs).values()
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
    )
    expected = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w, optimize=True) + bias + residual, 0)
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max() + 1e-5, rtol=0)
    assert np.array_equal(next(iter(executable.run(inputs).values())), actual)


@pytest.mark.parametrize(
    ("threads", "channels", "outputs", "height", "width"),
    [(1, 256, 256, 14, 14), (2, 64, 128, 13, 13), (0, 512, 64, 7, 7), (1, 48, 192, 13, 9), (1, 128, 32, 14, 14)],
)
def test_bfloat16(threads: int, channels: int, outputs: int, height: int, width: int) -> None:
    """Small integers and weights that are multiples of four are exact in tiles of 2; others have the error of two roundings."""
    rng = np.random.default_rng(0)
    shape, weights = (1, channels, height, width), (outputs, channels, 3, 3)
    integer_case = rng.integers(-8, 9, shape), 4 * rng.integers(-4, 5, weights)
    for data, w in (integer_case, (rng.standard_normal(shape), rng.standard_normal(weights))):
        x = var("x", TensorType(shape, "float32"))
        unit = function([x], ops.relu(ops.conv(ops.relu(x), constant(w.astype(np.float32)), pads=(1, 1, 1, 1))))
        (actual,) = inlaid.compile(unit, [f"x86:threads={threads}"], precision="bf16").run({"x": data.astype(np.float32)}).values()
        padded = np.pad(np.maximum(data, 0).astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        expected = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float64), optimize=True), 0)
        tolerance = 0 if w is integer_case[1] else 3 * np.sqrt(2 / 3) * 2**-8 * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1)])
def test_bfloat16_tiles_of_symbolic_sizes(cpu: str, threads: int) -> None:
    """Exact for small integers and weights that are multiples of four, also without instructions for bfloat16."""
    rng = np.random.default_rng(0)
    w = 4 * rng.integers(-4, 5, (64, 32, 3, 3))
    tiled = constant(transform_weights(w.astype(ml_dtypes.bfloat16), 2))
    x = var("x", TensorType((SizeVar("batch"), 32, SizeVar("height"), SizeVar("width")), "bfloat16"))
    unit = function([x], winograd_conv(x, tiled, pads=(1, 1, 1, 1), tile=2, halves=False))
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    for batch, height, width in [(1, 1, 1), (2, 3, 2), (1, 28, 28), (3, 5, 9), (1, 7, 31), (0, 3, 3)]:
        data = rng.integers(-8, 9, (batch, 32, height, width))
        (actual,) = executable.run({"x": data.astype(ml_dtypes.bfloat16)}).values()
        padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        np.testing.assert_array_equal(actual, np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float64), optimize=True))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 0)])
def test_symbolic_sizes(cpu: str, threads: int) -> None:
    """One package for all sizes, drawn when it runs: less than a tile, whole tiles, one more and one less, several stripes."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 16, 3, 3)).astype(np.float32)
    x = var("x", TensorType((SizeVar("batch"), 16, SizeVar("height"), SizeVar("width")), "float32"))
    unit = function([x], ops.relu(ops.conv(x, constant(w), pads=(1, 1, 1, 1))))
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    sizes = [
        (1, 1, 1),
        (2, 3, 2),
        (1, 4, 8),
        (1, 28, 28),
        (3, 5, 9),
        (1, 7, 31),
        (0, 3, 3),
        *map(tuple, rng.integers(1, 40, (8, 3))),
    ]
    for batch, height, width in sizes:
        data = rng.standard_normal((min(batch, 3), 16, height, width)).astype(np.float32)
        assert any("winograd" in row.name for row in executable.profile({"x": data}).rows())
        (actual,) = executable.run({"x": data}).values()
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
        )
        expected = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w, optimize=True), 0)
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max(initial=0) + 1e-5, rtol=0)


@pytest.mark.parametrize(
    ("cpu", "threads", "channels", "outputs", "height", "width"),
    [
        ("x86-64-v3", 1, 64, 64, 28, 28),
        ("x86-64-v3", 2, 64, 96, 15, 22),
        ("x86-64-v3", 1, 256, 64, 14, 14),
        ("x86-64-v3", 1, 512, 64, 14, 14),
        ("x86-64-v2", 1, 32, 32, 12, 14),
    ],
)
@pytest.mark.parametrize("values", ["random", "extreme", "greatest"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_integers(cpu: str, threads: int, channels: int, outputs: int, height: int, width: int, values: str, dtype: str) -> None:
    """Every sum is that of the direct convolution, for all weights and data: also where tiles would not be exact."""
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    shape = (1, channels, height, width)
    weights, data = {
        "random": (rng.integers(-128, 128, (outputs, channels, 3, 3)), rng.integers(limits.min, limits.max + 1, shape)),
        "extreme": (rng.choice([-128, 127], (outputs, channels, 3, 3)), rng.choice([limits.min, limits.max], shape)),
        "greatest": (np.full((outputs, channels, 3, 3), -128), np.full(shape, limits.max if dtype == "uint8" else limits.min)),
    }[values]
    x = var("x", TensorType(data.shape, dtype))
    conv = ops.conv(
        x, constant(weights.astype(np.int8)), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1, out_dtype="int32"
    )
    executable = inlaid.compile(function([x], conv), [f"x86:threads={threads},cpu={cpu}"])
    inputs = {"x": data.astype(dtype)}
    if values == "random":
        assert any("winograd" in row.name for row in executable.profile(inputs).rows())
    (actual,) = executable.run(inputs).values()
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(data, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    expected = np.einsum("ncyxij,ocij->noyx", windows.astype(np.float64), weights.astype(np.float64), optimize=True)
    assert np.array_equal(actual, expected.astype(np.int64))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1)])
@pytest.mark.parametrize("channels", [128, 512])
def test_bytes_with_small_and_large_sums(cpu: str, threads: int, channels: int) -> None:
    """Tiles of 4, also where sums exceed 2^25: with VNNI, data stays in bytes."""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (64, channels, 3, 3)).astype(np.int8)
    data = rng.integers(0, 256, (1, channels, 28, 28)).astype(np.uint8)
    x = var("x", TensorType(data.shape, "uint8"))
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "groups": 1, "out_dtype": "int32"}
    executable = inlaid.compile(function([x], ops.conv(x, constant(w), **attrs)), [f"x86:threads={threads},cpu={cpu}"])
    (actual,) = executable.run({"x": data}).values()
    padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert np.array_equal(actual, np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float64), optimize=True))


def test_integers_of_symbolic_sizes() -> None:
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (32, 16, 3, 3)).astype(np.int8)
    x = var("x", TensorType((SizeVar("batch"), 16, SizeVar("height"), SizeVar("width")), "uint8"))
    conv = ops.conv(x, constant(w), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1, out_dtype="int32")
    executable = inlaid.compile(function([x], conv), ["x86:threads=1,cpu=x86-64-v3"])
    for batch, height, width in [(1, 1, 1), (2, 3, 2), (1, 28, 28), (3, 5, 9), (1, 7, 31)]:
        data = rng.integers(0, 256, (batch, 16, height, width)).astype(np.uint8)
        (actual,) = executable.run({"x": data}).values()
        padded = np.pad(data.astype(np.int64), [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        assert np.array_equal(actual, np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.int64)))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1)])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 1, 2, 1), (2, 2, 2, 2)])
@pytest.mark.parametrize(("channels", "outputs"), [(64, 96), (128, 64)])
def test_symbolic_images_that_are_small_at_run_time(
    channels: int, outputs: int, pads: tuple[int, ...], cpu: str, threads: int
) -> None:
    """One package at sizes of both versions. Images of few pixels are computed directly, and so exactly for integers."""
    rng = np.random.default_rng(0)
    w = rng.integers(-3, 4, (outputs, channels, 3, 3))
    bias = rng.integers(-9, 10, (outputs, 1, 1))
    sizes = SizeVar("batch"), SizeVar("height", 1), SizeVar("width", 1)
    x = var("x", TensorType((sizes[0], channels, *sizes[1:]), "float32"))
    conv = ops.conv(x, constant(w.astype(np.float32)), pads=pads)
    unit = function([x], ops.relu(ops.add(conv, constant(bias.astype(np.float32)))))
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    rows = executable.profile({"x": np.zeros((1, channels, 1, 1), np.float32)}).rows()
    assert any("winograd" in row.name for row in rows)
    for batch, height, width in [
        (1, 1, 1),
        (2, 1, 1),
        (1, 1, 3),
        (1, 3, 1),
        (2, 2, 2),
        (0, 1, 1),
        (1, 8, 8),
        (2, 5, 13),
        (1, 23, 1),
    ]:
        data = rng.integers(-4, 5, (batch, channels, height, width))
        (actual,) = executable.run({"x": data.astype(np.float32)}).values()
        padded = np.pad(data, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        expected = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w, optimize=True) + bias, 0)
        tolerance = 0 if height * width <= 2 else 1e-5 * np.abs(expected).max(initial=0)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)
