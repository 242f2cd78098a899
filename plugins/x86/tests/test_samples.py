"""Regions of interest and samples at coordinates found in data, over images of symbolic size and any number of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Function, constant, function, tuple_, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

N, C, H, W, R = (SizeVar(name) for name in "nchwr")
CPUS = ("native", "x86-64-v4", "x86-64-v3", "x86-64-v2")
SIZES = ((1, 1, 4, 4, 1), (2, 3, 5, 7, 4), (1, 17, 9, 8, 0), (3, 32, 16, 17, 9))
Array = np.ndarray[Any, Any]


def check(unit: Function, executable: inlaid.Executable, feeds: list[Array]) -> None:
    """A package against the interpreter of graphs."""
    outputs = executable.run({param.name: feed for param, feed in zip(unit.params, feeds, strict=True)})
    for actual, expected in zip(outputs.values(), evaluate(unit, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cpu", CPUS)
def test_regions(cpu: str) -> None:
    """Regions inside, across borders, of no extent and outside; bins of one element and of several."""
    x, rois = var("x", TensorType((N, C, H, W), "float32")), var("rois", TensorType((R, 4), "float32"))
    images, tagged = var("images", TensorType((R,), "int64")), var("tagged", TensorType((R, 5), "float32"))
    results = (
        ops.roi_align(x, rois, images, shape=(3, 2), sampling=2, scale=0.75),
        ops.roi_align(x, rois, images, shape=(2, 3), half_pixel=False),
        ops.roi_align(x, rois, images, shape=(1, 2), maximum=True),
        ops.roi_max_pool(x, tagged, shape=(3, 2), scale=0.75),
    )
    unit = function([x, rois, images, tagged], tuple_(results))
    executable = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"])
    rng = np.random.default_rng(0)
    for n, c, h, w, r in SIZES:
        data = rng.standard_normal((n, c, h, w)).astype(np.float32)
        boxes = rng.uniform(-3, max(h, w) + 3, (r, 4)).astype(np.float32)
        boxes[r // 2 :, 2:] = np.maximum(boxes[r // 2 :, 2:], boxes[r // 2 :, :2])
        numbers = rng.integers(0, n, r)
        check(unit, executable, [data, boxes, numbers, np.concatenate([numbers[:, None].astype(np.float32), boxes], 1)])


def test_regions_are_read_by_vectors_of_channels() -> None:
    """A sample of 32 channels takes a few vector instructions, not 32 times those of one channel."""
    times = []
    for channels in (1, 32):
        x, rois = var("x", TensorType((1, channels, 28, 28), "float32")), var("rois", TensorType((64, 5), "float32"))
        executable = inlaid.compile(function([x, rois], ops.roi_max_pool(x, rois, shape=(7, 7))), ["x86:threads=1"])
        feeds = {
            "x": np.zeros((1, channels, 28, 28), np.float32),
            "rois": np.tile(np.array([0, 0, 0, 27, 27], np.float32), (64, 1)),
        }
        times.append(min(executable.profile(feeds).rows()[0].seconds for _ in range(20)))
    assert times[1] < 16 * times[0]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("channels", [1, 3, 8, 24, 32])
def test_samples_of_channels(cpu: str, channels: int) -> None:
    """Channels that fill whole and half vectors and that do not; what follows joins the kernel."""
    x, grid = var("x", TensorType((N, channels, H, W), "float32")), var("grid", TensorType((N, R, 5, 2), "float32"))
    other = var("other", TensorType((N, channels, R, 5), "float32"))
    results = (
        ops.relu(ops.grid_sample(x, grid)),
        ops.add(ops.grid_sample(x, grid, padding="border", align_corners=True), other),
        ops.grid_sample(x, grid, mode="cubic", padding="reflection"),
        ops.grid_sample(x, grid, mode="nearest"),
        ops.grid_sample(x, grid, elements=True),
    )
    unit = function([x, grid, other], tuple_(results))
    executable = inlaid.compile(unit, [f"x86:threads={1 + channels % 2},cpu={cpu}"])
    rng = np.random.default_rng(0)
    for n, _, h, w, r in (*SIZES, (0, 0, 5, 7, 4)):
        places = rng.uniform(-1.3, 1.3, (n, r, 5, 2)).astype(np.float32)
        feeds = [rng.standard_normal(shape).astype(np.float32) for shape in ((n, channels, h, w), (n, channels, r, 5))]
        check(unit, executable, [feeds[0], places, feeds[1]])


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2)])
def test_deformed_convolutions(cpu: str, groups: int, offset_groups: int) -> None:
    """At output positions that only the run knows, with and without a mask."""
    x, mask = var("x", TensorType((N, 32, H, W), "float32")), var("mask", TensorType((N, 9 * offset_groups, H, W), "float32"))
    offset = var("offset", TensorType((N, 18 * offset_groups, H, W), "float32"))
    weights = constant(np.random.default_rng(1).standard_normal((16, 32 // groups, 3, 3)).astype(np.float32) / 16)
    attrs = {"pads": (1,) * 4, "groups": groups, "offset_groups": offset_groups}
    results = (ops.deform_conv(x, weights, offset, **attrs), ops.relu(ops.deform_conv(x, weights, offset, mask, **attrs)))
    unit = function([x, offset, mask], tuple_(results))
    executable = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"])
    rng = np.random.default_rng(0)
    for n, _, h, w, _ in (*SIZES, (0, 0, 5, 7, 4)):
        shapes = ((n, channels, h, w) for channels in (32, 18 * offset_groups, 9 * offset_groups))
        check(unit, executable, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])


def test_samples_are_read_by_vectors_of_channels() -> None:
    """Of channels of symbolic images too, as places and weights are the same for all."""
    x, grid = var("x", TensorType((N, 32, H, W), "float32")), var("grid", TensorType((N, R, 28, 2), "float32"))
    executable = inlaid.compile(function([x, grid], ops.grid_sample(x, grid)), ["x86:threads=1"])
    kernels = [kernel.name for artifact in executable.package.artifacts for kernel in artifact.kernels]
    assert kernels.count("relayout") == 2


@pytest.mark.parametrize("cpu", CPUS)
def test_a_product_of_broadcast_matrices_is_no_sample(cpu: str) -> None:
    """Symbolic sizes choose the matrix, as data would, and there may be no taps: no factors."""
    depth, other_batch = SizeVar("k"), SizeVar("m")
    a, b = var("a", TensorType((N, 2, 3, depth), "float64")), var("b", TensorType((other_batch, 2, depth, 5), "float64"))
    unit = function([a, b], tuple_([ops.matmul(a, b)]))
    executable = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"])
    rng = np.random.default_rng(4)
    for n, m, k in ((1, 4, 7), (4, 1, 2), (3, 3, 1), (2, 1, 0)):
        check(unit, executable, [rng.normal(size=(n, 2, 3, k)), rng.normal(size=(m, 2, k, 5))])
