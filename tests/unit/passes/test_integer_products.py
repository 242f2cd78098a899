from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.passes.canonicalize_quantized import quantize_integers
from inlaid.passes.integer_products import integer_products
from inlaid_runtime.arith import Var
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
PRODUCTS = (ops.conv, ops.conv_transpose, ops.matmul)
SHAPES = {
    "matmul": [((3, 5), (5, 4)), ((5,), (5, 4)), ((3, 5), (5,)), ((2, 3, 5), (5, 4)), ((2, 3, 5), (2, 5, 4)), ((3, 5), (2, 5, 4))],
    "conv": [((2, 4, 6, 5), (6, 4, 3, 2)), ((2, 4, 6, 5), (6, 2, 3, 3)), ((2, 4, 7), (3, 4, 3))],
    "conv_transpose": [((2, 4, 3, 3), (4, 3, 2, 2)), ((2, 4, 3, 3), (4, 2, 2, 2))],
}


def rewritten(target: Function) -> Function:
    result = integer_products(target, lambda product, integers: True)
    verify(result)
    return result


def products(target: Function) -> list[Call]:
    return [expr for expr in post_order(target) if isinstance(expr, Call) and expr.callee in PRODUCTS]


def is_integer(target: Function) -> bool:
    return all(expr.type.dtype.name == "int32" for expr in products(target))  # type: ignore[union-attr]


def multiply(name: str, x: Expr, w: Expr) -> Call:
    if name == "matmul":
        return ops.matmul(x, w)
    groups = x.type.shape[1] // w.type.shape[1] if name == "conv" else 1  # type: ignore[union-attr]
    rank = len(w.type.shape) - 2  # type: ignore[union-attr]
    pads = {"pads": (1,) * 2 * rank} if name == "conv" else {}
    return getattr(ops, name)(x, w, groups=groups, **pads)  # type: ignore[no-any-return]


class Stored:
    """Random integers with a scale and a zero point along an axis, as an expression and in float64."""

    def __init__(self, data: st.DataObject, shape: tuple[int, ...], axis: int | None, is_constant: bool, name: str) -> None:
        random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        dtype = np.dtype(data.draw(st.sampled_from(["int8", "uint8"])))
        limits = np.iinfo(dtype)
        count = () if axis is None else (shape[axis],)
        self.values = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        self.scale = np.asarray(random.uniform(0.001, 2, count), np.float32)
        point = random.integers(limits.min, limits.max, count, dtype, endpoint=True) if data.draw(st.booleans()) else None
        self.var = var(name, TensorType(shape, dtype.name))
        points = [] if point is None else [constant(np.asarray(point, dtype))]
        self.expr = ops.dequantize(
            constant(self.values) if is_constant else self.var, constant(self.scale), *points, dtype="float32", axis=axis or 0
        )
        along = () if axis is None else tuple(-1 if index == axis else 1 for index in range(len(shape)))
        shift = 0 if point is None else point.astype(np.float64).reshape(along)
        self.real = (self.values.astype(np.float64) - shift) * self.scale.astype(np.float64).reshape(along)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_product_of_integers_is_exact_before_scaling(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SHAPES)))
    shapes = data.draw(st.sampled_from(SHAPES[name]))
    axes = [data.draw(st.none() | st.integers(0, len(shape) - 1)) for shape in shapes]
    constants = data.draw(st.tuples(st.booleans(), st.booleans()))
    x, w = (Stored(data, *item) for item in zip(shapes, axes, constants, "xw", strict=True))
    product = multiply(name, x.expr, w.expr)
    result = rewritten(function([x.var, w.var], product))
    real = [var(key, TensorType(shape, "float64")) for key, shape in zip("xw", shapes, strict=True)]
    exact = evaluate(function(real, multiply(name, *real)), [x.real, w.real])
    magnitudes = evaluate(function(real, multiply(name, *real)), [np.abs(x.real), np.abs(w.real)])
    value = evaluate(result, [x.values, w.values])
    if is_integer(result):
        assert np.all(np.abs(value - exact) <= magnitudes * 2.0**-22)
    else:
        assert not _scales_leave_the_sum(name, shapes, axes)


