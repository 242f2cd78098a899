"""Requantization."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import TensorType

from .generate import agree, random_array, shapes

SEEDS = st.integers(0, 2**32 - 1)
STORED = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2", "float8e4m3fn", "float8e5m2", "float4e2m1")


@st.composite
def granularities(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]:
    """(shape of the data, shape of the scales, attributes)."""
    shape = draw(shapes(1, max_side=6))
    axis, block = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 4))
    blocked = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    per_tensor, per_axis = (shape, (), {}), (shape, (shape[axis],), {"axis": axis})
    return draw(st.sampled_from([per_tensor, per_axis, (shape, blocked, {"axis": axis, "block_size": block})]))


@settings(deadline=None, max_examples=150)
@given(granularities(), st.sampled_from(STORED), st.sampled_from(["float32", "float16", "bfloat16"]), st.booleans(), SEEDS)
def test_quantize(granularity, to, dtype, zeroed, seed):
    shape, scales, attrs = granularity
    x, scale = random_array(seed, shape, dtype), random_array(seed + 1, scales, dtype, 0.1, 2)
    points = (random_array(seed + 2, scales, to, -2, 2),) if zeroed else ()
    agree(ops.quantize, x, scale, *points, dtype=to, **attrs)


@settings(deadline=None, max_examples=150)
@given(granularities(), st.sampled_from((*STORED, "int32")), st.sampled_from(["float32", "float16"]), st.booleans(), SEEDS)
def test_dequantize(granularity, dtype, to, zeroed, seed):
    shape, scales, attrs = granularity
    x, scale = random_array(seed, shape, dtype, -5, 5), random_array(seed + 1, scales, to, 0.1, 2)
    points = (random_array(seed + 2, scales, dtype, -2, 2),) if zeroed else ()
    agree(ops.dequantize, x, scale, *points, dtype=to, **attrs)


@settings(deadline=None, max_examples=80)
@given(shapes(1), st.sampled_from(["int8", "uint8", "int16", "uint4"]), st.booleans(), SEEDS, st.data())
def test_requantize(shape, to, per_axis, seed, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    scales = (shape[axis],) if per_axis else ()
    x = random_array(seed, shape, "int32", -100000, 100000)
    scale, point = random_array(seed + 1, scales, "float32", 1e-4, 1e-2), random_array(seed + 2, (), to, -2, 2)
    agree(ops.requantize, x, scale, point, dtype=to, axis=axis)


def test_values_round_half_to_even_and_saturate():
    x, scale = np.array([1, 3, 5, -1, 1000, -1000, np.nan], np.float32), np.array(2, np.float32)
    assert agree(ops.quantize, x, scale, np.array(1, np.int8), dtype="int8").tolist() == [1, 3, 3, 1, 127, -128, 1]
    total = np.array([1, 3, 5, -1, 1000], np.int32)
    assert agree(ops.requantize, total, np.array(0.5, np.float32), np.array(0, np.uint8), dtype="uint8").tolist() == [
        0,
        2,
        2,
        0,
        255,
    ]


def test_floats_may_overflow_instead():
    x, one = np.array([1e6], np.float32), np.array(1, np.float32)
    assert agree(ops.quantize, x, one, dtype="float8e4m3fn").astype(np.float32) == 448
    assert np.isnan(agree(ops.quantize, x, one, dtype="float8e4m3fn", saturate=False).astype(np.float32))


F, S = TensorType((4, 6), "float32"), TensorType((), "float32")


@pytest.mark.parametrize(
    ("operator", "types", "attrs", "message"),
    [
        (
            ops.quantize,
            (F, TensorType((5,), "float32")),
            {"dtype": "int8", "axis": 1},
            "dimension 0 of the scale must be 6, got 5",
        ),
        (
            ops.quantize,
            (F, TensorType((4, 2), "float32")),
            {"dtype": "int8", "axis": 1, "block_size": 2},
            "dimension 1 of the scale must be 3, got 2",
        ),
        (ops.quantize, (F, TensorType((), "float16")), {"dtype": "int8"}, "must have one dtype"),
        (ops.quantize, (F, S), {"dtype": "int32"}, "at most 16 bits"),
        (ops.quantize, (F, S, TensorType((), "uint8")), {"dtype": "int8"}, "zero point must be int8"),
        (ops.dequantize, (TensorType((4,), "int8"), S), {"dtype": "int32"}, "dtype must be a float, got int32"),
        (ops.dequantize, (TensorType((4,), "int8"), S, TensorType((), "uint8")), {"dtype": "float32"}, "must have one dtype"),
        (
            ops.requantize,
            (F, S, TensorType((), "int8")),
            {"dtype": "int8"},
            "x must be int32 and scale float32, got float32 and float32",
        ),
        (
            ops.requantize,
            (TensorType((4,), "int32"), S, TensorType((), "int8")),
            {"dtype": "int8", "rounding": "up"},
            "rounding must be half_even, got",
        ),
    ],
)
def test_types_that_do_not_fit(operator, types, attrs, message):
    with pytest.raises(TypeInferenceError, match=message):
        operator.infer_type(operator.attrs(**attrs), types)
