"""Direct convolution of symbolic sizes through the compiler, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import constant, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType


@pytest.mark.parametrize(
    ("cpu", "threads", "channels", "outputs", "kernel", "stride", "groups"),
    [
        ("native", 2, 32, 32, (3, 3), 2, 1),
        ("native", 1, 3, 24, (5, 5), 1, 1),
        ("native", 2, 1, 24, (5, 5), 1, 1),
        ("x86-64-v3", 1, 1, 16, (3,), 2, 1),
        ("native", 1, 32, 32, (3, 3), 1, 2),
        ("x86-64-v3", 0, 16, 32, (3,), 1, 1),
        ("x86-64-v3", 1, 16, 16, (2, 3, 3), 1, 1),
        ("x86-64-v2", 2, 16, 16, (1, 1), 2, 1),
        # Weights that are fetched ahead, panel by panel.
        ("native", 1, 64, 128, (1, 1), 1, 1),
        ("x86-64-v3", 1, 32, 64, (3, 3), 2, 1),
    ],
)
def test_symbolic_sizes(cpu, threads, channels, outputs, kernel, stride, groups):
    rng, rank = np.random.default_rng(0), len(kernel)
    w = rng.standard_normal((outputs, channels // groups, *kernel)).astype(np.float32)
    symbols = [SizeVar(name) for name in ("batch", "height", "width", "depth")[: rank + 1]]
    x = var("x", TensorType((symbols[0], channels, *symbols[1:]), "float32"))
    pads = tuple(size // 2 for size in kernel) * 2
    conv = ops.conv(x, constant(w), strides=(stride,) * rank, pads=pads, groups=groups)
    executable = inlaid.compile(function([x], ops.relu(conv)), [f"x86:threads={threads},cpu={cpu}"])
    for batch, *sizes in [(1, 1, 1, 1), (2, 3, 2, 2), (1, 8, 7, 4), (1, 9, 17, 3), (0, 3, 3, 3), (2, 28, 15, 5)]:
        data = rng.standard_normal((batch, channels, *sizes[:rank])).astype(np.float32)
        (actual,) = executable.run({"x": data}).values()
        padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), *((size // 2,) * 2 for size in kernel)])
        view = np.lib.stride_tricks.sliding_window_view(padded, kernel, tuple(range(2, 2 + rank)))
        view = view[(slice(None), slice(None), *(slice(None, None, stride),) * rank)]
        parts = [
            np.tensordot(part, weights, ((1, *range(2 + rank, 2 + 2 * rank)), range(1, 2 + rank)))
            for part, weights in zip(np.split(view, groups, 1), np.split(w, groups), strict=True)
        ]
        expected = np.maximum(np.moveaxis(np.concatenate(parts, -1), -1, 1), 0)
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max(initial=0) + 1e-5, rtol=0)


@pytest.mark.parametrize(
    ("cpu", "threads", "channels", "outputs", "kernel", "stride", "groups"),
    [
        ("native", 1, 32, 32, (3, 3), 1, 1),
        ("native", 2, 16, 64, (1, 1), 1, 1),
        ("x86-64-v4", 1, 16, 16, (3, 3), 1, 1),
        ("x86-64-v4", 1, 32, 32, (3, 3), 1, 32),
        ("x86-64-v3", 2, 32, 32, (3, 3), 2, 32),
        ("x86-64-v3", 1, 16, 16, (5,), 1, 1),
        ("x86-64-v2", 1, 8, 8, (1, 1), 1, 1),
    ],
)
def test_symbolic_sizes_in_int8(cpu, threads, channels, outputs, kernel, stride, groups):
    """The zero point around the images is 3, and the sums are exact."""
    rng, rank = np.random.default_rng(0), len(kernel)
    w = rng.integers(-9, 9, (outputs, channels // groups, *kernel)).astype(np.int8)
    symbols = [SizeVar(name) for name in ("batch", "height", "width")[: rank + 1]]
    x = var("x", TensorType((symbols[0], channels, *symbols[1:]), "uint8"))
    around = [(0, 0), (0, 0), *((size // 2,) * 2 for size in kernel)]
    pads = tuple(before for before, _ in around) + tuple(after for _, after in around)
    padded = ops.pad(x, constant(np.uint8(3)), pads=pads) if any(pads) else x
    conv = ops.conv(padded, constant(w), strides=(stride,) * rank, groups=groups, out_dtype="int32")
    executable = inlaid.compile(function([x], conv), [f"x86:threads={threads},cpu={cpu}"])
    for batch, *sizes in [(1, 1, 1), (2, 3, 2), (1, 8, 7), (1, 9, 17), (0, 3, 3), (2, 28, 16), (1, 2, 40)]:
        data = rng.integers(0, 255, (batch, channels, *sizes[:rank])).astype(np.uint8)
        (actual,) = executable.run({"x": data}).values()
        view = np.pad(data.astype(np.int64), around, constant_values=3)
        view = np.lib.stride_tricks.sliding_window_view(view, kernel, tuple(range(2, 2 + rank)))
        view = view[(slice(None), slice(None), *(slice(None, None, stride),) * rank)]
        parts = [
            np.tensordot(part, weights.astype(np.int64), ((1, *range(2 + rank, 2 + 2 * rank)), range(1, 2 + rank)))
            for part, weights in zip(np.split(view, groups, 1), np.split(w, groups), strict=True)
        ]
        np.testing.assert_array_equal(actual, np.moveaxis(np.concatenate(parts, -1), -1, 1))


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_each_remainder_of_one_line(cpu):
    """Lines of every length up to two tiles, on one thread, whose last tile ends where the line does."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((32, 16, 3)).astype(np.float32)
    x = var("x", TensorType((SizeVar("batch"), 16, SizeVar("length")), "float32"))
    executable = inlaid.compile(
        function([x], ops.relu(ops.conv(x, constant(w), strides=(1,), pads=(1, 1)))), [f"x86:threads=1,cpu={cpu}"]
    )
    for length in range(1, 30):
        data = rng.standard_normal((2, 16, length)).astype(np.float32)
        (actual,) = executable.run({"x": data}).values()
        padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1)])
        expected = np.maximum(sum(np.einsum("oc,ncl->nol", w[:, :, tap], padded[:, :, tap : tap + length]) for tap in range(3)), 0)
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max(initial=0) + 1e-5, rtol=0)
