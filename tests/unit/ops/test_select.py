"""Operators whose results have a size that only a run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.ir import var
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType, Type, dtype

from .harness import Array, check, raises_for

SETTINGS = settings(deadline=None, max_examples=30)
N, M = SizeVar("n"), SizeVar("m")
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def drawn(data: st.DataObject, shape: tuple[int, ...], values: tuple[float, ...], dtype_name: str = "float32") -> Array:
    count = int(np.prod(shape))
    return (
        np.array(data.draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))
        .astype(dtype(dtype_name).numpy)
        .reshape(shape)
    )


@SETTINGS
@given(shapes, st.sampled_from(("float32", "bool", "int8", "uint2", "float16")), st.data())
def test_nonzero(shape: tuple[int, ...], dtype_name: str, data: st.DataObject) -> None:
    x = drawn(data, shape, (0, 0, 1), dtype_name)
    (result,) = check(ops.nonzero, x)
    assert result.shape == (len(shape), np.count_nonzero(x))
    if shape:
        assert np.array_equal(result, np.array(np.nonzero(x)))


def test_nan_is_not_zero_but_minus_zero_is() -> None:
    (result,) = check(ops.nonzero, np.float32([0, -0.0, np.nan, 1]))
    assert result.tolist() == [[2, 3]]


@SETTINGS
@given(st.integers(0, 6), st.integers(0, 2), st.booleans(), st.data())
def test_unique(rows: int, columns: int, ordered: bool, data: st.DataObject) -> None:
    x = drawn(data, (rows, columns), (0, 1, -1, np.nan))
    first, inverse, counts = check(ops.unique, x, ordered=ordered)
    distinct = x[first]
    assert np.array_equal(distinct[inverse], x, equal_nan=True)
    assert counts.sum() == rows
    assert [inverse.tolist().index(group) for group in range(len(first))] == first.tolist()
    if not ordered:
        assert sorted(first.tolist()) == first.tolist()
    elif columns == 1:
        assert np.array_equal(distinct[:, 0], np.unique(x), equal_nan=True)


def test_unique_takes_minus_zero_for_zero() -> None:
    first, _, counts = check(ops.unique, np.float32([[0], [-0.0], [1]]))
    assert (first.tolist(), counts.tolist()) == ([0, 2], [2, 1])


def test_unique_of_strings_has_a_reference() -> None:
    words = np.array([["b"], ["a"], ["b"]], object)
    first, inverse, counts = ops.unique.reference(ops.unique.attrs(), words)
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])


@SETTINGS
@given(st.integers(1, 2), st.integers(1, 2), st.integers(0, 6), st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_non_max_suppression(batches: int, classes: int, boxes: int, limit: int, center: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    places = random.integers(0, 4, (batches, boxes, 4)).astype(np.float32)
    scores = random.integers(0, 5, (batches, classes, boxes)).astype(np.float32)
    overlap, least = np.float32(0.4), np.float32(0.5)
    (result,) = check(ops.non_max_suppression, places, scores, overlap, least, max_output=limit, center=center)
    for batch, number, box in result:
        assert scores[batch, number, box] > 0.5
    _, counts = np.unique(result[:, :2], axis=0, return_counts=True)
    assert all(count <= limit for count in counts)


def test_overlap_at_the_threshold_is_no_overlap() -> None:
    boxes = np.float32([[[0, 0, 1, 1], [0, 0, 1, 0.5], [1, 1, 0, 0]]])  # the last is the first with its corners exchanged
    scores = np.float32([[[0.9, 0.8, 0.7]]])
    (result,) = check(ops.non_max_suppression, boxes, scores, np.float32(0.5), np.float32(0), max_output=3)
    assert result.tolist() == [[0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(("dtype_name", "levels"), [("float32", 5), ("float32", 1000), ("float64", 1000), ("float16", 40)])
def test_boxes_are_visited_in_runs_until_enough_are_kept(dtype_name: str, levels: int) -> None:
    """Most boxes of class 0 overlap the first one, so that it takes all of them; those of class 1 are few above the threshold."""
    random = np.random.default_rng(levels)
    places = np.tile(np.array([0, 0, 4, 4]), (1, 700, 1)).astype(dtype_name)
    places[0, 600:] = random.integers(0, 40, (100, 4))
    scores = (random.integers(1, levels + 1, (1, 2, 700)) / levels).astype(dtype_name)
    scores[0, :, 300:320] = np.nan
    scores[0, 1] -= np.array(0.9, dtype_name)
    result = check(ops.non_max_suppression, places, scores, np.array(0.3, dtype_name), np.array(0.05, dtype_name), max_output=20)[0]
    assert len(result[result[:, 1] == 0]) == 20


LIMITS = st.sampled_from((-9, -3, -1, 0, 2, 4, 9, 2**62, -(2**63)))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 5), st.sampled_from((1, 2, -1, -3)), LIMITS, LIMITS)
def test_dynamic_slice(extent: int, stride: int, start: int, end: int) -> None:
    x = np.arange(2 * extent, dtype=np.float32).reshape(2, extent)
    (result,) = check(ops.dynamic_slice, x, np.array([start]), np.array([end]), axes=(1,), strides=(stride,))
    assert np.array_equal(result, x[:, max(start, -extent) : end : stride])


def test_symbolic_shapes() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (3, 4)).astype(np.float32)
    check(ops.nonzero, x, shapes=((N, M),))
    check(ops.unique, x, shapes=((N, M),))
    bounds = np.array([0, 1]), np.array([9, 3])
    check(ops.dynamic_slice, x, *bounds, shapes=((N, M), (2,), (2,)), axes=(1, 0), strides=(2, 1))
    boxes, scores = random.normal(size=(2, 5, 4)).astype(np.float32), random.normal(size=(2, 3, 5)).astype(np.float32)
    limits = np.float32(0.3), np.float32(0.1)
    check(ops.non_max_suppression, boxes, scores, *limits, shapes=((N, M, 4), (N, 3, M), (), ()), max_output=2)


def bound(type_: Type) -> Dim | None:
    assert isinstance(type_, TensorType)
    (size,) = (dim for dim in type_.shape if isinstance(dim, SizeVar))
    assert size.existential
    return size.upper


def test_bounds_of_existential_dimensions() -> None:
    """Buffers are sized by these."""
    x = var("x", TensorType((3, 4), "float32"))
    positions = ops.nonzero(x)
    assert bound(positions.type) == 12
    assert bound(ops.nonzero(ops.take(positions, positions, axis=1)).type) == 2 * 2 * 12
    boxes, scores, limit = (var("b", TensorType(shape, "float32")) for shape in ((1, 100, 4), (1, 2, 100), ()))
    assert bound(ops.non_max_suppression(boxes, scores, limit, limit, max_output=7).type) == 14


@pytest.mark.parametrize(
    ("operator", "arrays", "attrs", "message"),
    [
        ("unique", (np.zeros(3),), {}, "x must be a matrix, got rank 1"),
        (
            "dynamic_slice",
            (np.zeros(3), np.zeros(2, int), np.zeros(1, int)),
            {"axes": (0,), "strides": (1,)},
            "dimension 0 of the starts must be 1, got 2",
        ),
        (
            "dynamic_slice",
            (np.zeros(3), np.zeros(1, int), np.zeros(1, int)),
            {"axes": (0,), "strides": (0,)},
            "strides must have 1 non-zero elements, got",
        ),
        ("dynamic_slice", (np.zeros(3), np.zeros(1, int), np.zeros(1, int)), {"axes": (1,), "strides": (1,)}, "out of range"),
        (
            "non_max_suppression",
            (np.zeros((1, 5, 3)), np.zeros((1, 1, 5)), np.float64(0), np.float64(0)),
            {"max_output": 1},
            "dimension 2 of the boxes must be 4, got 3",
        ),
        (
            "non_max_suppression",
            (np.zeros((1, 5, 4)), np.zeros((1, 1, 6)), np.float64(0), np.float64(0)),
            {"max_output": 1},
            "dimension 1 of the boxes must be 6, got 5",
        ),
    ],
)
def test_ill_typed_calls_are_refused(operator: str, arrays: tuple[Array, ...], attrs: dict[str, Any], message: str) -> None:
    raises_for(ops.TABLE[operator], message, *arrays, **attrs)
