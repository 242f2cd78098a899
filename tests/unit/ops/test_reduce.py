"""Reductions, positions of extremes, running sums and products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import TensorType, dtype

from .generate import NUMBERS, agree, axes, random_array, shapes

SEEDS = st.integers(0, 2**32 - 1)
REDUCTIONS = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(REDUCTIONS), shapes(), st.sampled_from(NUMBERS), st.booleans(), SEEDS, st.data())
def test_reductions(name, shape, dtype_name, keepdims, seed, data):
    chosen = data.draw(axes(len(shape)))
    # Small integers, so that sums and products of floats are exact in any order.
    low, high = (-1, 1) if name == "reduce_prod" else (-3, 3)
    x = np.rint(random_array(seed, shape, "float32", low, high))
    agree(ops.TABLE[name], np.abs(x).astype(dtype(dtype_name).numpy), axes=chosen, keepdims=keepdims)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["reduce_max", "reduce_min"]),
    shapes(),
    st.sampled_from(["bool", "float32", "int8", "uint16"]),
    SEEDS,
    st.data(),
)
def test_extremes_of_special_values(name, shape, dtype_name, seed, data):
    agree(ops.TABLE[name], random_array(seed, shape, dtype_name), axes=data.draw(axes(len(shape))))


@pytest.mark.parametrize(
    ("name", "dtype_name", "identity"),
    [
        *(("reduce_sum", dtype_name, 0) for dtype_name in ("float32", "int8")),
        *(("reduce_prod", dtype_name, 1) for dtype_name in ("float16", "uint8")),
        *(
            ("reduce_max", dtype_name, value)
            for dtype_name, value in (("float32", -np.inf), ("int8", -128), ("uint4", 0), ("bool", False))
        ),
        *(
            ("reduce_min", dtype_name, value)
            for dtype_name, value in (("float32", np.inf), ("int8", 127), ("uint4", 15), ("bool", True))
        ),
    ],
)
def test_reductions_of_nothing(name, dtype_name, identity):
    result = agree(ops.TABLE[name], np.zeros((0, 2), dtype(dtype_name).numpy), axes=(0,))
    assert (result == identity).all()
    assert result.shape == (2,)


def test_a_reduction_accumulates_in_float32():
    ones = np.full(4096, 1, np.float16)
    assert agree(ops.reduce_sum, ones, axes=(0,)) == 4096


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(["argmax", "argmin"]),
    shapes(1, min_side=1),
    st.sampled_from(NUMBERS),
    st.booleans(),
    st.booleans(),
    SEEDS,
    st.data(),
)
def test_positions(name, shape, dtype_name, keepdims, last, seed, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    agree(ops.TABLE[name], random_array(seed, shape, dtype_name), axis=axis, keepdims=keepdims, last=last)


@pytest.mark.parametrize(("last", "position"), [(False, 1), (True, 3)])
def test_positions_of_equal_extremes(last, position):
    assert agree(ops.argmax, np.array([1, 5, 2, 5, 0], np.int32), axis=0, last=last) == position
    assert agree(ops.argmin, -np.array([1, 5, 2, 5, 0], np.int32), axis=0, last=last) == position
    assert agree(ops.argmax, np.array([1, np.nan, np.inf, np.nan, 0], np.float32), axis=0, last=last) == position


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["cumsum", "cumprod"]), shapes(1), st.sampled_from(NUMBERS), st.booleans(), st.booleans(), SEEDS, st.data())
def test_running_totals(name, shape, dtype_name, exclusive, reverse, seed, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.abs(np.rint(random_array(seed, shape, "float32", -2, 2))).astype(dtype(dtype_name).numpy)
    agree(ops.TABLE[name], x, axis=axis, exclusive=exclusive, reverse=reverse)


def test_running_sums():
    x = np.array([1, 2, 3], np.int32)
    assert agree(ops.cumsum, x, axis=0).tolist() == [1, 3, 6]
    assert agree(ops.cumsum, x, axis=0, exclusive=True).tolist() == [0, 1, 3]
    assert agree(ops.cumsum, x, axis=0, reverse=True).tolist() == [6, 5, 3]
    assert agree(ops.cumprod, x, axis=0, exclusive=True, reverse=True).tolist() == [6, 3, 1]


X = TensorType((2, 0), "float32")


@pytest.mark.parametrize(
    ("operator", "type_", "attrs", "message"),
    [
        (ops.reduce_sum, X, {"axes": (2,)}, "out of range"),
        (ops.reduce_sum, X, {"axes": (0, 0)}, "axes must be unique, got"),
        (ops.reduce_sum, TensorType((2,), "bool"), {"axes": (0,)}, "kind float"),
        (ops.argmax, X, {"axis": 1}, "dimension 1 of the input must be >= 1, got 0"),
        (ops.cumsum, X, {"axis": -1}, "out of range"),
    ],
)
def test_types_that_do_not_fit(operator, type_, attrs, message):
    with pytest.raises(TypeInferenceError, match=message):
        operator.infer_type(operator.attrs(**attrs), (type_,))
