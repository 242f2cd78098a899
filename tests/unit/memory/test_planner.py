"""Buffers that live together never overlap, and the arena is near the lower bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.memory import Lifetime, aligned, lower_bound, plan

N, M = SizeVar("n"), SizeVar("m")
SIZES = st.one_of(
    st.integers(0, 5000),
    st.builds(lambda c: arith.unwrap(c * N), st.integers(1, 300)),
    st.builds(lambda c: arith.unwrap(M * c * N), st.integers(1, 300)),
    st.builds(lambda c: arith.unwrap((N + 1) * c), st.integers(1, 300)),
    st.builds(lambda c: arith.unwrap(((N * -1) // 4) * (-1 * c)), st.integers(1, 300)),  # rounded up
)


@st.composite
def lifetimes(draw, sizes=SIZES):
    first = draw(st.integers(0, 12))
    return Lifetime(draw(sizes), first, first + draw(st.integers(0, 5)))


def check(buffers, arena, values):
    placed = []
    size = arith.evaluate(arena.size, values)
    for buffer, offset in zip(buffers, arena.offsets, strict=True):
        start = arith.evaluate(offset, values)
        end = start + arith.evaluate(buffer.size, values)
        assert start % 64 == 0
        assert 0 <= start <= end <= size
        for other, low, high in placed:
            lives_with = buffer.first <= other.last and other.first <= buffer.last
            assert not lives_with or end <= low or high <= start
        placed.append((buffer, start, end))
    assert size >= lower_bound(buffers, values=values)


@settings(deadline=None, max_examples=50)
@given(st.lists(lifetimes(), max_size=14), st.integers(0, 9), st.integers(0, 9))
def test_no_overlap_for_any_sizes(buffers, n, m):
    check(buffers, plan(buffers), {N: n, M: m})


@settings(deadline=None, max_examples=50)
@given(st.lists(lifetimes(st.integers(0, 5000)), min_size=1, max_size=30))
def test_the_peak_is_near_the_lower_bound(buffers):
    arena = plan(buffers)
    check(buffers, arena, {})
    assert arena.size <= 1.25 * lower_bound(buffers)


def test_a_chain_needs_two_buffers():
    chain = [Lifetime(1000 + 10 * step, step, step + 1) for step in range(50)]
    arena = plan(chain)
    assert arena.size == lower_bound(chain) == aligned(1480) + aligned(1490)


def test_a_residual_network_reaches_the_lower_bound():
    """Blocks of three layers whose input stays alive for the sum at their end."""
    buffers = []
    for block in range(16):
        size, step = 100_000 >> (block // 4), 4 * block
        buffers += [Lifetime(size, step, step + 4), *(Lifetime(size // 4 * part, step + part, step + part + 1) for part in (1, 2))]
        buffers.append(Lifetime(size, step + 3, step + 4))
    assert plan(buffers).size == lower_bound(buffers)


def test_a_dense_block_reaches_the_lower_bound():
    """What was joined (7) is scaled (7), convolved twice (4, then 1), and joined with that by a copy (8): the second convolution's
    result must lie above the copy, where the scaled values were, not above the first one's."""
    layers = [(8, 0, 1), (7, 1, 20), (7, 17, 18), (4, 18, 19), (1, 19, 20), (8, 20, 21)]
    buffers = [Lifetime(64 * units, first, last) for units, first, last in layers]
    assert plan(buffers).size == lower_bound(buffers)


def test_sizes_with_one_factor_share_as_constant_ones_do():
    coefficients = [64 * 3, 64 * 7, 64 * 2, 64 * 5]
    static = plan([Lifetime(c, i, i + 1) for i, c in enumerate(coefficients)])
    symbolic = plan([Lifetime(arith.unwrap(N * c), i, i + 1) for i, c in enumerate(coefficients)])
    assert arith.evaluate(symbolic.size, {N: 10}) == 10 * static.size


