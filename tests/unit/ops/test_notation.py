"""Python's notation for expressions: arithmetic, subscripts, `split`, `sum`, `mean`; numpy is the oracle."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import InputError, TypeInferenceError
from inlaid_runtime.types import TensorType, TupleType

RNG = np.random.default_rng(0)
A = RNG.uniform(0.5, 2, (4, 5, 6)).astype(np.float32)


def evaluate_body(body: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> Any:
    """The result of an expression of variables with these values."""
    variables = [inlaid.var(f"x{n}", TensorType(array.shape, array.dtype.name)) for n, array in enumerate(arrays)]
    result = body(*variables)
    return evaluate(inlaid.Module({"main": inlaid.function(variables, result)}), arrays)


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow, operator.lt, operator.gt,
          operator.le, operator.ge]  # fmt: skip


@pytest.mark.parametrize("apply", BINARY, ids=lambda item: item.__name__)
def test_arithmetic(apply: Callable[[Any, Any], Any]) -> None:
    b = np.flip(A, 0).copy()
    for left, right in ((A, b), (A, 2.0), (2.0, A), (A, b[0]), (b[0], A)):
        expected = apply(left, right)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            actual = evaluate_body(apply, left, right)
        elif isinstance(left, np.ndarray):
            actual = evaluate_body(lambda x, right=right: apply(x, right), left)
        else:
            actual = evaluate_body(lambda x, left=left: apply(left, x), right)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_unary_and_products() -> None:
    np.testing.assert_array_equal(evaluate_body(lambda x: -abs(-x), A), -A)
    w = RNG.standard_normal((6, 3), np.float32)
    np.testing.assert_allclose(evaluate_body(lambda x: x @ w, A), A @ w, rtol=1e-5)
    np.testing.assert_allclose(evaluate_body(lambda x: w.T @ x, np.ascontiguousarray(A[0].T)), w.T @ A[0].T, rtol=1e-5)


def test_expressions_have_no_truth_value() -> None:
    x, y = inlaid.var("x", (2,)), inlaid.var("y", (2,))
    for test in (lambda: bool(x > 0), lambda: x if x > y else y, lambda: 0 < x < 1, lambda: not x, lambda: max(x, y)):
        with pytest.raises(TypeInferenceError, match=r"got (<Call less|%x: ).*; branch with inlaid\.if_, select elements with"):
            test()
    assert x != y and x in [y, x] and len({x, y}) == 2  # identity


def test_shapes_of_expressions() -> None:
    x = inlaid.var("x", ("n", 3, 4))
    assert (x @ np.ones((4, 5), np.float32)).shape == (*x.shape[:2], 5)
    with pytest.raises(TypeInferenceError, match="expected a tensor to take the shape of, got a value of type"):
        inlaid.tuple_([x]).shape  # noqa: B018


@pytest.mark.parametrize("shape", [(-1,), (-1, 12), (4, -1), (2, -1, 6), (-1, 1, 120), [4, 5, 6, -1]])
def test_one_extent_of_a_new_shape_may_be_left_out(shape: Any) -> None:
    np.testing.assert_array_equal(evaluate_body(lambda x: ops.reshape(x, shape=shape), A), A.reshape(shape))


def test_a_symbolic_extent_of_a_new_shape_may_be_left_out() -> None:
    x, n = inlaid.var("x", ("n", 3, 4)), inlaid.SizeVar("n")
    shapes = ((-1, 12), (-1, 4, 3), (-1,), (2, -1))
    assert [ops.reshape(x, shape=shape).shape for shape in shapes] == [(n, 12), (n, 4, 3), (n * 12,), (2, n * 6)]
    for wrong, message in (
        ((-1, -1), "an extent must be an integer >= 0"),
        ((-1, 0), "the number of elements of the new shape must be 6, got 0"),
    ):
        with pytest.raises(TypeInferenceError, match=message):
            ops.reshape(np.zeros((2, 3)), shape=wrong)


def test_the_two_layers_of_a_tutorial() -> None:
    """Relay's first program, as short here."""
    w1, w2 = RNG.standard_normal((8, 16), np.float32), RNG.standard_normal((16, 4), np.float32)
    x = inlaid.var("x", (1, 8))
    model = inlaid.function([x], ops.softmax(ops.relu(x @ w1 + 1) @ w2, axis=-1))
    x_array = RNG.standard_normal((1, 8), np.float32)
    (actual,) = inlaid.compile(model, ["reference"]).run({"x": x_array}).values()
    logits = np.maximum(x_array @ w1 + 1, 0) @ w2
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


# --- subscripts -------------------------------------------------------------------------------------------------------

ENDS = st.none() | st.integers(-7, 7)
SLICES = st.builds(slice, ENDS, ENDS, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))


