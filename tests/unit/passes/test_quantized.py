from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.canonicalize_quantized import narrow_integers, quantize_integers
from inlaid.passes.decompose import decompose
from inlaid.passes.fold_constants import fold_constants
from inlaid.passes.simplify import simplify
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]


def operators(expr: Expr) -> list[str]:
    return [node.callee.name for node in post_order(expr) if isinstance(node, Call) and isinstance(node.callee, Operator)]


def canonical(target: Function) -> Function:
    result = simplify(narrow_integers(fold_constants(quantize_integers(target))))
    verify(result)
    return result


def f32(value: Any) -> Expr:
    return constant(np.asarray(value, np.float32))


def dequantized(x: Expr, scale: Any, point: Any = None, axis: int = 0) -> Expr:
    dtype = x.type.dtype.numpy  # type: ignore[attr-defined]
    points = [] if point is None else [constant(np.asarray(point, dtype))]
    return ops.dequantize(x, f32(scale), *points, dtype="float32", axis=axis)


def quantized(x: Expr, scale: Any, point: Any, dtype: str = "uint8") -> Expr:
    return ops.quantize(x, f32(scale), constant(np.asarray(point, dtype)), dtype=dtype)


def close(a: Function, b: Function, inputs: list[Array], tolerance: int = 0) -> None:
    """Equal integers, but for ties that float32 sums break the other way."""
    difference = np.abs(evaluate(a, inputs).astype(int) - evaluate(b, inputs).astype(int))
    assert difference.max(initial=0) <= tolerance


RNG = np.random.default_rng(0)
WEIGHTS = RNG.integers(-100, 100, (4, 2, 3, 3)).astype(np.int8)


