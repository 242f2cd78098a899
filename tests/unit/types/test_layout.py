"""A layout says where each element lies: its index, its shape, its order and its parts agree with what `pack` does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types.layout import ROW_MAJOR, Layout

PROPERTY = settings(deadline=None, max_examples=60)


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[Layout, np.ndarray]:
    """A layout, and a tensor that it may have, whose elements all differ from each other and from padding."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    blocks: list[tuple[int, int]] = []
    parts: dict[int, int] = {}
    for axis in draw(st.lists(st.integers(0, len(shape) - 1), max_size=3)):
        factors = [shape[axis], 1, 2, 3, 4, 6] if axis not in parts else [n for n in (1, 2, 3) if parts[axis] % n == 0]
        parts[axis] = draw(st.sampled_from(factors))
        blocks.append((axis, parts[axis]))
    return Layout(tuple(blocks)), np.arange(1, math.prod(shape) + 1).reshape(shape)


@PROPERTY
@given(laid_out())
def test_elements_lie_where_their_indices_say(drawn: tuple[Layout, np.ndarray]) -> None:
    layout, array = drawn
    packed = layout.pack(array)
    assert packed.shape == layout.shape(array.shape)
    assert layout.pads(array.shape) == (packed.size > array.size)
    for position, value in np.ndenumerate(array):
        packed_indices = layout.indices(tuple(map(arith.wrap, position)))
        assert packed[tuple(arith.evaluate(index, {}) for index in packed_indices)] == value
    assert np.count_nonzero(packed) == array.size


@PROPERTY
@given(laid_out())
def test_an_order_of_axes_is_that_of_the_bytes(drawn: tuple[Layout, np.ndarray]) -> None:
    layout, array = drawn
    order = layout.order(array.shape)
    axes = [axis for axis, _ in layout.blocks]
    is_unpadded = len({*axes}) == len(axes) and all(array.shape[axis] == factor for axis, factor in layout.blocks)
    assert (order is not None) == is_unpadded
    if order is not None:
        rest = [axis for axis in range(array.ndim) if axis not in order]
        assert all(array.shape[axis] == 1 for axis in rest) and all(array.shape[axis] > 1 for axis in order)
        np.testing.assert_array_equal(layout.pack(array).ravel(), array.transpose(*rest, *order).ravel())


def test_orders_of_axes() -> None:
    channels_last = Layout(((1, 5),))
    assert channels_last.order((2, 5, 3, 4)) == [0, 2, 3, 1]
    assert channels_last.order((1, 5, 3, 1)) == [2, 1]
    assert ROW_MAJOR.order((2, 1, 3)) == [0, 2]
    assert Layout(((1, 4),)).order((2, 5, 3, 4)) is None
    assert channels_last.order((SizeVar("n"), 5, 3, 4)) is None


@PROPERTY
@given(laid_out())
def test_the_canonical_layout_has_the_same_bytes(drawn: tuple[Layout, np.ndarray]) -> None:
    layout, array = drawn
    plain = layout.canonical(array.shape)
    np.testing.assert_array_equal(plain.pack(array).ravel(), layout.pack(array).ravel())


@PROPERTY
@given(laid_out(), st.data())
def test_a_part_begins_where_it_says(drawn: tuple[Layout, np.ndarray], data: st.DataObject) -> None:
    layout, array = drawn
    axis = data.draw(st.integers(0, array.ndim - 1))
    start = data.draw(st.integers(0, array.shape[axis] - 1))
    extent = data.draw(st.integers(1, array.shape[axis] - start))
    offset = layout.part(array.shape, axis, start, extent)
    if offset is not None:
        part = layout.pack(array.take(range(start, start + extent), axis)).ravel()
        np.testing.assert_array_equal(layout.pack(array).ravel()[offset : offset + part.size], part)


@pytest.mark.parametrize(("start", "extent", "offset"), [(0, 8, 0), (8, 4, None), (4, 4, None), (0, 6, None), (8, 5, 8 * 12)])
def test_parts_are_whole_blocks_or_the_end(start: int, extent: int, offset: int | None) -> None:
    assert Layout(((1, 8),)).part((1, 13, 3, 4), 1, start, extent) == offset