@given(st.data())
def test_subscripts_are_numpys(data: st.DataObject) -> None:
    keys: list[Any] = []
    for extent in A.shape[: data.draw(st.integers(0, 3))]:
        keys.append(data.draw(SLICES | st.integers(-extent, extent - 1)))
    if data.draw(st.booleans()):
        keys.insert(data.draw(st.integers(0, len(keys))), None)
    if data.draw(st.booleans()):
        keys.insert(data.draw(st.integers(0, len(keys))), ...)
    key = tuple(keys)
    try:
        expected = A[key]
    except IndexError:  # keys after the ellipsis are drawn for axes before it
        return
    np.testing.assert_array_equal(evaluate_body(lambda x: x[key], A), expected)


@given(st.builds(slice, ENDS, ENDS, st.none() | st.integers(1, 3)) | st.just(slice(None, None, -1)), st.integers(1, 9))
def test_subscripts_of_symbolic_axes(key: slice, size: int) -> None:
    x = inlaid.var("x", ("n", 2))
    array = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
    module = inlaid.Module({"main": inlaid.function([x], x[key])})
    np.testing.assert_array_equal(evaluate(module, (array,)), array[key])
    last = inlaid.Module({"main": inlaid.function([x], x[-1])})
    np.testing.assert_array_equal(evaluate(last, (array,)), array[-1])


def test_subscripts_by_tensors_and_of_tuples() -> None:
    at = np.array([2, 0], np.int64)
    np.testing.assert_array_equal(evaluate_body(lambda x, i: x[i], A, at), A[at])
    pair = inlaid.var("p", TupleType((TensorType((2,), "float32"), TensorType((3,), "int64"))))
    assert [pair[0].type, pair[-1].type] == list(pair.type.fields)
    values, indices = ops.topk(inlaid.var("x", (5,)), k=2, axis=0)
    assert (values.type.dtype.name, indices.type.dtype.name) == ("float32", "int64")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x[4], "index must be >= -4 and < 4 for axis 0, got 4"),
        (lambda x: x[0, 0, 0, 0], "expected at most 3 indices"),
        (lambda x: x["a"], "expected integers, slices, None or ... as an index, got 'a'"),
        (lambda x: x[::0], "the step of a slice must not be 0"),
        (lambda x: ops.split(x, 3), "expected a number of equal parts of axis 0, of extent 4, got 3"),
        (lambda x: ops.split(x, (1, 2), axis=-1), r"expected parts >= 0 that add up to 6 \(axis 2"),
        (lambda x: ops.sum(x, 3), "axes must be >= -3 and < 3"),
        (
            lambda x: inlaid.tuple_item(inlaid.tuple_([x]), 3),
            "expected a field of .* of length 1, got field 3; count fields from 0",
        ),
        (lambda x: inlaid.tuple_item(ops.relu(x), 3), "expected a tuple to take field 3 of, got .*operator relu"),
    ],
)
def test_wrong_notation(wrong: Callable[[Any], object], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        wrong(inlaid.var("x", A.shape))


def test_tensors_are_not_iterated_over() -> None:
    with pytest.raises(TypeError, match=r"expected a tuple to iterate over, .* split it with inlaid\.ops\.split"):
        list(inlaid.var("x", (3,)))


# --- split, sum, mean -------------------------------------------------------------------------------------------------


def test_split() -> None:
    for parts, axis in ((2, 0), (3, -1), ((1, 0, 5), -1)):
        cuts = parts if isinstance(parts, int) else np.cumsum(parts)[:-1]
        expected = np.split(A, cuts, axis)
        for index, piece in enumerate(expected):
            np.testing.assert_array_equal(evaluate_body(lambda x, p=parts, a=axis, n=index: ops.split(x, p, a)[n], A), piece)


def test_parts_of_a_symbolic_axis_add_up() -> None:
    x = inlaid.var("x", ("n", 2))
    executable = inlaid.compile(inlaid.function(x, inlaid.tuple_(ops.split(x, (2, 3)))), ["reference"])
    x_array = np.arange(10, dtype=np.float32).reshape(5, 2)
    for piece, expected in zip(executable(x_array), (x_array[:2], x_array[2:]), strict=True):
        np.testing.assert_array_equal(piece, expected)
    for rows in (4, 6, 0):
        with pytest.raises(InputError, match=f"the number of elements of the new shape must be .*, got 10 where n is {rows}"):
            executable(np.zeros((rows, 2), np.float32))


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), (-1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_and_mean(axes: Any, keepdims: bool) -> None:
    for short, numpy_op in ((ops.sum, np.sum), (ops.mean, np.mean)):
        actual = evaluate_body(lambda x: short(x, axes, keepdims), A)  # noqa: B023
        np.testing.assert_allclose(actual, numpy_op(A, axes, keepdims=keepdims), rtol=1e-5)
