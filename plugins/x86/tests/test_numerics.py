"""What numbers and arrays may be: NaN, infinities, denormals, signed zeros, odd sizes, unaligned and strided inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.types import TensorType
from inlaid_x86_runtime.cpu import LEVELS

Array = np.ndarray[Any, Any]

TINY, SMALL = np.float32(1e-45), np.finfo(np.float32).tiny
"""The least denormal and the least normal number."""
GREAT = np.finfo(np.float32).max
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, TINY, -TINY, SMALL / 3, -SMALL / 3, SMALL, GREAT, -GREAT, 1.0, -1.0, 0.5, 88.8, -104.0],
    np.float32,
)

CPUS = ("native", *LEVELS)

ODD = (1, 2, 3, 7, 15, 16, 17, 31, 33, 100)
"""Lengths around the widths of vectors."""


def var(name: str, shape: tuple[int, ...]) -> ir.Var:
    return ir.var(name, TensorType(shape, "float32"))


def make_module(expr: ir.Expr) -> ir.Module:
    """What computes an expression; its variables in the order of their names."""
    params = sorted((item for item in ir.post_order(expr) if isinstance(item, ir.Var)), key=lambda item: item.name)
    return ir.Module({"main": ir.function(params, expr)})


def both(expr: ir.Expr, arrays: dict[str, Array], cpu: str = "native") -> tuple[Array, Array]:
    """The answer of x86 and that of the numpy references."""
    module, target = make_module(expr), f"x86:threads=1,cpu={cpu}"
    executable = inlaid.compile(module, [target])
    assert all(region.target.startswith("x86") for region in executable.regions)
    (actual,) = executable.run(arrays).values()
    with np.errstate(all="ignore"):
        expected = evaluate(module, arrays)
    return np.asarray(actual), np.asarray(expected)


def assert_close_in_ulps(actual: Array, expected: Array, ulps: float) -> None:
    """NaN where NaN is expected, infinities and denormals as expected, the rest within so many units in the last place."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    not_nan = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isinf(actual[not_nan]), np.isinf(expected[not_nan]))
    finite = np.isfinite(expected)
    spacing = np.spacing(np.minimum(np.abs(expected[finite]), GREAT / 2)).astype(np.float64)
    error = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64)) / spacing
    assert error.size == 0 or error.max() <= ulps
    np.testing.assert_array_equal(np.sign(actual[~finite & not_nan]), np.sign(expected[~finite & not_nan]))


