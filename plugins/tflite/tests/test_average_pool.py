"""Average pools of TensorFlow Lite models, as composites of a target that computes in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.driver.prepare import prepare
from inlaid.graph.interp import evaluate
from inlaid.graph.pattern import match
from inlaid.ops.composites import AveragePool, decode_average_pool, quantized_average_pool
from inlaid.partitioning.annotate import Candidate, annotate
from inlaid.plugins import OpRule, Target
from inlaid.plugins.registry import default_registry
from inlaid_tflite import load

from .build import Array, Tensor, drawn, single
from .test_elements import seeds

TARGET = Candidate(Target("a"), (OpRule(quantized_average_pool(), "average"),), frozenset(["int8", "uint8", "int16"]))
REFERENCE = Candidate(Target("reference"), (), frozenset())
RELU, RELU6 = 1, 3
Pool = tuple[str, tuple[int, ...], tuple[int, int], tuple[int, int], bool, int]
"""Element type, image (rows, columns), window, strides, whether it is padded, and the activation."""


def positions(pool: Pool) -> tuple[int, int]:
    _, image, window, strides, padded, _ = pool
    rows, columns = (
        -(-size // step) if padded else (size - taps) // step + 1 for size, taps, step in zip(image, window, strides, strict=True)
    )
    return rows, columns


def model(pool: Pool) -> bytes:
    dtype, image, window, strides, padded, activation = pool
    fields = {"filterHeight": window[0], "filterWidth": window[1], "strideH": strides[0], "strideW": strides[1]}
    fields |= {"padding": 0 if padded else 1, "fusedActivationFunction": activation}
    scale: dict[str, Any] = {"scale": 0.25, "zero_point": 0 if dtype == "int16" else 3}
    x, y = (Tensor((2, *sizes, 3), dtype, **scale) for sizes in (image, positions(pool)))
    return single("AVERAGE_POOL_2D", [x], y, ("Pool2DOptions", fields))


def tflite(pool: Pool, x: Array) -> Array:
    """TensorFlow Lite's reference kernel, one element at a time."""
    dtype, image, window, strides, padded, activation = pool
    sizes, zero = positions(pool), 0 if dtype == "int16" else 3
    before = [
        max((size - 1) * step + taps - extent, 0) // 2 if padded else 0
        for size, step, taps, extent in zip(sizes, strides, window, image, strict=True)
    ]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = (max(low, zero) if activation else low), (min(high, zero + 24) if activation == RELU6 else high)
    outputs = np.empty((len(x), *sizes, x.shape[-1]), dtype)
    for n, row, column, channel in np.ndindex(outputs.shape):
        total = count = 0
        for i, j in np.ndindex(*window):
            at = row * strides[0] - before[0] + i, column * strides[1] - before[1] + j
            if 0 <= at[0] < image[0] and 0 <= at[1] < image[1]:
                total, count = total + int(x[n, at[0], at[1], channel]), count + 1
        # C truncates.
        quotient = (total + count // 2) // count if total > 0 else -((-total + count // 2) // count)
        outputs[n, row, column, channel] = min(max(quotient, low), high)
    return outputs


def decoded(pool: AveragePool, x: Array) -> Array:
    """The formula of `AveragePool`, for data N C H W."""
    window = pool.window
    wide = np.pad(x.astype(np.int32), ((0, 0), (0, 0), *zip(window.before, window.after, strict=True)), constant_values=window.fill)
    taps = np.lib.stride_tricks.sliding_window_view(wide, window.kernel, (2, 3))
    sums = taps[:, :, :: window.strides[0], :: window.strides[1]].sum((-2, -1))
    quotients = (np.abs(sums) + pool.divisors // 2) // pool.divisors
    output = pool.output
    return np.clip(np.where(sums < 0, -quotients, quotients), output.least, output.greatest).astype(output.dtype.numpy)


@st.composite
def pools(draw: Any) -> Pool:
    dtype, padded = draw(st.sampled_from(["int8", "uint8", "int16"])), draw(st.booleans())
    image = draw(st.tuples(st.integers(1, 8), st.integers(2, 8)))
    limits = [size + 2 if padded else size for size in image]
    window = draw(st.one_of(st.tuples(*(st.integers(1, size) for size in limits)), st.just(image)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return dtype, image, window, strides, padded, draw(st.sampled_from([0, RELU, RELU6]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pools(), seeds)
def test_a_target_takes_the_pools_of_models(pool: Pool, seed: int) -> None:
    x = drawn(pool[0], (2, *pool[1], 3), np.random.default_rng(seed))
    module, expected = load(model(pool)), tflite(pool, x)
    np.testing.assert_array_equal(evaluate(module.functions["main"], [x]), expected, strict=True)
    main = prepare(module, (REFERENCE,), "reference", default_registry()).functions["main"]
    claims = [claim for claim in annotate(main, (TARGET,)).claims if claim.composite is not None]
    assert len(claims) == (pool[2] != (1, 1))  # a window of one element is a max_pool
    for claim in claims:
        pool_match = match(quantized_average_pool(), claim.root)
        assert pool_match is not None
        actual = decoded(decode_average_pool(pool_match.captures), np.moveaxis(x, 3, 1))
        np.testing.assert_array_equal(np.moveaxis(actual, 1, 3), expected, strict=True)