def test_a_symbolic_size_that_is_no_multiple_of_the_alignment():
    buffers = [Lifetime(arith.unwrap(N * 4), 0, 1), Lifetime(arith.unwrap(N * 12), 1, 2), Lifetime(arith.unwrap(N * 4), 2, 3)]
    arena = plan(buffers)
    for n in (0, 1, 15, 16, 1000):
        check(buffers, arena, {N: n})
    assert arith.evaluate(arena.size, {N: 1600}) == 16 * 1600


def test_no_buffers():
    assert plan([]).size == 0
    assert lower_bound([]) == 0


def test_ten_thousand_buffers_take_a_moment():
    buffers = [Lifetime(64 * (step % 37 + 1), step, step + step % 5) for step in range(10_000)]
    arena = plan(buffers)
    assert arena.size <= 1.05 * lower_bound(buffers)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_aligned(size):
    assert aligned(size) == -(-size // 64) * 64
    assert arith.evaluate(aligned(arith.unwrap(N * 1)), {N: size}) == aligned(size)


@st.composite
def chains(draw):
    """Buffers in a sequence of steps: each step reads some of those before and writes one; those read for the last time have head
    starts, drawn."""
    sizes = draw(st.lists(st.integers(1, 2000), min_size=2, max_size=9))
    last = [draw(st.integers(step, min(step + 2, len(sizes) - 1))) for step in range(len(sizes))]
    buffers = [Lifetime(size, step, last[step]) for step, size in enumerate(sizes)]
    starts = {}
    for step in range(1, len(sizes)):
        for other in range(step):
            if last[other] == step and draw(st.booleans()):
                starts[step, other] = draw(st.integers(-sizes[other], sizes[step]))
    return buffers, starts


@settings(deadline=None, max_examples=100)
@given(chains(), st.sampled_from([4, 16]))
def test_only_what_has_a_head_start_shares_memory(drawn, alignment):
    buffers, starts = drawn
    arena = plan(buffers, alignment, starts)
    for one, a in enumerate(buffers):
        at = arena.offsets[one]
        assert at % alignment == 0
        assert 0 <= at <= at + a.size <= arena.size
        for other, b in enumerate(buffers[:one]):
            other_offset = arena.offsets[other]
            apart = a.last < b.first or b.last < a.first or at + a.size <= other_offset or other_offset + b.size <= at
            assert apart or ((one, other) in starts and at + starts[one, other] <= other_offset)
    assert arena.size <= plan(buffers, alignment).size


def test_a_chain_of_images_needs_little_more_than_the_largest():
    """Depthwise and pointwise layers by turns: one begins a row before what it reads, the other an element."""
    sizes = [8000] * 9
    chain = [Lifetime(size, step, step + 1) for step, size in enumerate(sizes)]
    starts = {(step, step - 1): 384 if step % 2 else 64 for step in range(1, 9)}
    assert plan(chain, 4, starts).size == 8000 + 4 * (384 + 64)


def test_what_is_added_in_place_costs_nothing():
    """A block whose input stays for the sum at its end, which lies over both terms."""
    buffers = [Lifetime(4096, 0, 3), Lifetime(4096, 1, 2), Lifetime(4096, 2, 3), Lifetime(4096, 3, 4)]
    starts = {(2, 1): 256, (3, 0): 0, (3, 2): 0}
    assert plan(buffers, 4, starts).size == 2 * 4096 + 256


def test_what_lies_over_one_term_keeps_clear_of_the_other():
    """A sum over the second of two terms, which begins a little behind the first."""
    buffers = [Lifetime(4096, 0, 3), Lifetime(1024, 0, 1), Lifetime(4096, 1, 3), Lifetime(4096, 3, 4), Lifetime(1024, 4, 5)]
    starts = {(2, 1): 544, (3, 0): 0, (3, 2): 0, (4, 3): 32}
    arena = plan(buffers, 4, starts)
    for term in (0, 2):
        at, term_offset = arena.offsets[3], arena.offsets[term]
        assert at <= term_offset or term_offset + 4096 <= at
