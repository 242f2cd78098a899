"""Reading and writing at indices found in data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import dtype

from .harness import Array, check, check_faults, raises_for

SETTINGS = settings(deadline=None, max_examples=30)
N, M = SizeVar("n"), SizeVar("m")
REDUCTIONS = ("none", "add", "mul", "min", "max")

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
nonempty_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def array(shape: tuple[int, ...], dtype_name: str = "float32") -> Array:
    return (np.arange(math.prod(shape)).reshape(shape) % 7).astype(dtype(dtype_name).numpy)


def indices(data: st.DataObject, shape: tuple[int, ...], extent: int, dtype_name: str = "int64") -> Array:
    """Indices into an axis, negative ones among them."""
    count = math.prod(shape)
    drawn = data.draw(st.lists(st.integers(-extent, extent - 1), min_size=count, max_size=count)) if count else []
    return np.array(drawn, dtype_name).reshape(shape)


@SETTINGS
@given(nonempty_shapes, shapes, st.data())
def test_take(shape: tuple[int, ...], rows: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    where = indices(data, rows, shape[axis], data.draw(st.sampled_from(("int32", "int64"))))
    (result,) = check(ops.take, array(shape), where, axis=axis)
    assert np.array_equal(result, np.take(array(shape), where, axis))


@SETTINGS
@given(nonempty_shapes, st.data())
def test_take_along_axis(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    rows = tuple(data.draw(st.integers(0, 5 if position == axis else extent)) for position, extent in enumerate(shape))
    check(ops.take_along_axis, array(shape), indices(data, rows, shape[axis]), axis=axis)


@SETTINGS
@given(nonempty_shapes, st.data())
def test_gather_nd(shape: tuple[int, ...], data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, len(shape)))
    depth = data.draw(st.integers(0, len(shape) - batch))
    rows = (*shape[:batch], *data.draw(st.lists(st.integers(0, 3), max_size=2)))
    columns = [indices(data, rows, shape[batch + axis]) for axis in range(depth)]
    where = np.stack(columns, -1) if columns else np.zeros((*rows, 0), np.int64)
    check(ops.gather_nd, array(shape), where, batch_dims=batch)


@SETTINGS
@given(st.integers(0, 1), st.booleans(), st.data())
def test_reverse_sequence(batch: int, trailing: bool, data: st.DataObject) -> None:
    shape = (3, 4, 2) if trailing else (3, 4)
    time = 1 - batch
    lengths = data.draw(st.lists(st.integers(0, shape[time]), min_size=shape[batch], max_size=shape[batch]))
    x = array(shape)
    (result,) = check(ops.reverse_sequence, x, np.array(lengths, np.int64), batch_axis=batch, time_axis=time)
    for number, length in enumerate(lengths):
        row, expected = (np.moveaxis(item, batch, 0)[number] for item in (result, x))
        assert np.array_equal(row[:length], expected[:length][::-1])
        assert np.array_equal(row[length:], expected[length:])


@pytest.mark.parametrize("dtype_name", ["float32", "float16", "int8", "bool"])
@SETTINGS
@given(nonempty_shapes, st.sampled_from(REDUCTIONS), st.data())
def test_scatter_nd(dtype_name: str, shape: tuple[int, ...], reduction: str, data: st.DataObject) -> None:
    depth = data.draw(st.integers(0, len(shape)))
    rows = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    columns = [indices(data, rows, shape[axis]) for axis in range(depth)]
    where = np.stack(columns, -1) if columns else np.zeros((*rows, 0), np.int64)
    updates = array((*rows, *shape[depth:]), dtype_name)
    check(ops.scatter_nd, array(shape, dtype_name), where, updates, reduction="none" if dtype_name == "bool" else reduction)


@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16", "uint8"])
@SETTINGS
@given(nonempty_shapes, st.sampled_from(REDUCTIONS), st.data())
def test_scatter_along_axis(dtype_name: str, shape: tuple[int, ...], reduction: str, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    rows = tuple(data.draw(st.integers(0, 5 if position == axis else extent)) for position, extent in enumerate(shape))
    where = indices(data, rows, shape[axis])
    check(ops.scatter_along_axis, array(shape, dtype_name), where, array(rows, dtype_name), axis=axis, reduction=reduction)


def test_of_several_updates_the_last_counts() -> None:
    (result,) = check(ops.scatter_along_axis, array((3,)), np.array([1, 1, -2]), np.float32([5, 6, 7]), axis=0)
    assert result.tolist() == [0, 7, 2]


def test_narrow_floats_are_rounded_once_after_all_updates() -> None:
    """2048 + 1 + 1 is 2050 in float16, but 2048 if every sum is rounded."""
    updates = np.ones(2, np.float16)
    (result,) = check(ops.scatter_nd, np.float16([2048]), np.zeros((2, 1), np.int64), updates, reduction="add")
    assert result.tolist() == [2050]


def test_symbolic_shapes() -> None:
    x, where = array((3, 4)), np.array([[1, -1]])
    check(ops.take, x, where[0], shapes=((N, 4), (M,)), axis=0)
    check(ops.take_along_axis, x, where, shapes=((N, 4), (1, M)), axis=0)
    check(ops.gather_nd, x, where, shapes=((N, M), (1, 2)))
    check(ops.scatter_nd, x, where, array((1,)), shapes=((N, M), (1, 2), (1,)))
    check(ops.scatter_along_axis, x, where, array((1, 2)), shapes=((N, 4), (1, M), (1, M)), axis=0)
    check(ops.reverse_sequence, x, np.array([2, 3, 4]), shapes=((N, M), (N,)), batch_axis=0, time_axis=1)


@pytest.mark.parametrize("index", [3, -4, 2**40, -(2**40)])
def test_an_index_outside_is_an_error(index: int) -> None:
    x, one = array((3, 4)), np.array([[index]])
    check_faults(ops.take, x, one, axis=0)
    check_faults(ops.take_along_axis, x, one, axis=0)
    check_faults(ops.gather_nd, x, one)
    check_faults(ops.scatter_nd, x, one, array((1, 4)))
    check_faults(ops.scatter_along_axis, x, one, array((1, 1)), axis=0)


def test_no_index_lies_in_an_empty_axis() -> None:
    check_faults(ops.take, array((0, 2)), np.array([0]), axis=0)
    check(ops.take, array((0, 2)), np.zeros(0, np.int64), axis=0)


@pytest.mark.parametrize("length", [-1, 5])
def test_a_length_outside_is_an_error(length: int) -> None:
    check_faults(ops.reverse_sequence, array((1, 4)), np.array([length]), batch_axis=0, time_axis=1)


def test_an_index_that_selects_no_elements_is_not_checked() -> None:
    """A loop over the elements of an empty result checks none of them."""
    empty, outside = array((4, 0)), np.array([[9]])
    check(ops.take, empty, outside, axis=0)
    check(ops.gather_nd, empty, outside)
    check(ops.scatter_nd, empty, outside, array((1, 0)))
    check(ops.scatter_along_axis, empty, array((2, 0), "int64"), array((2, 0)), axis=0)
    check(ops.reverse_sequence, array((2, 0)), np.array([1, 1]), batch_axis=0, time_axis=1)
    check(ops.reverse_sequence, array((1, 3, 0)), np.array([7]), batch_axis=0, time_axis=1)


@pytest.mark.parametrize(
    ("operator", "arrays", "attrs", "message"),
    [
        ("take", (array((3,)), array((3,))), {"axis": 0}, "the indices must have a dtype of kind int or uint, got float32"),
        ("take", (array(()), array((), "int64")), {"axis": 0}, "out of range"),
        ("take_along_axis", (array((3,)), array((3, 1), "int64")), {"axis": 0}, "rank"),
        ("take_along_axis", (array((3, 2)), array((3, 3), "int64")), {"axis": 0}, "dimension 1 of the indices must be <= 2, got 3"),
        ("gather_nd", (array((3,)), array((1, 2), "int64")), {}, "the last dimension of the indices must be <= 1, got 2"),
        ("gather_nd", (array((3,)), array((), "int64")), {}, "the indices must have rank >= 1, got rank 0"),
        (
            "gather_nd",
            (array((3, 2)), array((2, 1), "int64")),
            {"batch_dims": 1},
            "batch dimension 0 of the indices must be 3, got 2",
        ),
        ("scatter_nd", (array((3,)), array((2, 1), "int64"), array((3,))), {}, "dimension 0 of the updates must be 2, got 3"),
        (
            "scatter_nd",
            (array((3,)), array((2, 1), "int64"), array((2,))),
            {"reduction": "sub"},
            "reduction must be one of none, add, mul, min, max, got",
        ),
        (
            "scatter_nd",
            (array((3,)), array((2, 1), "int64"), array((2,), "int64")),
            {},
            "the operands must have one dtype, got float32, int64",
        ),
        (
            "scatter_along_axis",
            (array((3,)), array((2,), "int64"), array((3,))),
            {"axis": 0},
            "dimension 0 of the updates must be 2, got 3",
        ),
        (
            "reverse_sequence",
            (array((3, 2)), array((3,), "int64")),
            {"batch_axis": 0, "time_axis": 0},
            "batch_axis and time_axis must differ, got 0 for both",
        ),
        (
            "reverse_sequence",
            (array((3, 2)), array((2,), "int64")),
            {"batch_axis": 0, "time_axis": 1},
            "dimension 0 of the lengths must be 3, got 2",
        ),
    ],
)
def test_ill_typed_calls_are_refused(operator: str, arrays: tuple[Array, ...], attrs: dict[str, Any], message: str) -> None:
    raises_for(ops.TABLE[operator], message, *arrays, **attrs)
