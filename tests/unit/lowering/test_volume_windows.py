from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.volume_windows import volume_windows
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType


@settings(deadline=None, max_examples=100)
@given(st.tuples(*(st.tuples(st.integers(3, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),) * 3), st.booleans())
def test_the_maximum_stays(axes: tuple[tuple[int, int, int, int], ...], has_nan: bool) -> None:
    extents, kernel, strides, dilations = zip(*axes, strict=True)
    pads = tuple(k // 2 for k in kernel) * 2
    if any(n + 2 * (k // 2) < (k - 1) * d + 1 for n, k, d in zip(extents, kernel, dilations, strict=True)):
        return
    x = var("x", TensorType((2, 3, *extents), "float32"))
    target = function([x], ops.max_pool(x, kernel=kernel, strides=strides, dilations=dilations, pads=pads))
    changed = volume_windows(target)
    verify(changed)
    value = np.random.default_rng(0).standard_normal((2, 3, *extents)).astype(np.float32)
    if has_nan:
        value[1, 2, 1, 1, 1] = np.nan
    assert np.array_equal(evaluate(changed, [value]), evaluate(target, [value]), equal_nan=True)
    pools = [expr for expr in post_order(changed) if isinstance(expr, Call) and expr.callee is ops.max_pool]
    assert [len(pool.attrs.kernel) for pool in pools] == [2, 2]


@settings(deadline=None, max_examples=100)
@given(
    st.tuples(*(st.tuples(st.integers(3, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),) * 3),
    st.tuples(*(st.integers(0, 2),) * 6),
    st.booleans(),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_the_mean_stays(axes: tuple[tuple[int, int, int, int], ...], pads: tuple[int, ...], count: bool, dtype: str) -> None:
    """Windows that lie in the padding included, whose mean is 0."""
    extents, kernel, strides, dilations = zip(*axes, strict=True)
    if any(n + pads[axis] + pads[axis + 3] < (kernel[axis] - 1) * dilations[axis] + 1 for axis, n in enumerate(extents)):
        return
    x = var("x", TensorType((2, 3, *extents), dtype))
    target = function([x], ops.avg_pool(x, kernel=kernel, strides=strides, dilations=dilations, pads=pads, count_include_pad=count))
    changed = volume_windows(target)
    verify(changed)
    value = np.random.default_rng(0).standard_normal((2, 3, *extents)).astype(dtype)
    tolerance = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(evaluate(changed, [value]), evaluate(target, [value]), tolerance, 8 * tolerance)
    pools = [expr for expr in post_order(changed) if isinstance(expr, Call) and expr.callee is ops.avg_pool]
    assert [len(pool.attrs.kernel) for pool in pools] == [2, 2]


def test_narrow_means_are_rounded_once() -> None:
    """The float16 nearest to the mean in float32: means of planes are not rounded to float16."""
    x = var("x", TensorType((1, 40, 6, 6, 6), "float16"))
    changed = volume_windows(function([x], ops.avg_pool(x, kernel=(3, 3, 3), strides=(3, 3, 3))))
    value = np.random.default_rng(0).standard_normal((1, 40, 6, 6, 6)).astype(np.float16)
    means = value.astype(np.float64).reshape(1, 40, 2, 3, 2, 3, 2, 3).mean((3, 5, 7))
    assert np.array_equal(evaluate(changed, [value]), means.astype(np.float16))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16"])
def test_symbolic_volumes(dtype: str) -> None:
    n, d = SizeVar("n"), SizeVar("d")
    x = var("x", TensorType((n, 3, d, 8, d), dtype))
    target = function([x], ops.max_pool(x, kernel=(2, 3, 2), strides=(2, 2, 1), pads=(1, 1, 0, 0, 1, 1)))
    changed = volume_windows(target)
    verify(changed)
    value = np.random.default_rng(0).integers(0, 99, (2, 3, 5, 8, 5)).astype(dtype)
    assert np.array_equal(evaluate(changed, [value]), evaluate(target, [value]))


def test_images_stay() -> None:
    x = var("x", TensorType((1, 2, 6, 6), "float32"))
    target = function([x], ops.max_pool(x, kernel=(2, 2)))
    assert volume_windows(target) is target
