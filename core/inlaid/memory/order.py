"""In which order to run steps so that the least memory is in use at once.

A set of steps that has run together with all that it needs is a state; running one step more leads to another, and costs what lives
while it runs. The way to the state of all steps whose dearest step is cheapest is found as shortest ways are (Dijkstra, 1959), with
the greatest cost on the way in place of the sum. Networks have few steps that can run at any time, so that there are few states;
where there are too many, the steps that free most are run first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

STATES = 1 << 14
"""States after which the search is given up: well under a second."""


@dataclass(frozen=True)
class Step:
    """What one step reads and writes, by numbers of buffers, and the numbers of the steps that must have run before."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """Steps in an order in which they can run; the bytes of the buffers that they use; which of these live on after all steps; and
    how many bytes a buffer that is written may share with another that the same step reads last."""

    steps: tuple[Step, ...]
    sizes: Mapping[int, int]
    results: frozenset[int]
    shared: Mapping[tuple[int, int], int]


def best_order(work: Work, states: int = STATES) -> tuple[int, ...]:
    """The numbers of the steps in an order in which the least memory is in use at once: the one given where none is better. Exact
    unless there are more states than given."""
    search = _Search(work)
    given = tuple(range(len(work.steps)))
    bound = search.peak(given)
    found = search.exact(states, bound) or search.greedy()
    return found if search.peak(found) < bound else given


def peak_of(work: Work, order: Sequence[int]) -> int:
    """The most bytes in use at once when the steps run in an order."""
    return _Search(work).peak(order)


def bytes_of(work: Work, order: Sequence[int]) -> list[int]:
    """The bytes in use during each step of an order."""
    return list(_Search(work).uses(order))


class _Search:
    """States are sets of steps, as bits of an integer. A buffer lives from the first step that writes it, or from the beginning,
    until all that read it have run."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.writers: dict[int, int] = {}
        self.readers: dict[int, int] = {}
        for number, step in enumerate(work.steps):
            for buffer in step.writes:
                self.writers[buffer] = self.writers.get(buffer, 0) | 1 << number
            for buffer in step.reads:
                self.readers[buffer] = self.readers.get(buffer, 0) | 1 << number
        self.needs = [sum({1 << other for other in step.needs}) for step in work.steps]
        self.all = (1 << len(work.steps)) - 1
        self.start = sum(size for buffer, size in work.sizes.items() if buffer not in self.writers)

    def run(self, state: int, live: int, number: int) -> tuple[int, int]:
        """(bytes in use while a step runs, bytes that live after it)."""
        step = self.work.steps[number]
        sizes = self.work.sizes
        fresh = [buffer for buffer in dict.fromkeys(step.writes) if not self.writers[buffer] & state]
        after = state | 1 << number
        gone = [
            buffer
            for buffer in dict.fromkeys((*step.reads, *step.writes))
            if buffer not in self.work.results and not (self.readers.get(buffer, 0) | self.writers.get(buffer, 0)) & ~after
        ]
        used = live + sum(sizes[buffer] for buffer in fresh)
        dying = [buffer for buffer in gone if buffer in step.reads]
        saved = sum(self.work.shared.get((over, under), 0) for over in fresh for under in dying)
        return used - saved, used - sum(sizes[buffer] for buffer in gone)

    def ready(self, state: int) -> Iterator[int]:
        """The steps that can run next."""
        return (n for n, needs in enumerate(self.needs) if not state >> n & 1 and not needs & ~state)

    def peak(self, order: Sequence[int]) -> int:
        return max([self.start, *self.uses(order)])

    def uses(self, order: Sequence[int]) -> Iterator[int]:
        """The bytes in use during each step."""
        state, live = 0, self.start
        for number in order:
            used, live = self.run(state, live, number)
            state |= 1 << number
            yield used

    def exact(self, states: int, bound: int) -> tuple[int, ...] | None:
        """An order of the least peak, None where there are too many states or none is below the bound."""
        came: dict[int, tuple[int, int]] = {}
        waiting = [(self.start, 0, 0, self.start, -1, -1)]
        while waiting and len(came) < states:
            most, _, state, live, before, number = heapq.heappop(waiting)
            if state in came:
                continue
            came[state] = before, number
            if state == self.all:
                return tuple(reversed(list(_way(came, state))))
            for following in self.ready(state):
                after = state | 1 << following
                if after not in came:
                    used, left = self.run(state, live, following)
                    if max(most, used) < bound:
                        # Of equal peaks those that have come furthest first.
                        heapq.heappush(waiting, (max(most, used), -after.bit_count(), after, left, state, following))
        return None

    def greedy(self) -> tuple[int, ...]:
        """An order in which the step that leaves the least alive comes next."""
        state, live, order = 0, self.start, []
        while state != self.all:
            costs = {n: self.run(state, live, n) for n in self.ready(state)}
            number = min(costs, key=lambda n: (costs[n][1], costs[n][0], n))
            live = costs[number][1]
            state |= 1 << number
            order.append(number)
        return tuple(order)


def _way(came: Mapping[int, tuple[int, int]], state: int) -> Iterator[int]:
    """The steps that led to a state, the last first."""
    while state:
        state, number = came[state]
        yield number
