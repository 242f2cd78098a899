"""Kernels without a product over images whose batch, height and width are not known, at sizes around those of tiles."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Function, constant, function, tuple_, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

N, H, W = SizeVar("n"), SizeVar("h"), SizeVar("w")
CPUS = ("native", "x86-64-v3", "x86-64-v2")
SIZES = ((1, 2, 2), (1, 5, 7), (2, 8, 8), (1, 9, 9), (0, 8, 9), (3, 16, 17), (1, 23, 40))


def check(unit: Function, cpu: str, sizes: tuple[tuple[int, int, int], ...] = SIZES, threads: int = 1, atol: float = 1e-5) -> None:
    """One package at many sizes against the interpreter of graphs, on small integers."""
    executable = inlaid.compile(unit, [f"x86:threads={threads},cpu={cpu}"])
    rng = np.random.default_rng(0)
    for n, h, w in sizes:
        extents = {N: n, H: h, W: w}
        feeds = {
            param.name: rng.integers(-4, 5, [extents.get(dim, dim) for dim in param.type.shape]).astype(np.float32)
            for param in unit.params
        }
        reference = evaluate(unit, list(feeds.values()))
        for actual, expected in zip(executable.run(feeds).values(), reference, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=atol)


def image(channels: int, name: str = "x") -> Expr:
    return var(name, TensorType((N, channels, H, W), "float32"))


def depthwise(x: Expr, size: int, stride: int, pad: int) -> Expr:
    channels = x.type.shape[1]
    weights = constant(np.random.default_rng(size).integers(-2, 3, (channels, 1, size, size)).astype(np.float32))
    return ops.conv(x, weights, strides=(stride, stride), pads=(pad,) * 4, dilations=(1, 1), groups=channels)


def pooled(x: Expr, kind: str, size: int, stride: int, pad: int) -> Expr:
    operator = ops.max_pool if kind == "max" else ops.avg_pool
    return operator(x, kernel=(size, size), strides=(stride, stride), pads=(pad,) * 4)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 2)])
def test_windows_without_padding(cpu: str, threads: int) -> None:
    """Whose extents have constants of their own."""
    x = image(32)
    results = [pooled(x, "max", 3, 2, 0), depthwise(x, 3, 1, 0), depthwise(x, 2, 1, 0)]
    sizes = tuple((n, h + 1, w + 1) for n, h, w in (*SIZES, (1, 6, 6), (1, 32, 32)))
    check(function([x], tuple_(results)), cpu, sizes, threads)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 2)])
def test_windows(cpu: str, threads: int) -> None:
    """Padded and not, of channels that fill vectors and that do not, with what may follow in the same kernel."""
    x, y = image(24), image(24, "y")
    results = [
        ops.relu(depthwise(x, 3, 1, 1)),
        ops.add(depthwise(x, 3, 1, 1), y),
        depthwise(x, 3, 2, 1),
        depthwise(x, 1, 1, 0),
        pooled(x, "max", 2, 2, 0),
        pooled(x, "max", 3, 2, 1),
        pooled(x, "average", 3, 1, 1),
    ]
    check(function([x, y], tuple_(results)), cpu, threads=threads)


@pytest.mark.parametrize("cpu", CPUS)
def test_layouts_stay_between_windows(cpu: str) -> None:
    """Element-wise kernels, concatenations and resizes between windows stay in blocks of channels."""
    x = image(32)
    a = pooled(x, "max", 3, 1, 1)
    b = depthwise(ops.concat(ops.sigmoid(a), a, axis=1), 3, 1, 1)
    c = ops.resize(b, shape=(N, 64, H * 2, W * 2), mode="nearest", coordinates="asymmetric", rounding="floor")
    check(function([x], tuple_([pooled(c, "average", 2, 2, 0), b])), cpu)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 1)])
def test_parts_of_concatenations(cpu: str, threads: int) -> None:
    """Convolutions and windows write them into the result, from which others read; one is read as it was before, too."""
    rng = np.random.default_rng(0)
    x = image(16)

    def convolved(data: Expr, outputs: int, size: int) -> Expr:
        weights = constant(rng.integers(-1, 2, (outputs, data.type.shape[1], size, size)).astype(np.float32))
        return ops.relu(ops.conv(data, weights, strides=(1, 1), pads=(size // 2,) * 4, dilations=(1, 1), groups=1))

    squeezed = convolved(x, 16, 1)
    fire = ops.concat(convolved(squeezed, 32, 1), convolved(squeezed, 16, 3), pooled(squeezed, "max", 3, 1, 1), axis=1)
    dense = ops.concat(fire, convolved(fire, 16, 1), axis=1)
    unit = function([x], tuple_([pooled(dense, "max", 2, 2, 0), convolved(squeezed, 16, 1)]))
    check(unit, f"{cpu},check=true", threads=threads, atol=1e-3)  # sums of up to 100, some by Winograd's tiles


@pytest.mark.parametrize("cpu", CPUS)
def test_resizes(cpu: str) -> None:
    """By rows and in blocks of channels, to multiples and to other sizes."""
    x = image(16)
    blocked = pooled(x, "max", 3, 1, 1)
    double, other = (N, 16, H * 2, W * 3), (N, 16, H + 3, W + 1)
    results = [ops.resize(x, shape=double, mode="nearest"), ops.resize(x, shape=other, mode="nearest")]
    results += [ops.resize(x, shape=double, mode=mode, coordinates="align_corners") for mode in ("linear", "cubic")]
    results += [pooled(ops.resize(blocked, shape=double, mode=mode), "max", 2, 2, 0) for mode in ("nearest", "linear")]
    check(function([x], tuple_(results)), cpu)


@pytest.mark.parametrize("cpu", CPUS)
def test_reductions(cpu: str) -> None:
    """Of whole images, and of rows whose length is not known."""
    x = image(16)
    mean = ops.avg_pool(x, kernel=(H, W))
    blocked = ops.avg_pool(pooled(x, "max", 3, 1, 1), kernel=(H, W))
    centered = ops.sub(x, mean)
    deviation = ops.sqrt(ops.add(ops.avg_pool(ops.mul(centered, centered), kernel=(H, W)), constant(np.float32(1))))
    check(function([x], tuple_([mean, blocked, ops.div(centered, deviation), ops.softmax(x, axis=3)])), cpu)


@pytest.mark.parametrize("cpu", CPUS)
def test_permutations(cpu: str) -> None:
    x, rgb = image(32), image(3, "y")
    results = [ops.transpose(x, perm=perm) for perm in ((0, 2, 3, 1), (1, 0, 3, 2), (3, 2, 1, 0))]
    check(function([x, rgb], tuple_([*results, ops.transpose(rgb, perm=(0, 2, 3, 1))])), cpu)


@pytest.mark.parametrize("cpu", CPUS)
def test_windows_over_broadcast_sums(cpu: str) -> None:
    """Convolutions of sums whose sizes are equal, or 1, only at run time, as those of levels of a pyramid."""
    rng = np.random.default_rng(0)
    pointwise_weights, window_weights = (constant(rng.integers(-2, 3, (16, 16, size, size)).astype(np.float32)) for size in (1, 3))
    x, other = image(16), var("other", TensorType((1, 16, SizeVar("u"), SizeVar("v")), "float32"))
    lower = ops.conv(x, window_weights, strides=(2, 2), pads=(1,) * 4)
    _, _, height, width = lower.type.shape
    larger = ops.resize(lower, shape=(N, 16, height * 2, width * 2), mode="nearest", coordinates="asymmetric", rounding="floor")
    sums = [ops.add(ops.conv(x, pointwise_weights), larger), ops.add(other, x)]
    assert sums[0].type.shape == larger.type.shape
    unit = function([x, other], tuple_([ops.relu(ops.conv(item, window_weights, pads=(1,) * 4)) for item in sums]))
    target = f"x86:threads=1,cpu={cpu}"
    executable = inlaid.compile(unit, [target])
    assert [region.generic for region in inlaid.estimate(unit, [target]).regions] == [()]
    sizes = ((1, 2, 2, 2, 2), (1, 1, 1, 1, 1), (2, 1, 8, 3, 8), (1, 16, 1, 16, 7), (2, 18, 20, 1, 20), (0, 6, 6, 6, 1))
    for n, h, w, u, v in sizes:
        feeds = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((n, 16, h, w), (1, 16, u, v))]
        outputs = executable.run({"x": feeds[0], "other": feeds[1]}).values()
        for value, expected in zip(outputs, evaluate(unit, feeds), strict=True):
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=0))


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1), ("x86-64-v2", 1)])
def test_few_output_channels(cpu: str, threads: int) -> None:
    """That fill no vectors: sums of windows row by row, strided and dilated, and pools of three channels."""
    x = image(3)
    weights = constant(np.random.default_rng(1).integers(-2, 3, (1, 3, 3, 3)).astype(np.float32))
    results = [
        ops.relu(ops.conv(x, weights, strides=(stride, stride), pads=(1,) * 4, dilations=(dilation, dilation), groups=1))
        for stride, dilation in ((1, 1), (2, 1), (1, 2), (3, 1))
    ]
    results += [pooled(x, "max", 3, 1, 1), pooled(x, "average", 2, 2, 0)]
    sizes = tuple((n, h + 3, w + 3) for n, h, w in SIZES)
    check(function([x], tuple_(results)), cpu, sizes, threads)


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("native", 2), ("x86-64-v3", 1)])
@pytest.mark.parametrize(
    ("dilations", "strides", "pads"),
    [
        ((2, 2), (1, 1), (2, 2, 2, 2)),
        ((12, 12), (1, 1), (12, 12, 12, 12)),
        ((3, 5), (1, 1), (0, 9, 6, 1)),
        ((6, 1), (2, 3), (6, 1, 6, 1)),
        ((2, 3), (2, 1), (2, 3, 2, 3)),
    ],
)
def test_dilated_windows_that_read_padding(
    dilations: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], cpu: str, threads: int
) -> None:
    """Tiles skip taps that read padding alone, at the ends of lines and of images."""
    x, weights = image(32), np.random.default_rng(1).integers(-2, 3, (48, 32, 3, 3)).astype(np.float32)
    conv = ops.conv(x, constant(weights), dilations=dilations, strides=strides, pads=pads)
    sizes = [(n, h + 12, w + 12) for n, h, w in SIZES] if pads != (12,) * 4 else [*SIZES, (2, 1, 1), (1, 28, 28), (1, 3, 30)]
    check(function([x], tuple_([ops.relu(conv)])), cpu, tuple(sizes), threads)


def test_dilated_lines_and_volumes_that_read_padding() -> None:
    random = np.random.default_rng(2)
    for rank, sizes in ((1, [(2, 1), (1, 9), (1, 40)]), (3, [(1, 1, 2, 3), (2, 4, 5, 6), (1, 3, 9, 8)])):
        free = [SizeVar(name) for name in "ndhw"[: rank + 1]]
        x = var("x", TensorType((free[0], 16, *free[1:]), "float32"))
        weights = random.integers(-2, 3, (32, 16, *(3,) * rank)).astype(np.float32)
        unit = function([x], ops.conv(x, constant(weights), dilations=(4,) * rank, pads=(4,) * 2 * rank))
        executable = inlaid.compile(unit, ["x86:threads=1,check=true"])
        for n, *extents in sizes:
            data = random.integers(-4, 5, (n, 16, *extents)).astype(np.float32)
            (actual,) = executable.run({"x": data}).values()
            np.testing.assert_array_equal(actual, evaluate(unit, [data]))
