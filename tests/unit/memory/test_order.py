"""Orders of steps: the least peak of all that there are, by trying them all."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.memory.order import ExecutionStep, Work, best_order, peak_memory


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Step n writes buffer n, or a part of one that another writes too, and reads some of those before and of two inputs."""
    count = draw(st.integers(1, 6))
    steps: list[ExecutionStep] = []
    for number in range(count):
        reads = draw(st.sets(st.sampled_from([-2, -1, *range(number)]), max_size=3))
        writes = draw(st.sampled_from([number, max(number - 1, 0)])) if number and number - 1 not in reads else number
        if writes in reads or any(writes in step.reads for step in steps):
            writes = number
        steps.append(ExecutionStep(tuple(sorted(reads)), (writes,), ()))
    written = {buffer for step in steps for buffer in step.writes}
    for number, step in enumerate(steps):
        reads = tuple(buffer for buffer in step.reads if buffer < 0 or buffer in written)
        steps[number] = ExecutionStep(reads, step.writes, tuple(n for n in range(number) if set(steps[n].writes) & set(reads)))
    buffers = sorted(written | {buffer for step in steps for buffer in step.reads})
    sizes = {buffer: draw(st.integers(1, 100)) for buffer in buffers}
    shared = {
        (step.writes[0], other): draw(st.integers(0, min(sizes[step.writes[0]], sizes[other])))
        for step in steps
        for other in step.reads[:1]
    }
    return Work(tuple(steps), sizes, frozenset(draw(st.sets(st.sampled_from(buffers)))), shared)


def possible(work: Work, order: tuple[int, ...]) -> bool:
    """Whether all that a step needs runs before it."""
    return all(set(work.steps[number].needs) <= set(order[:position]) for position, number in enumerate(order))


@settings(deadline=None, max_examples=80)
@given(works())
def test_no_order_needs_less(work: Work) -> None:
    best = best_order(work)
    assert sorted(best) == list(range(len(work.steps)))
    assert possible(work, best)
    every = [order for order in permutations(range(len(work.steps))) if possible(work, order)]
    assert peak_memory(work, best) == min(peak_memory(work, order) for order in every)


@settings(deadline=None, max_examples=40)
@given(works())
def test_without_a_search_no_order_is_worse_than_the_one_given(work: Work) -> None:
    order = best_order(work, states=1)
    assert possible(work, order)
    assert peak_memory(work, order) <= peak_memory(work, range(len(work.steps)))


def test_the_branch_that_grows_comes_last() -> None:
    """Two branches of one input: what is small in the end runs first, though it is large on the way."""
    steps = (
        ExecutionStep((0,), (1,), ()),
        ExecutionStep((0,), (2,), ()),
        ExecutionStep((2,), (3,), (1,)),
        ExecutionStep((1, 3), (4,), (0, 2)),
    )
    work = Work(steps, {0: 10, 1: 40, 2: 60, 3: 5, 4: 5}, frozenset({4}), {})
    assert peak_memory(work, range(4)) == 110
    assert best_order(work) == (1, 2, 0, 3)
    assert peak_memory(work, (1, 2, 0, 3)) == 75


def test_what_is_best_already_stays() -> None:
    chain = tuple(ExecutionStep((number,), (number + 1,), (number - 1,) if number else ()) for number in range(300))
    work = Work(chain, dict.fromkeys(range(301), 7), frozenset({300}), {})
    assert best_order(work) == tuple(range(300))
    assert peak_memory(work, range(300)) == 14