def _scales_leave_the_sum(name: str, shapes: Any, axes: list[int | None]) -> bool:
    """An independent statement of the condition: perturb the scale along the axis; the sum of one output has one scale."""
    rank = len(shapes[1])
    if name == "matmul":
        summed = (len(shapes[0]) - 1, max(rank - 2, 0))
        return all(axis is None or axis != at for axis, at in zip(axes, summed, strict=True))
    if name == "conv":
        return axes[0] in (None, 0) and axes[1] in (None, 0)
    return axes[0] in (None, 0) and axes[1] in (None, 1)


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf, np.nan, 1e-30])
def test_a_scale_without_a_normal_product_stays_in_floats(scale: float) -> None:
    x, w = var("x", TensorType((2, 3), "int8")), var("w", TensorType((3, 4), "int8"))
    scales = [constant(np.float32(item)) for item in (scale, 1e-10)]
    target = function(
        [x, w], ops.matmul(*(ops.dequantize(item, s, dtype="float32") for item, s in zip((x, w), scales, strict=True)))
    )
    assert rewritten(target) is target


@pytest.mark.parametrize(("depth", "fits"), [(33_025, True), (33_026, False)])
def test_a_sum_that_may_exceed_32_bits_stays_in_floats(depth: int, fits: bool) -> None:
    x, w = var("x", TensorType((2, depth), "uint8")), var("w", TensorType((depth, 4), "uint8"))
    one = constant(np.float32(1))
    target = function([x, w], ops.matmul(*(ops.dequantize(item, one, dtype="float32") for item in (x, w))))
    assert is_integer(rewritten(target)) == fits
    stored = function([x, w], ops.quantize(target.body, one, constant(np.uint8(0)), dtype="uint8"))
    assert is_integer(quantize_integers(stored)) == fits


def test_the_bound_of_a_sum_takes_constant_weights() -> None:
    x, weights = var("x", TensorType((2, 40_000), "uint8")), np.full((40_000, 3), 255, np.uint8)
    one = constant(np.float32(1))
    for value, fits in ((255, False), (1, True)):
        weights[:] = value
        w = ops.dequantize(constant(weights.copy()), one, dtype="float32")
        assert is_integer(rewritten(function([x], ops.matmul(ops.dequantize(x, one, dtype="float32"), w)))) == fits


def test_a_symbolic_depth_stays_in_floats() -> None:
    n = Var("n")
    x, w = var("x", TensorType((2, n), "int8")), var("w", TensorType((n, 4), "int8"))
    one = constant(np.float32(1))
    target = function([x, w], ops.matmul(*(ops.dequantize(item, one, dtype="float32") for item in (x, w))))
    assert rewritten(target) is target


def test_data_movement_moves_to_the_integers() -> None:
    x, w = var("x", TensorType((4, 3, 2), "int8")), var("w", TensorType((5, 6), "int8"))
    scale, point = constant(np.float32(0.5)), constant(np.int8(3))
    left = ops.reshape(ops.dequantize(x, scale, point, dtype="float32"), shape=(4, 6))
    right = ops.transpose(ops.dequantize(w, scale, dtype="float32"), perm=(1, 0))
    result = rewritten(function([x, w], ops.matmul(left, right)))
    assert is_integer(result)
    values = [np.arange(24, dtype=np.int8).reshape(4, 3, 2), np.arange(-15, 15, dtype=np.int8).reshape(5, 6)]
    exact = (values[0].astype(float).reshape(4, 6) - 3) @ values[1].astype(float).T / 4
    assert np.array_equal(evaluate(result, values), exact)


def test_a_target_may_decline_the_integer_form() -> None:
    x = var("x", TensorType((2, 3), "int8"))
    weights = constant(np.ones((3, 4), np.int8))
    one = constant(np.float32(1))
    target = function([x], ops.matmul(*(ops.dequantize(item, one, dtype="float32") for item in (x, weights))))
    offered: list[tuple[Call, Call]] = []

    def accepts(product: Call, integers: Call) -> bool:
        offered.append((product, integers))
        return False

    assert integer_products(target, accepts) is target
    ((product, integers),) = offered
    assert product is target.body and integers.type == TensorType((2, 4), "int32")


@pytest.mark.parametrize(("scale", "point"), [(0.5, [1, 2, 3]), ([0.5, 1, 2], 7)])
def test_a_scale_and_a_zero_point_of_different_ranks_stay_in_floats(scale: Any, point: Any) -> None:
    x = var("x", TensorType((3, 3), "int8"))
    stored = ops.dequantize(
        x, constant(np.asarray(scale, np.float32)), constant(np.asarray(point, np.int8)), dtype="float32", axis=0
    )
    w = ops.dequantize(constant(np.eye(3, dtype=np.int8)), constant(np.float32(1)), dtype="float32")
    target = function([x], ops.matmul(stored, w))
    assert rewritten(target) is target
    turned = function([x], ops.matmul(ops.transpose(stored, perm=(1, 0)), w))
    value = np.arange(9, dtype=np.int8).reshape(3, 3)
    assert np.array_equal(evaluate(quantize_integers(turned), [value]), evaluate(turned, [value]))
