"""Products of narrow numbers as x86 computes them: exact for integers, whatever their signs and the instruction set."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

CPUS = ("native", "x86-64-v4", "x86-64-v3", "x86-64-v2")
BYTES = ("uint8", "int8")
WAYS = [
    *((cpu, constant, 1) for cpu in CPUS for constant in (True, False)),
    *((cpu, False, 2) for cpu in ("native", "x86-64-v3")),
]
"""Instruction sets, whether the right operand is constant, and threads, which share tiles alike whatever computes one."""


def run(function, feeds, cpu, threads=1):
    executable = inlaid.compile(function, targets=[f"x86:threads={threads},cpu={cpu}"])
    (result,) = executable.run(feeds).values()
    return result


def product(a, b, total, constant, cpu, threads=1):
    x = graph.var("x", TensorType(a.shape, a.dtype.name))
    w = graph.constant(b, b.dtype.name) if constant else graph.var("w", TensorType(b.shape, b.dtype.name))
    params = [x] if constant else [x, w]
    feeds = {"x": a} if constant else {"x": a, "w": b}
    return run(graph.function(params, ops.matmul(x, w, out_dtype=total)), feeds, cpu, threads)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("a", BYTES)
@pytest.mark.parametrize("b", BYTES)
def test_integer_products_are_exact(cpu, a, b):
    """At the ends of the range too: sums of 16-bit pairs would saturate there with another instruction."""
    generator = np.random.default_rng(1)
    for m, k, n, constant in ((17, 64, 48, True), (5, 66, 40, False), (3, 7, 13, True), (1, 128, 32, True)):
        low, high = np.iinfo(a), np.iinfo(b)
        x = generator.choice([low.min, low.max, 1], (m, k)).astype(a)
        w = generator.choice([high.min, high.max, 1], (k, n)).astype(b)
        actual = product(x, w, "int32", constant, cpu)
        assert np.array_equal(actual, x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("cpu", CPUS)
def test_bfloat16_products_are_close_to_exact(cpu):
    generator = np.random.default_rng(2)
    a, b = (generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((17, 96), (96, 48)))
    actual = product(a, b, "float32", True, cpu)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-5


@pytest.mark.parametrize(
    ("a", "b", "total"), [("bfloat16", "bfloat16", "float32"), ("uint8", "int8", "int32"), ("int8", "int8", "int32")]
)
@pytest.mark.parametrize(("cpu", "constant", "threads"), WAYS)
def test_products_of_any_size_and_of_many_matrices(cpu, a, b, total, constant, threads):
    """Columns that fill no vectors, sums of an odd length, rows that fill no tile, and a right operand for every left one."""
    generator = np.random.default_rng(3)

    def random_operand(shape, name):
        if name == "bfloat16":
            return generator.standard_normal(shape).astype(ml_dtypes.bfloat16)
        return generator.integers(np.iinfo(name).min, np.iinfo(name).max + 1, shape).astype(name)

    shapes = [
        ((19, 96), (96, 53)),
        ((13, 7), (7, 33)),
        ((3, 17, 13), (3, 13, 37)),
        ((2, 3, 5, 64), (2, 3, 64, 29)),
        ((1, 70), (70, 97)),
    ]
    for left, right in shapes:
        x, w = random_operand(left, a), random_operand(right, b)
        actual = product(x, w, total, constant, cpu, threads)
        expected = x.astype(np.float64) @ w.astype(np.float64)
        assert np.abs(actual - expected).max() <= (0 if total == "int32" else 1e-4 * np.abs(expected).max() + 1e-5)


@pytest.mark.parametrize(
    ("a", "b", "total"), [("bfloat16", "bfloat16", "float32"), ("uint8", "int8", "int32"), ("int8", "int8", "int32")]
)
@pytest.mark.parametrize(("cpu", "constant", "threads"), WAYS)
def test_products_of_symbolic_sizes(cpu, a, b, total, constant, threads):
    """A package for any batch and number of rows; of two computed operands, for any columns and depth as well."""
    generator = np.random.default_rng(3)
    batch, rows, columns, depth = (SizeVar(name, 1) for name in ("batch", "rows", "columns", "depth"))

    def random_operand(shape, name):
        if name == "bfloat16":
            return generator.standard_normal(shape).astype(ml_dtypes.bfloat16)
        return generator.integers(np.iinfo(name).min, np.iinfo(name).max + 1, shape).astype(name)

    w = graph.constant(random_operand((66, 53), b), b) if constant else graph.var("w", TensorType((batch, depth, columns), b))
    x = graph.var("x", TensorType((batch, rows, 66 if constant else depth), a))
    y = ops.matmul(x, w, out_dtype=total)
    function = graph.function([x] if constant else [x, w], ops.add(y, y))
    executable = inlaid.compile(function, targets=[f"x86:threads={threads},cpu={cpu}"])
    for n, m, p, k in ((1, 1, 1, 1), (2, 17, 16, 64), (1, 64, 97, 13), (3, 5, 33, 130)):
        left = random_operand((n, m, 66 if constant else k), a)
        right = w.data if constant else random_operand((n, k, p), b)
        (actual,) = executable.run({"x": left} if constant else {"x": left, "w": right}).values()
        expected = 2 * (left.astype(np.float64) @ right.astype(np.float64))
        assert np.abs(actual - expected).max() <= (0 if total == "int32" else 1e-4 * np.abs(expected).max() + 1e-5)


@pytest.mark.parametrize("constant", [True, False])
def test_rows_do_not_touch_each_other(constant):
    """Sums of an odd length end in a group that holds zeros, not the next row: infinities stay where they are."""
    a, b = np.ones((5, 7), ml_dtypes.bfloat16), np.ones((7, 33), ml_dtypes.bfloat16)
    a[1, 0], a[3, 0] = np.inf, np.nan
    if not constant:
        b[0, 4] = np.inf
    actual = product(a, b, "float32", constant, "native")
    with np.errstate(invalid="ignore"):  # some builds of numpy say so, others do not
        expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("pair", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize(("channels", "stride", "pad"), [(32, 1, 1), (32, 2, 0), (3, 2, 1), (24, 1, 0), (13, 1, 1)])
def test_integer_convolutions_are_exact(cpu, pair, channels, stride, pad):
    """With requantization fused, as quantized models have it; padding holds the zero point, here 3."""
    check_convolution((2, channels, 7, 9), [(2, 7, 9)], pair, 3, stride, pad, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("channels", "size", "stride", "threads"), [(32, 3, 1, 1), (16, 1, 1, 2), (3, 3, 2, 2)])
def test_integer_convolutions_of_any_image_are_exact(cpu, channels, size, stride, threads):
    shape = (SizeVar("batch"), channels, SizeVar("height", 1), SizeVar("width", 1))
    images = [(1, 1, 1), (2, 7, 9), (0, 5, 5), (1, 16, 33), (3, 2, 40)]
    check_convolution(shape, images, BYTES, size, stride, size // 2, cpu, threads)


def check_convolution(shape, images, pair, size, stride, pad, cpu, threads=1):
    """One package of a convolution for all images: their number, height and width."""
    generator = np.random.default_rng(4)
    a, b = pair
    weights = generator.integers(np.iinfo(b).min, np.iinfo(b).max + 1, (48, shape[1], size, size)).astype(b)
    x = graph.var("x", TensorType(shape, a))
    padded = ops.pad(x, graph.constant(3, a), pads=(0, 0, pad, pad, 0, 0, pad, pad)) if pad else x
    total = ops.conv(padded, graph.constant(weights, b), strides=(stride, stride), pads=(), dilations=(1, 1), out_dtype="int32")
    scale = generator.uniform(1e-4, 2e-4, 48).astype(np.float32)
    y = ops.requantize(total, graph.constant(scale, "float32"), graph.constant(5, "uint8"), dtype="uint8", axis=1)
    executable = inlaid.compile(graph.function([x], y), targets=[f"x86:threads={threads},cpu={cpu}"])
    for batch, *image in images:
        data = generator.integers(np.iinfo(a).min, np.iinfo(a).max + 1, (batch, shape[1], *image)).astype(a)
        (actual,) = executable.run({"x": data}).values()
        wide = np.pad(data, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=3).astype(np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[:, :, ::stride, ::stride]
        exact = np.einsum("nchwyx,ocyx->nohw", windows, weights.astype(np.int64))
        real = np.rint(exact.astype(np.float32) * scale[:, None, None]) + np.float32(5)
        assert np.array_equal(actual, np.clip(real, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("cpu", CPUS)
def test_what_has_no_elements_is_computed_all_the_same(cpu):
    assert product(np.zeros((0, 5), np.int8), np.zeros((5, 48), np.int8), "int32", True, cpu).shape == (0, 48)
    x, w = graph.var("x", TensorType((0, 16, 9, 7), "int8")), graph.constant(np.ones((32, 16, 3, 3), np.int8))
    actual = run(graph.function([x], ops.conv(x, w, pads=(1, 1, 0, 0))), {"x": np.zeros((0, 16, 9, 7), np.int8)}, cpu)
    assert (actual.shape, actual.dtype) == ((0, 32, 8, 6), np.int32)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
def test_data_that_are_their_own_weights(cpu):
    data = np.random.default_rng(8).integers(-128, 128, (8, 13, 2, 5)).astype(np.int8)
    x = graph.var("x", TensorType(data.shape, "int8"))
    actual = run(graph.function([x], ops.cast(ops.conv(x, x, out_dtype="int32"), dtype="int8")), {"x": data}, cpu)
    flat = data.reshape(8, -1).astype(np.int32)
    assert np.array_equal(actual.reshape(8, 8), (flat @ flat.T).astype(np.int8))
