"""Which variables indices tell: those of fused and split loops, and never one that they leave open."""

from __future__ import annotations

import itertools
from collections import defaultdict
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor.analysis.digits import is_determined
from inlaid_runtime import arith

OUTER, INNER, OTHER = arith.Var("o"), arith.Var("i"), arith.Var("k")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.sampled_from([2, 3, 4, 8, 10, 32]))
def test_a_fused_loop_that_is_split(extents: list[int], block: int) -> None:
    """However the indices are simplified."""
    total = prod(extents)
    outer = -(-total // block)
    ranges: arith.Bounds = {OUTER: (0, outer - 1), INNER: (0, block - 1)}
    analyzer = arith.Analyzer(ranges)
    number: arith.Expr = OUTER * block + INNER
    indices = []
    for extent in reversed(extents[1:]):
        indices.append(analyzer.simplify(number % extent))
        number = number // extent
    indices.append(analyzer.simplify(number))
    assert is_determined(OUTER, arith.Const(outer), indices, ranges)
    assert is_determined(INNER, arith.Const(block), indices, ranges)


@pytest.mark.parametrize("terms", [1, 2, 4, 8])
def test_a_fused_loop_over_sums_that_are_too_long_to_multiply(terms: int) -> None:
    """Products of the extents have no canonical form."""
    sizes = [[arith.Var(f"n{axis}_{number}") for number in range(terms)] for axis in range(4)]
    extents = [sum(dims, arith.Const(axis - 2)) for axis, dims in enumerate(sizes)]
    total = arith.wrap(arith.product(tuple(extents)))
    ranges: arith.Bounds = {dim: (2, None) for dims in sizes for dim in dims} | {OUTER: (0, None), INNER: (0, 31)}
    number: arith.Expr = OUTER * 32 + INNER
    indices = []
    for extent in reversed(extents[1:]):
        indices.append(number % extent)
        number = number // extent
    assert is_determined(OUTER, arith.ceildiv(total, 32), [*indices, number], ranges)
    assert not is_determined(OUTER, arith.ceildiv(total, 32), indices, ranges)


_TERMS = st.tuples(st.sampled_from([OUTER, INNER, OTHER]), st.integers(1, 8), st.sampled_from([1, 1, 2, 3, 4]))


@st.composite
def _index(draw: st.DrawFn) -> arith.Expr:
    """A sum of quotients, divided and cut off again."""
    total: arith.Expr = arith.wrap(draw(st.integers(0, 3)))
    for variable, weight, divisor in draw(st.lists(_TERMS, min_size=1, max_size=3)):
        total = total + (variable // divisor) * weight
    total = total // draw(st.sampled_from([1, 1, 2, 3]))
    size = draw(st.sampled_from([0, 0, 2, 3, 4, 5]))
    return arith.simplify(total % size if size else total)


@settings(max_examples=400, deadline=None)
@given(st.lists(_index(), min_size=1, max_size=3), st.tuples(*[st.integers(1, 6)] * 3))
def test_what_is_told_is_told(indices: list[arith.Expr], extents: tuple[int, int, int]) -> None:
    """Values of all variables that give the same indices agree in each variable that is said to be determined."""
    variables = (OUTER, INNER, OTHER)
    ranges: arith.Bounds = {var: (0, extent - 1) for var, extent in zip(variables, extents, strict=True)}
    points_by_indices: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for values in itertools.product(*map(range, extents)):
        at: dict[arith.Expr, int] = dict(zip(variables, values, strict=True))
        points_by_indices[tuple(arith.evaluate(index, at) for index in indices)].append(values)
    for axis, (var, extent) in enumerate(zip(variables, extents, strict=True)):
        if is_determined(var, arith.Const(extent), indices, ranges):
            assert all(len({values[axis] for values in points}) == 1 for points in points_by_indices.values())


def test_a_part_of_the_digits_tells_a_remainder() -> None:
    """Of `o * 16 + i` the digits below 80 tell `i`, and those below 40 do not."""
    ranges: arith.Bounds = {OUTER: (0, 14), INNER: (0, 15)}
    number = OUTER * 16 + INNER
    assert is_determined(INNER, arith.Const(16), [number % 5, number // 5 % 16], ranges)
    assert not is_determined(INNER, arith.Const(16), [number % 5, number // 5 % 8], ranges)


@pytest.mark.parametrize("digits", [(5, 4), (3, 6), (7, 2), (12, 7)])
@pytest.mark.parametrize("runs", [(2, 16, 2), (3, 8, 4)])
def test_places_of_tiles_tell_threads(digits: tuple[int, int], runs: tuple[int, int, int]) -> None:
    """Images, lines and pixels of a tile that is counted through; some divisors have factors in common with tiles."""
    line, image = digits
    blocks, threads, lanes = runs
    ranges: arith.Bounds = {INNER: (0, threads - 1), OUTER: (0, blocks - 1), OTHER: (0, lanes - 1)}
    position = OUTER * (threads * lanes) + (INNER * lanes + OTHER)
    assert is_determined(
        INNER, arith.Const(threads), [position // line // image, position // line % image, position % line], ranges
    )


def test_digits_of_neighbors_tell_a_number() -> None:
    """e % 4 is i % 4 where e is 8 * o + i."""
    position = OUTER * 8 + INNER
    indices = [position % 4, position // 84, position % 12 // 4, position // 12 % 7]
    assert is_determined(OUTER, arith.Const(21), indices, {OUTER: (0, 20), INNER: (0, 7)})


def test_digits_of_a_remainder_are_digits_of_the_number() -> None:
    """As tiles of several threads write them: the last line of a tile tells the lowest digit, the one before that above it."""
    ranges: arith.Bounds = {OUTER: (0, 11), INNER: (0, 3)}
    indices = [OUTER // 6 * 4 + INNER, OUTER % 6 // 3 * 4 + INNER, OUTER % 3 * 4 + INNER]
    assert is_determined(OUTER, arith.Const(12), indices, ranges)
    assert not is_determined(OUTER, arith.Const(12), [*indices[:1], *indices[2:]], ranges)