@pytest.mark.parametrize("bound", [None, "relu", "clip"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("point", [0, 7])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_between_quantizations(bound: str | None, per_channel: bool, point: int, bias: bool) -> None:
    x = var("x", TensorType((1, 3 - 1, 6, 6), "uint8"))
    w_scale = np.asarray([0.5, 0.25, 0.125, 1]) if per_channel else np.asarray(0.5)
    w = dequantized(constant(WEIGHTS), w_scale, np.zeros_like(w_scale))
    y: Expr = ops.conv(dequantized(x, 0.25, point), w, pads=(1, 0, 1, 2), strides=(1, 2))
    if bias:
        b = constant(RNG.integers(-2000, 2000, 4).astype(np.int32))
        y = ops.add(y, ops.reshape(dequantized(b, 0.25 * w_scale), shape=(4, 1, 1)))
    y = {"relu": ops.relu, "clip": lambda v: ops.clip(v, minimum=-3.0, maximum=6.0)}.get(str(bound), lambda v: v)(y)
    target = function([x], quantized(y, 8.0, 12))
    result = canonical(target)
    names = operators(result)
    assert "dequantize" not in names and "cast" not in names and "quantize" not in names
    assert names.count("conv") == names.count("requantize") == 1
    (conv,) = (node for node in post_order(result) if isinstance(node, Call) and node.callee is ops.conv)
    assert [arg.type.dtype.name for arg in conv.args] == ["uint8", "int8"]  # type: ignore[attr-defined]
    # The scales are powers of two: the float32 sums are exact, and so is the comparison.
    data = RNG.integers(0, 255, (1, 2, 6, 6)).astype(np.uint8)
    close(target, result, [data])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_between_quantizations(per_channel: bool, groups: int) -> None:
    x = var("x", TensorType((1, 4, 5, 6), "uint8"))
    stored = RNG.integers(-100, 100, (4, 3, 4, 4)).astype(np.int8)
    w_scale = np.asarray([0.5, 0.25, 1]) if per_channel else np.asarray(0.5)
    w = dequantized(constant(stored), w_scale, np.zeros_like(w_scale), axis=1)
    y: Expr = ops.conv_transpose(dequantized(x, 0.25, 7), w, strides=(2, 2), pads=(1, 1, 1, 1), groups=groups)
    if groups == 1:
        b = constant(RNG.integers(-2000, 2000, 3).astype(np.int32))
        y = ops.relu(ops.add(y, ops.reshape(dequantized(b, 0.25 * w_scale), shape=(3, 1, 1))))
    target = function([x], quantized(y, 16.0, 12))
    result = canonical(decompose(quantize_integers(target), lambda call: call.callee is not ops.conv_transpose))
    convolutions = [node for node in post_order(result) if isinstance(node, Call) and node.callee is ops.conv]
    kinds = [arg.type.dtype.name for conv in convolutions for arg in conv.args]  # type: ignore[attr-defined]
    if groups > 1 and per_channel:  # scales would repeat in each group
        assert set(kinds) == {"float32"}
    else:
        assert kinds == ["uint8", "int8"] * len(convolutions) and "dequantize" not in operators(result)
    close(target, result, [RNG.integers(0, 255, (1, 4, 5, 6)).astype(np.uint8)])


@pytest.mark.parametrize("points", [(None, None), (117, None), (None, 5), (117, 5)])
@pytest.mark.parametrize(("kernel", "groups"), [(4, 1), (3, 1), (3, 2)])
def test_computed_weights_of_a_transposed_convolution_move_as_bytes(
    points: tuple[int | None, int | None], kernel: int, groups: int
) -> None:
    """A kernel of 3 has phases of different numbers of taps, which each take some of the weights."""
    shape, weight_shape = (2, 4, 5, 6), (4, 3, kernel, kernel)
    x, w = var("x", TensorType(shape, "uint8")), var("w", TensorType(weight_shape, "int8"))
    left, right = (
        operand if point is None else ops.sub(operand, constant(np.int32(point)))
        for operand, point in zip((ops.cast(x, dtype="int32"), ops.cast(w, dtype="int32")), points, strict=True)
    )
    target = function([x, w], ops.conv_transpose(left, right, strides=(2, 2), pads=(1, 1, 1, 1), groups=groups, out_dtype="int32"))
    result = canonical(decompose(target, lambda call: call.callee is not ops.conv_transpose))
    moves = [
        node for node in post_order(result) if isinstance(node, Call) and node.callee in (ops.take, ops.transpose, ops.reshape)
    ]
    sources = [
        node for node in moves if any(part is w for part in post_order(node)) and all(part is not x for part in post_order(node))
    ]
    assert sources and {node.type.dtype.name for node in sources} == {"int8"}  # type: ignore[union-attr]
    if points == (None, None):
        convolutions = [node for node in post_order(result) if isinstance(node, Call) and node.callee is ops.conv]
        assert {tuple(arg.type.dtype.name for arg in conv.args) for conv in convolutions} == {("uint8", "int8")}  # type: ignore[attr-defined]
    close(target, result, [RNG.integers(0, 256, shape).astype(np.uint8), RNG.integers(-128, 128, weight_shape).astype(np.int8)])


def test_a_matrix_product_with_zero_points_everywhere() -> None:
    a = var("a", TensorType(("m", 5), "uint8"))
    stored = constant(RNG.integers(0, 255, (5, 3)).astype(np.uint8))
    b = dequantized(stored, [0.5, 1, 2], [128, 100, 120], axis=1)
    target = function([a], quantized(ops.matmul(dequantized(a, 0.5, 3), b), 16.0, -4, "int8"))
    result = canonical(target)
    assert operators(result) == ["matmul", "add", "requantize"]
    close(target, result, [RNG.integers(0, 255, (4, 5)).astype(np.uint8)])


def test_transposed_weights_stay_stored() -> None:
    a = var("a", TensorType((2, 5), "int8"))
    stored = constant(RNG.integers(-100, 100, (3, 5)).astype(np.int8))
    b = ops.transpose(dequantized(stored, [0.5, 1, 2], axis=0), perm=(1, 0))
    target = function([a], quantized(ops.matmul(dequantized(a, 0.5), b), 16.0, 0, "int8"))
    result = canonical(target)
    assert operators(result) == ["matmul", "requantize"]
    close(target, result, [RNG.integers(-128, 127, (2, 5)).astype(np.int8)])


def test_the_form_that_integer_operators_are_imported_in() -> None:
    x = var("x", TensorType((1, 2, 5, 5), "uint8"))
    wide = ops.sub(ops.cast(x, dtype="int32"), constant(np.int32(9)))
    centered = ops.sub(ops.cast(constant(WEIGHTS), dtype="int32"), constant(np.int32(3)))
    bias = constant(np.arange(4, dtype=np.int32).reshape(4, 1, 1))
    target = function([x], ops.add(ops.conv(wide, centered, pads=(1, 1, 1, 1)), bias))
    result = canonical(target)
    assert operators(result) == ["pad", "conv", "add"]
    data = RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8)
    np.testing.assert_array_equal(evaluate(result, [data]), evaluate(target, [data]))


def test_moves_happen_on_stored_values() -> None:
    x = var("x", TensorType((1, 2, 4, 4), "uint8"))
    real = dequantized(x, 0.5, 3)
    pooled = ops.max_pool(real, kernel=(2, 2), strides=(2, 2))
    target = function([x], quantized(ops.reshape(dequantized(quantized(pooled, 0.5, 3), 0.5, 3), shape=(1, 8)), 0.5, 3))
    result = canonical(target)
    assert operators(result) == ["max_pool", "reshape"]
    close(target, result, [RNG.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8)])
    bounded = function([x], quantized(ops.relu(real), 0.5, 3))
    assert operators(canonical(bounded)) == ["maximum"]
    close(bounded, canonical(bounded), [RNG.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8)])