UNARY = {
    **dict.fromkeys(("abs", "neg", "relu", "floor", "ceil", "round", "sign", "sqrt"), 0.0),
    **dict.fromkeys(("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "sinh", "cosh", "asinh"), 4.0),
}
"""By operator, how many units in the last place it may be off."""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_on_special_values(name: str, cpu: str) -> None:
    array = np.tile(SPECIAL, 3)[:47]  # three vectors, of which the last is not whole
    actual, expected = both(ops.TABLE[name](var("x", array.shape)), {"x": array}, cpu)
    assert_close_in_ulps(actual, expected, UNARY[name])


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
def test_binary_operators_on_special_values(name: str, cpu: str) -> None:
    x, y = (np.ascontiguousarray(each) for each in np.broadcast_arrays(SPECIAL[:, None], SPECIAL[None]))
    actual, expected = both(ops.TABLE[name](var("x", x.shape), var("y", y.shape)), {"x": x, "y": y}, cpu)
    assert_close_in_ulps(actual, expected, 4.0 if name == "pow" else 0.0)
    if name in ("add", "sub", "mul"):
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", ["less", "less_equal", "equal"])
def test_comparisons_of_special_values(name: str) -> None:
    x, y = (np.ascontiguousarray(each) for each in np.broadcast_arrays(SPECIAL[:, None], SPECIAL[None]))
    np.testing.assert_array_equal(*both(ops.TABLE[name](var("x", x.shape), var("y", y.shape)), {"x": x, "y": y}))


@pytest.mark.parametrize("length", ODD)
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min", "softmax", "log_softmax", "argmax", "cumsum"])
def test_each_special_value_stays_in_its_row(name: str, length: int) -> None:
    """A row for each special value, which stands somewhere among ordinary numbers; rows of ordinary numbers around."""
    rng = np.random.default_rng(length)
    array = rng.uniform(-2, 2, (2 * len(SPECIAL), length)).astype(np.float32)
    array[np.arange(len(SPECIAL)) * 2, rng.integers(0, length, len(SPECIAL))] = SPECIAL
    x = var("x", array.shape)
    operator = ops.TABLE[name]
    expr = operator(x, axes=(1,), keepdims=False) if name.startswith("reduce") else operator(x, axis=1)
    actual, expected = both(expr, {"x": array})
    if name == "argmax":
        np.testing.assert_array_equal(actual, expected)
        return
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * 4 * length)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (3, 5, 7), (17, 33, 15), (31, 16, 65), (1, 100, 33), (40, 7, 1)])
def test_special_values_in_products_stay_in_their_rows(rows: int, depth: int, columns: int) -> None:
    """Nothing of the padding of packed weights gets into a result, however infinite what it is multiplied with."""
    rng = np.random.default_rng(0)
    a = rng.uniform(0.5, 1, (rows, depth)).astype(np.float32)
    b = rng.uniform(0.5, 1, (depth, columns)).astype(np.float32)
    for row, value in enumerate((np.inf, np.nan, TINY, -np.inf)[:rows]):
        a[row, rng.integers(0, depth)] = value
    for right in (var("b", b.shape), ir.constant(b)):
        arrays = {"a": a} | ({"b": b} if isinstance(right, ir.Var) else {})
        actual, expected = both(ops.matmul(var("a", a.shape), right), arrays)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("channels", [(1, 1, 1), (3, 5, 7), (16, 17, 15), (5, 33, 3)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_infinities_pass_through_padded_channels(channels: tuple[int, int, int], kernel: int) -> None:
    """Two convolutions, one after the other, with channels that fill no block: what stands in the rest of a block must not turn an
    infinity into NaN, and pixels that an infinity does not reach stay finite."""
    rng = np.random.default_rng(0)
    first, middle, last = channels
    image = rng.uniform(0.5, 1, (1, first, 9, 13)).astype(np.float32)
    image[0, -1, 0, 0] = np.inf
    x = var("x", image.shape)
    y = _conv(x, rng, first, middle, kernel)
    z = _conv(ops.relu(ops.add(y, ir.constant(np.full((middle, 1, 1), 0.5, np.float32)))), rng, middle, last, kernel)
    actual, expected = both(z, {"x": image})
    assert np.isinf(expected[0, :, 0, 0]).all() and np.isfinite(expected[0, :, -1, -1]).all()
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def _conv(x: ir.Expr, rng: np.random.Generator, inputs: int, outputs: int, kernel: int) -> ir.Expr:
    weight = rng.uniform(0.5, 1, (outputs, inputs, kernel, kernel)).astype(np.float32)
    return ops.conv(x, ir.constant(weight), strides=(1, 1), pads=(kernel // 2,) * 4, dilations=(1, 1), groups=1)


@pytest.mark.parametrize("channels", [1, 5, 16, 19])
def test_the_greatest_of_negative_infinities(channels: int) -> None:
    """Max pooling pads with what is less than everything: where all is -inf, so is the result."""
    image = np.full((1, channels, 6, 5), -np.inf, np.float32)
    image[0, 0, 3, 3] = 7
    pool = ops.max_pool(var("x", image.shape), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1))
    np.testing.assert_array_equal(*both(pool, {"x": image}))


@pytest.mark.parametrize("length", ODD)
def test_denormals_are_not_flushed(length: int) -> None:
    """Through a product, an activation and a sum, in vectors and in what is left over."""
    array = np.full((length,), SMALL / 4, np.float32)
    half = ir.constant(np.float32(0.5))
    x = var("x", array.shape)
    actual, expected = both(ops.reduce_sum(ops.relu(ops.mul(x, half)), axes=(0,), keepdims=False), {"x": array})
    assert 0 < expected < SMALL * length
    np.testing.assert_array_equal(actual, expected)


def strided(array: Array) -> dict[str, Array]:
    """The same numbers in memory that is not row-major, or not aligned."""
    bytes_ = np.empty(array.nbytes + 64, np.uint8)
    offset = 4 + (-bytes_.ctypes.data) % 64
    unaligned = bytes_[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    locked = array.copy()
    locked.flags.writeable = False
    return {
        "unaligned": unaligned,
        "every other": wide[..., ::2],
        "backwards": array[::-1].copy()[::-1],
        "column-major": np.asfortranarray(array),
        "read-only": locked,
        "other byte order": array.astype(array.dtype.newbyteorder()),
    }


@pytest.mark.parametrize("shape", [(17,), (5, 7), (2, 3, 4, 33)])
def test_inputs_need_not_be_contiguous_or_aligned(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(2))
    executable = inlaid.compile(make_module(ops.tanh(ops.add(var("x", shape), var("y", shape)))), ["x86:threads=1"])
    (expected,) = executable.run({"x": x, "y": y}).values()
    for name, array in strided(x).items():
        original = array.copy()
        (actual,) = executable.run({"x": array, "y": y}).values()
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        np.testing.assert_array_equal(array, original, err_msg=name)
    spread = np.broadcast_to(x.reshape(-1)[:1], shape)
    (actual,) = executable.run({"x": spread, "y": y}).values()
    np.testing.assert_array_equal(actual, *executable.run({"x": spread.copy(), "y": y}).values())
