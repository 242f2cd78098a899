"""Index maps print, parse, and give the shape that holds everything."""

from __future__ import annotations

import itertools

import pytest

from inlaid_runtime import arith
from inlaid_runtime.arith import Const, IndexMap, SizeVar, index_map, parse_index_map
from inlaid_runtime.errors import ParseError


def blocked() -> IndexMap:
    return index_map(2, lambda n, c: (n, c // 4, c % 4))


def test_text_reads_back() -> None:
    text = repr(blocked())
    assert text == "(i0, i1) -> (i0, (i1 // 4), (i1 % 4))"
    assert repr(parse_index_map(text)) == text
    assert repr(parse_index_map("() -> ()")) == "() -> ()"


@pytest.mark.parametrize("text", ["", "(i)", "(i) -> (j)", "(i) -> (i) x", "(i -> (i)", "(i) -> (i"])
def test_bad_text(text: str) -> None:
    with pytest.raises(ParseError):
        parse_index_map(text)


def test_shape_holds_every_element() -> None:
    layout = blocked()
    shape = layout.shape((3, 10))
    assert shape == (3, 3, 4)
    positions = set()
    for n, c in itertools.product(range(3), range(10)):
        position = tuple(arith.evaluate(index, {}) for index in layout((Const(n), Const(c))))
        assert all(0 <= index < extent for index, extent in zip(position, shape, strict=True) if isinstance(extent, int))
        positions.add(position)
    assert len(positions) == 30


def test_symbolic_shape() -> None:
    n = SizeVar("n", 1)
    assert index_map(2, lambda i, j: (j, i)).shape((n, 4)) == (4, n)


def test_negative_places_are_refused() -> None:
    with pytest.raises(ValueError, match="bounded, non-negative"):
        index_map(1, lambda i: (i - 1,)).shape((4,))
