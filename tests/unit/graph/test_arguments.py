"""Calls of operators as users write them: scalars, arrays, negative axes, keywords, signatures, and errors with a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.graph.ir import Constant, Expr
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import TensorType


def tensor(dtype: str, *shape: int) -> Expr:
    return inlaid.var("x", TensorType(shape, dtype))


X = tensor("float32", 2, 3)
IMAGE = tensor("float32", 1, 1, 3, 3)


@dataclass(frozen=True)
class Picked(inlaid.Attrs):
    """Attributes of other forms than those of Inlaid's own operators."""

    range: tuple[int, int]
    by: str | int = 0


PICK = inlaid.Operator("pick", lambda attrs, x: x, Picked, inputs=("x",))


# --- scalars and arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int64"])
def test_a_number_takes_the_type_of_the_tensor_beside_it(dtype: str) -> None:
    for call in (ops.add(tensor(dtype, 2), 3), ops.mul(3, tensor(dtype, 2))):
        assert call.type == TensorType((2,), dtype)
    if dtype.startswith(("float", "bfloat")):
        assert ops.maximum(tensor(dtype, 2), 0.5).type == TensorType((2,), dtype)


def test_numbers_beside_truth_values() -> None:
    condition = ops.less(X, 0)
    assert ops.where(condition, 0.0, X).type == X.type
    assert ops.where(condition, 1.0, 0.0).type == X.type
    assert ops.where(condition, 1, 0).type == TensorType((2, 3), "int64")
    assert ops.logical_and(condition, True).type == condition.type


def test_arrays_keep_their_type() -> None:
    call = ops.matmul(X, np.ones((3, 4), np.float32))
    assert call.type == TensorType((2, 4), "float32") and isinstance(call.args[1], Constant)
    with pytest.raises(TypeInferenceError, match="the operands must have one dtype, got float32, float64"):
        ops.add(X, np.ones(3))
    assert ops.take(X, 1, axis=0).type == TensorType((3,), "float32")
    assert ops.add(X, [1, 2, 3]).type == X.type


@pytest.mark.parametrize("value", [300, -1])
def test_numbers_that_a_type_does_not_have(value: int) -> None:
    with pytest.raises(TypeInferenceError, match=rf"{value} is out of range for uint8 \(operator add\)"):
        ops.add(tensor("uint8", 2), value)


@pytest.mark.parametrize("value", [None, "x", object()])
def test_objects_that_are_no_operands(value: Any) -> None:
    with pytest.raises(TypeInferenceError, match=r"operand 'b' must be an expression, a number or an array, got .*operator add"):
        ops.add(X, value)


# --- attributes -------------------------------------------------------------------------------------------------------


@given(axis=st.integers(-3, 2))
def test_negative_axes_count_from_the_last(axis: int) -> None:
    x = tensor("float32", 4, 5, 6)
    assert ops.softmax(x, axis=axis).attrs == ops.softmax(x, axis=axis % 3).attrs
    assert ops.reduce_sum(x, axes=[axis]).attrs == ops.reduce_sum(x, axes=(axis % 3,)).attrs
    assert ops.concat(x, x, axis=axis).type == ops.concat(x, x, axis=axis % 3).type
    assert ops.transpose(x, perm=(axis, (axis + 1) % 3, (axis + 2) % 3)).type == ops.transpose(
        x, perm=(axis % 3, (axis + 1) % 3, (axis + 2) % 3)
    ).type  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ops.softmax(X, axis=-3), r"axis must be >= -2 for an operand of rank 2, got -3 \(operator softmax\)"),
        (lambda: ops.softmax(X), r"attribute 'axis' is missing \(operator softmax\); call it as softmax\(x, \*, axis\)"),
        (lambda: ops.softmax(X, axis="a"), r"attribute 'axis' must be int, got 'a' \(operator softmax\)"),
        (lambda: ops.softmax(X, axes=1), r"got 'axes' \(is 'axis' meant\?\) \(operator softmax\)"),
        (lambda: ops.relu(X, slope=1), r"expected an operand or an attribute, got 'slope' \(operator relu\); call it as relu\(x\)"),
        (lambda: ops.cast(X, dtype=np.float32), r"attribute 'dtype' must be str, got <class 'numpy.float32'> \(operator cast\)"),
        (lambda: ops.transpose(X, perm=(0, "b")), r"attribute 'perm' must be tuple\[int, ...\]"),
        (lambda: ops.conv(IMAGE, IMAGE, pads=1), r"attribute 'pads' must be tuple\[Dim, ...\], got 1 \(operator conv\); call it"),
        (lambda: ops.reshape(X, shape=6), r"attribute 'shape' must be tuple\[Dim, ...\], got 6 \(operator reshape\)"),
        (lambda: ops.reshape(X, shape=("a", 3)), r"attribute 'shape' must be tuple\[Dim, ...\], got \('a', 3\)"),
        (lambda: PICK(X, range=3), r"attribute 'range' must be tuple\[int, int\], got 3 \(operator pick\)"),
        (lambda: PICK(X, range=(1, 2, 3)), r"attribute 'range' must be tuple\[int, int\], got \(1, 2, 3\)"),
        (lambda: PICK(X, range=(1, 2), by=None), r"attribute 'by' must be str \| int, got None"),
        (lambda: ops.add(X), r"expected 2 operands, got 1 \(operator add\)"),
        (lambda: ops.add(X, a=X), r"operand 'a' is given by position and by keyword \(operator add\)"),
        (lambda: ops.layer_norm(X, bias=X, axis=1), r"operand 'scale' is missing before 'bias' \(operator layer_norm\)"),
    ],
)
def test_wrong_arguments_name_the_operator(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        wrong()


# --- signatures -------------------------------------------------------------------------------------------------------


def test_operands_by_keyword() -> None:
    w = inlaid.constant(np.ones((3, 4), np.float32))
    assert ops.matmul(b=w, a=X).args == (X, w) == ops.matmul(X, b=w).args


def test_every_operator_has_a_signature() -> None:
    for operator in ops.OPERATORS:
        signature = inspect.signature(operator)
        assert list(signature.parameters)[-1] == "span"
    shown = str(inspect.signature(ops.layer_norm).replace(return_annotation=inspect.Signature.empty))
    assert shown == "(x, scale, bias=None, *, axis: 'int', epsilon: 'float' = 1e-05, span=None)"
    assert str(inspect.signature(ops.concat)).startswith("(*xs, axis: 'int'")
    assert "peephole_=None" in str(inspect.signature(ops.lstm))
    assert "infer" in inspect.signature(inlaid.Operator).parameters
