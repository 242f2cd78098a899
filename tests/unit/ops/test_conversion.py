"""Conversions between element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import DTYPES, TensorType, dtype

from .generate import INTEGERS, agree, random_array, shapes

SEEDS = st.integers(0, 2**32 - 1)
EVERY = [name for name, dtype_name in DTYPES.items() if dtype_name.kind != "string"]


@settings(deadline=None, max_examples=300)
@given(shapes(), st.sampled_from(EVERY), st.sampled_from(EVERY), st.booleans(), st.sampled_from([4.0, 1000.0, 1e6]), SEEDS)
def test_casts(shape, dtype_name, to, saturate, scale, seed):
    if dtype(dtype_name).is_float:
        x = random_array(seed, shape, "float64", -scale, scale)
        with np.errstate(all="ignore"):
            x = x.astype(np.float32 if dtype(dtype_name).bits < 32 else dtype(dtype_name).numpy).astype(dtype(dtype_name).numpy)
    else:
        x = random_array(seed, shape, dtype_name)
    agree(ops.cast, x, dtype=to, saturate=saturate)


def cast(values, dtype_name, to, **attrs):
    return agree(ops.cast, np.asarray(values).astype(dtype(dtype_name).numpy), dtype=to, **attrs).astype(np.float64).tolist()


def test_floats_to_integers_truncate_and_saturate():
    assert cast([1.9, -1.9, 300, -300, np.nan, np.inf], "float32", "int8") == [1, -1, 127, -128, 0, 127]
    assert cast([2.0**63, -(2.0**63), 1e30], "float64", "int64") == [2.0**63 - 1, -(2.0**63), 2.0**63 - 1]
    assert cast([-1, 2.0**64], "float32", "uint64") == [0, 2.0**64]


def test_integers_keep_their_low_bits():
    assert cast([200, -200, 256], "int16", "int8") == [-56, 56, 0]
    assert cast([8, -9, 7], "int8", "int4") == [-8, 7, 7]
    assert cast([17, 15], "uint8", "uint4") == [1, 15]


def test_to_bool_is_not_zero():
    assert cast([0.0, -0.0, 0.5, np.nan, np.inf], "float32", "bool") == [0, 0, 1, 1, 1]
    assert cast([True, False], "bool", "float16") == [1, 0]


@pytest.mark.parametrize(
    ("to", "saturated", "otherwise"),
    [
        ("float8e4m3fn", 448, np.nan),
        ("float8e4m3fnuz", 240, np.nan),
        ("float8e5m2", 57344, np.inf),
        ("float8e5m2fnuz", 57344, np.nan),
    ],
)
def test_floats_beyond_the_range_of_8_bits(to, saturated, otherwise):
    values = [1e6, -1e6, np.inf]
    np.testing.assert_equal(cast(values, "float32", to), [saturated, -saturated, saturated])
    np.testing.assert_equal(cast(values, "float32", to, saturate=False), [otherwise, -otherwise, otherwise])


@pytest.mark.parametrize(("mode", "expected"), [("up", [1, 2, 2, 2, 4]), ("down", [1, 1, 1, 1, 2]), ("nearest", [1, 1, 2, 2, 4])])
def test_rounding_to_exponents(mode, expected):
    assert cast([1, 1.25, 1.5, 1.75, 3], "float32", "float8e8m0", round_mode=mode) == expected


def test_exponents_beyond_the_range():
    greatest = 2.0**127
    np.testing.assert_equal(cast([np.inf, np.nan, 3e38], "float32", "float8e8m0"), [greatest, np.nan, greatest])
    np.testing.assert_equal(cast([np.inf, 3e38], "float32", "float8e8m0", saturate=False), [np.nan, np.nan])


@settings(deadline=None, max_examples=60)
@given(shapes(), st.sampled_from(INTEGERS), st.data())
def test_bit_casts_come_back(shape, dtype_name, data):
    equal_width_types = [name for name, other in DTYPES.items() if other.bits == dtype(dtype_name).bits and other.kind != "bool"]
    to = data.draw(st.sampled_from(equal_width_types))
    # Small and not negative, so that no bits are those of a NaN, of which only one kind survives arithmetic in wider types.
    x = random_array(data.draw(SEEDS), shape, dtype_name, 0, 60)
    bits = agree(ops.bitcast, x, dtype=to)
    np.testing.assert_array_equal(agree(ops.bitcast, bits, dtype=dtype_name), x)


def test_bit_casts():
    assert agree(ops.bitcast, np.array(1.0, np.float32), dtype="int32") == 0x3F800000
    assert agree(ops.bitcast, np.array([True, False]), dtype="uint8").tolist() == [1, 0]
    assert agree(ops.bitcast, np.array([-1, 7], ml_dtypes.int4), dtype="uint4").tolist() == [15, 7]


def test_types_that_do_not_fit():
    for operator, dtype_name, attrs, message in (
        (ops.cast, "float32", {"dtype": "string"}, "string_cast"),
        (ops.cast, "float32", {"dtype": "float8e8m0", "round_mode": "odd"}, "round_mode"),
        (ops.bitcast, "float32", {"dtype": "int64"}, "32 bits"),
    ):
        with pytest.raises(TypeInferenceError, match=message):
            operator.infer_type(operator.attrs(**attrs), (TensorType((2,), dtype_name),))
