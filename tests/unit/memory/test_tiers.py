"""Two memories: no overlap in either, nothing beyond the fast one, and what is used most in it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.memory import Lifetime, plan
from inlaid_runtime.memory.tiers import plan_tiers

N = SizeVar("n")
SIZES = st.one_of(st.integers(0, 400), st.just(arith.unwrap(N * 16)))


@st.composite
def buffer_uses(draw: st.DrawFn) -> tuple[Lifetime, int]:
    """A buffer, and how often it is used."""
    first = draw(st.integers(0, 8))
    return Lifetime(draw(SIZES), first, first + draw(st.integers(0, 4))), draw(st.integers(0, 9))


@settings(deadline=None, max_examples=60)
@given(st.lists(buffer_uses(), max_size=9), st.integers(0, 900), st.sampled_from([4, 16]))
def test_each_buffer_has_a_place_of_its_own_in_one_of_them(buffers: list[tuple[Lifetime, int]], fast: int, alignment: int) -> None:
    lives = [life for life, _ in buffers]
    tiers = plan_tiers(lives, [uses for _, uses in buffers], fast, alignment)
    values = {N: 5}
    sizes = [arith.evaluate(life.size, values) for life in lives]
    starts = [arith.evaluate(offset, values) for offset in tiers.offsets]
    assert tiers.fast <= fast
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        assert start % alignment == 0
        assert start + size <= (tiers.fast if number in tiers.in_fast else arith.evaluate(tiers.slow, values))
        assert number not in tiers.in_fast or isinstance(lives[number].size, int)
    for one, other in combinations(range(len(lives)), 2):
        apart = starts[one] + sizes[one] <= starts[other] or starts[other] + sizes[other] <= starts[one]
        together = lives[one].first <= lives[other].last and lives[other].first <= lives[one].last
        assert apart or not together or (one in tiers.in_fast) != (other in tiers.in_fast)


def test_without_fast_memory_it_is_one_plan() -> None:
    lives = [Lifetime(100, 0, 2), Lifetime(60, 1, 3), Lifetime(40, 3, 4)]
    tiers, arena = plan_tiers(lives, [1, 5, 2], 0, 16), plan(lives, 16)
    assert (tiers.offsets, tiers.slow) == (arena.offsets, arena.size)
    assert (tiers.in_fast, tiers.fast) == (frozenset(), 0)


def test_what_is_used_most_for_its_bytes_is_fast() -> None:
    lives = [Lifetime(64, 0, 9), Lifetime(64, 0, 9), Lifetime(32, 0, 9), Lifetime(16 * N, 0, 9)]
    assert plan_tiers(lives, [2, 8, 2, 99], 64, 16).in_fast == {1}
    assert plan_tiers(lives, [2, 8, 2, 99], 96, 16).in_fast == {1, 2}
    assert plan_tiers(lives, [9, 1, 1, 99], 96, 16).in_fast == {0, 2}


def test_a_buffer_that_is_too_large_makes_no_room_for_itself() -> None:
    lives = [Lifetime(1000, 0, 1), Lifetime(32, 0, 1), Lifetime(32, 1, 2), Lifetime(32, 2, 3)]
    tiers = plan_tiers(lives, [99, 1, 1, 1], 64, 16)
    assert tiers.in_fast == {1, 2, 3}
    assert (tiers.fast, tiers.slow) == (64, 1008)
