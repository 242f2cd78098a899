"""Convolutions of single pixels as products: the same values, and what follows joins them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.pointwise_products import pointwise_products
from inlaid.plugins import Capabilities
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType, dtype

VECTORS = Capabilities(("float32",), vector_bits=512, peak=1e9, bandwidth=1e10)
RNG = np.random.default_rng(0)


def small(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def model(batch: Dim, groups: int, depth: int, outputs: int, image: tuple[Dim, ...], size: int = 1) -> Function:
    """Convolution, bias and activation."""
    x = var("x", TensorType((batch, groups * depth, *image), "float32"))
    weights = constant(small(groups * outputs, depth, *(size for _ in image)))
    ones = (1,) * len(image)
    body: Expr = ops.conv(x, weights, strides=ones, pads=(0,) * 2 * len(image), dilations=ones, groups=groups)
    body = ops.add(body, constant(small(1, groups * outputs, *ones)))
    return function([x], ops.relu(body))


def names(unit: Function) -> list[str]:
    return [e.callee.name for e in post_order(unit) if isinstance(e, Call) and isinstance(e.callee, Operator)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 6), st.integers(1, 37), st.sampled_from([(1, 1), (3, 5), (7, 7), (9,)]))
def test_the_same_values(batch: int, groups: int, depth: int, outputs: int, image: tuple[int, ...]) -> None:
    unit = model(batch, groups, depth, outputs, image)
    changed = pointwise_products(unit, VECTORS)
    verify(changed)
    data = small(batch, groups * depth, *image)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


@pytest.mark.parametrize("groups", [1, 4])
def test_images_of_symbolic_size(groups: int) -> None:
    batch, height, width = (SizeVar(name, 1) for name in ("batch", "height", "width"))
    unit = model(batch, groups, 30, 34, (height, width)) if groups > 1 else model(batch, 1, 6, 5, (height, width))
    changed = pointwise_products(unit, VECTORS)
    assert "matmul" in names(changed)
    verify(changed)
    for n, *image in ((1, 1, 1), (3, 7, 5)):
        data = small(n, unit.params[0].type.shape[1], *image)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


def test_what_follows_joins_the_product() -> None:
    assert names(pointwise_products(model(1, 4, 30, 34, (7, 7)), VECTORS)) == ["reshape", "matmul", "add", "relu", "reshape"]


@pytest.mark.parametrize(
    ("unit", "capabilities"),
    [
        (model(1, 4, 30, 32, (7, 7)), VECTORS),
        (model(1, 4, 30, 24, (2, 2)), VECTORS),
        (model(1, 1, 30, 30, (7, 7)), VECTORS),
        (model(1, 1, 30, 34, (7, 7), size=3), VECTORS),
        (model(1, 4, 30, 34, (7, 7)), Capabilities(("float32",))),
        (model(1, 1, 1, 34, (7, 7)), Capabilities(("float32",), vector_bits=512, peak=1e12, bandwidth=1e9)),
    ],
)
def test_what_stays(unit: Function, capabilities: Capabilities) -> None:
    """Whole vectors of channels, half ones where pixels fill less, a group that can be padded, larger windows, targets without
    vectors, and too little work to copy for."""
    assert pointwise_products(unit, capabilities) is unit


def test_half_vectors_of_channels_lose_to_pixels_that_fill_more() -> None:
    assert "matmul" in names(pointwise_products(model(1, 4, 30, 24, (7, 7)), VECTORS))


def test_groups_of_bfloat16_are_summed_in_float32() -> None:
    x = var("x", TensorType((1, 120, 7, 7), "bfloat16"))
    weights = constant(small(136, 30, 1, 1).astype(dtype("bfloat16").numpy), "bfloat16")
    unit = function([x], ops.conv(x, weights, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=4, out_dtype="float32"))
    changed = pointwise_products(unit, VECTORS)
    assert names(changed) == ["reshape", "matmul", "reshape"]
    data = small(1, 120, 7, 7).astype(dtype("bfloat16").numpy)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))
