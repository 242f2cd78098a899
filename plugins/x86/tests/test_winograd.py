"""Winograd convolution through the compiler, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.arith import SizeVar
from inlaid.graph.ir import constant, function, var
from inlaid.types import TensorType


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
    (found,) = executable.run(inputs).values()
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
    )
    wanted = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w, optimize=True) + bias + residual, 0)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max() + 1e-5, rtol=0)
    assert np.array_equal(next(iter(executable.run(inputs).values())), found)


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
        (found,) = executable.run({"x": data}).values()
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
        )
        wanted = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w, optimize=True), 0)
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max(initial=0) + 1e-5, rtol=0)
