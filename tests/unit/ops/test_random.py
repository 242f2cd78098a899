"""Random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import TensorType

from .generate import shapes
from .harness import check

STATES = st.integers(0, 2**64 - 1).map(lambda value: np.array(value, np.uint64))
DTYPES = ["float64", "float32", "float16", "bfloat16"]


@settings(deadline=None, max_examples=40)
@given(STATES, shapes(), st.sampled_from(DTYPES))
def test_uniform(state, shape, dtype):
    values, _ = check(ops.random_uniform, state, shape=shape, dtype=dtype)
    wide = values.astype(np.float64)
    assert ((wide >= 0) & (wide < 1)).all()


@settings(deadline=None, max_examples=40)
@given(STATES, shapes(), st.sampled_from(DTYPES))
def test_normal(state, shape, dtype):
    values, _ = check(ops.random_normal, state, shape=shape, dtype=dtype, rtol=2e-2 if dtype == "bfloat16" else 2e-3, atol=1e-4)
    assert np.isfinite(values.astype(np.float64)).all()


def test_the_generator_is_splitmix64():
    # The first outputs for the seed 1234567 that the author's C program prints (prng.di.unimi.it/splitmix64.c).
    state = np.array(1234567, np.uint64)
    values, _ = check(ops.random_uniform, state, shape=(3,), dtype="float64")
    outputs = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    assert values.tolist() == [(output >> 11) * 2.0**-53 for output in outputs]


@pytest.mark.parametrize("name", ["random_uniform", "random_normal"])
def test_the_next_state_goes_on_where_the_last_left_off(name):
    state = np.array(7, np.uint64)
    six_values, end = check(ops.TABLE[name], state, shape=(6,), dtype="float64", rtol=1e-9)
    first, middle = check(ops.TABLE[name], state, shape=(4,), dtype="float64", rtol=1e-9)
    rest, rest_end = check(ops.TABLE[name], middle, shape=(2,), dtype="float64", rtol=1e-9)
    np.testing.assert_array_equal(np.concatenate([first, rest]), six_values)
    assert end == rest_end


def test_the_distributions_have_their_moments():
    state = np.array(99, np.uint64)
    uniform, _ = ops.random_uniform.reference(ops.random_uniform.attrs((100_000,)), state)
    normal, _ = ops.random_normal.reference(ops.random_normal.attrs((100_000,)), state)
    assert uniform.mean() == pytest.approx(0.5, abs=0.005)
    assert uniform.var() == pytest.approx(1 / 12, abs=0.002)
    assert normal.mean() == pytest.approx(0, abs=0.02)
    assert normal.std() == pytest.approx(1, abs=0.02)
    assert (np.abs(normal) < 1).mean() == pytest.approx(math.erf(math.sqrt(0.5)), abs=0.01)


def test_types_that_do_not_fit():
    for attrs, state, message in (
        ({"shape": (2,)}, TensorType((2,), "uint64"), "0-d uint64"),
        (
            {"shape": (2,), "dtype": "int32"},
            TensorType((), "uint64"),
            "dtype must be one of float64, float32, float16, bfloat16, got int32",
        ),
    ):
        with pytest.raises(TypeInferenceError, match=message):
            ops.random_uniform.infer_type(ops.random_uniform.attrs(**attrs), (state,))