@pytest.mark.parametrize("change", ["scale", "point", "dtype", "unknown", "negative"])
def test_moves_between_different_quantizations_stay(change: str) -> None:
    x = var("x", TensorType((2, 3), "uint8"))
    scale = var("s", TensorType((), "float32"))
    if change == "unknown":
        point = constant(np.uint8(3))
        real = ops.dequantize(x, scale, point, dtype="float32")
        stored = ops.quantize(ops.relu(real), scale, point, dtype="uint8")
    else:
        first = -0.5 if change == "negative" else 0.5
        real = dequantized(x, first, 3)
        second = (0.25, 3, "uint8") if change == "scale" else (0.5, 4, "uint8") if change == "point" else (first, 3, "uint8")
        stored = quantized(ops.relu(real), *((0.5, 3, "int8") if change == "dtype" else second))
    target = function([x, scale], stored)
    assert quantize_integers(target) is target


def test_a_product_that_is_read_as_floats_too_stays() -> None:
    x = var("x", TensorType((1, 2, 6, 6), "uint8"))
    y = ops.conv(dequantized(x, 0.25, 3), dequantized(constant(WEIGHTS), 0.5, 0))
    target = function([x], tuple_([quantized(y, 8.0, 0), y]))
    assert quantize_integers(target) is target
    unfit = function([x], quantized(ops.conv(dequantized(x, 0.25, 3), dequantized(constant(WEIGHTS), [1, 2], axis=1)), 8.0, 0))
    assert quantize_integers(unfit) is unfit


def test_wide_weights_stay_wide() -> None:
    x = var("x", TensorType((2, 2), "int32"))
    w = constant(np.asarray([[100_000, 1], [2, 3]], np.int32))
    target = function([x], ops.matmul(x, w))
    assert narrow_integers(target) is target
    (weights,) = (
        n for n in post_order(narrow_integers(function([x], ops.matmul(x, constant(w.data // 500))))) if isinstance(n, Constant)
    )
    assert weights.data.dtype == np.uint8


@pytest.mark.parametrize("point", [0, 7])
def test_a_mean_over_an_image(point: int) -> None:
    x = var("x", TensorType((2, 3, 4, 5), "uint8"))
    pooled = ops.avg_pool(dequantized(x, 0.1, point), kernel=(4, 5))
    target = function([x], quantized(pooled, 0.05, 3))
    result = canonical(target)
    assert "avg_pool" not in operators(result)
    assert operators(result).count("requantize") == 1
    close(target, result, [RNG.integers(0, 256, (2, 3, 4, 5)).astype(np.uint8)], 1)


def test_other_means_stay_in_float() -> None:
    x = var("x", TensorType((2, 3, 4, 5), "uint8"))
    for attrs in ({"kernel": (2, 5)}, {"kernel": (4, 5), "pads": (1, 0, 0, 0)}):
        target = function([x], quantized(ops.avg_pool(dequantized(x, 0.1, 3), **attrs), 0.05, 3))
        assert "avg_pool" in operators(canonical(target))


def test_what_is_moved_are_integers() -> None:
    """A concatenation of branches of other scales stores each branch in its own."""
    x, y = (var(name, TensorType((2, 3), "uint8")) for name in "xy")
    joined = ops.concat(dequantized(x, 0.1, 3), dequantized(y, 0.2, 5), axis=1)
    target = function([x, y], quantized(ops.reshape(joined, shape=(12,)), 0.1, 3))
    result = canonical(target)
    assert operators(result).count("quantize") == 1, "x has that scale already"
    moved = [node for node in post_order(result) if isinstance(node, Call) and node.callee in (ops.concat, ops.reshape)]
    assert all(arg.type.dtype.name == "uint8" for node in moved for arg in node.args)  # type: ignore[attr-defined]
    close(target, result, [RNG.integers(0, 256, (2, 3)).astype(np.uint8) for _ in range(2)])


def test_what_others_read_is_moved_once() -> None:
    x = var("x", TensorType((2, 3), "float32"))
    moved = ops.transpose(x, perm=(1, 0))
    result = canonical(function([x], tuple_([moved, quantized(moved, 0.1, 3)])))
    assert operators(result) == ["transpose", "quantize"]


@pytest.mark.parametrize(("left", "right"), [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("points", [(0, 0), (7, 0), (0, 9), (7, 9)])
def test_a_product_of_two_that_are_computed(left: str, right: str, points: tuple[int, int]) -> None:
    a, b = var("a", TensorType((2, 5, 4), left)), var("b", TensorType((4, 3), right))
    product = ops.matmul(dequantized(a, 0.1, points[0]), dequantized(b, 0.2, points[1]))
    target = function([a, b], quantized(product, 0.5, 3))
    result = canonical(target)
    (matmul,) = (node for node in post_order(result) if isinstance(node, Call) and node.callee is ops.matmul)
    assert [arg.type.dtype.name for arg in matmul.args] == [left, "int8"]  # type: ignore[attr-defined]
    arrays = [
        RNG.integers(*(0, 256) if dtype == "uint8" else (-128, 128), shape).astype(dtype)
        for dtype, shape in ((left, (2, 5, 4)), (right, (4, 3)))
    ]
    close(target, result, arrays, 1)
