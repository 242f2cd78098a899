"""Orders the steps of a program to minimize the peak memory in use.

A state is a set of executed steps that is closed under dependences. Running one more step is an edge to another state; its cost is
the memory live during that step. The best order is a bottleneck shortest path to the full set: Dijkstra's algorithm with the
maximum cost along a path in place of the sum. Networks have few steps ready at any time, hence few states. If there are too many
states, a greedy order runs the step that leaves the least memory live first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from inlaid_runtime.records import dataclass

STATES = 1 << 14
"""Maximum number of states that the search visits, which takes well under a second."""


@dataclass(frozen=True)
class ExecutionStep:
    """A step: the numbers of the buffers that it reads and writes, and the numbers of the steps that must run before it."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """A scheduling problem: steps in a valid order; buffer sizes in bytes; the buffers that stay live at the end (`results`); and
    `shared`, which maps (written, read) to the bytes that the two buffers may share if the step that writes `written` is the last
    to read `read`."""

    steps: tuple[ExecutionStep, ...]
    sizes: Mapping[int, int]
    results: frozenset[int]
    shared: Mapping[tuple[int, int], int]


def best_order(work: Work, states: int = STATES) -> tuple[int, ...]:
    """Find the order, as step numbers, with the smallest peak memory, or the given order if none is better. The result is optimal
    unless the search exceeds `states` states."""
    search = _Search(work)
    program_order = tuple(range(len(work.steps)))
    bound = search.peak(program_order)
    candidate = search.exact(states, bound) or search.greedy()
    return candidate if search.peak(candidate) < bound else program_order


def peak_memory(work: Work, order: Sequence[int]) -> int:
    """Return the peak memory of an order, in bytes."""
    return _Search(work).peak(order)


def memory_by_step(work: Work, order: Sequence[int]) -> list[int]:
    """Return the memory in use during each step of an order, in bytes."""
    return list(_Search(work).uses(order))


class _Search:
    """A search over states, which are sets of steps as bit masks. A buffer is live from its first writer, or from the beginning,
    until all its readers have run."""

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
        self.final_state = (1 << len(work.steps)) - 1
        self.start = sum(size for buffer, size in work.sizes.items() if buffer not in self.writers)

    def run(self, state: int, live: int, number: int) -> tuple[int, int]:
        """Return (bytes in use while step `number` runs, bytes live after it)."""
        step = self.work.steps[number]
        sizes = self.work.sizes
        fresh = [buffer for buffer in dict.fromkeys(step.writes) if not self.writers[buffer] & state]
        after = state | 1 << number
        dead_buffers = [
            buffer
            for buffer in dict.fromkeys((*step.reads, *step.writes))
            if buffer not in self.work.results and not (self.readers.get(buffer, 0) | self.writers.get(buffer, 0)) & ~after
        ]
        bytes_in_use = live + sum(sizes[buffer] for buffer in fresh)
        last_reads = [buffer for buffer in dead_buffers if buffer in step.reads]
        shared = sum(self.work.shared.get((written, read), 0) for written in fresh for read in last_reads)
        return bytes_in_use - shared, bytes_in_use - sum(sizes[buffer] for buffer in dead_buffers)

    def runnable_steps(self, state: int) -> Iterator[int]:
        """Iterate over the steps that can run next: not yet executed, with all dependences executed."""
        return (n for n, needs in enumerate(self.needs) if not state >> n & 1 and not needs & ~state)

    def peak(self, order: Sequence[int]) -> int:
        return max([self.start, *self.uses(order)])

    def uses(self, order: Sequence[int]) -> Iterator[int]:
        """Iterate over the bytes in use during each step of an order."""
        state, live = 0, self.start
        for number in order:
            bytes_in_use, live = self.run(state, live, number)
            state |= 1 << number
            yield bytes_in_use

    def exact(self, states: int, bound: int) -> tuple[int, ...] | None:
        """Find an optimal order. None if there are more than `states` states, or no order has a peak below `bound`."""
        edges: dict[int, tuple[int, int]] = {}  # the state before each visited state, and the step between them
        frontier = [(self.start, 0, 0, self.start, -1, -1)]
        while frontier and len(edges) < states:
            peak, _, state, live, before, number = heapq.heappop(frontier)
            if state in edges:
                continue
            edges[state] = before, number
            if state == self.final_state:
                return tuple(reversed(list(_executed_steps(edges, state))))
            for step in self.runnable_steps(state):
                after = state | 1 << step
                if after not in edges:
                    bytes_in_use, live_after = self.run(state, live, step)
                    if max(peak, bytes_in_use) < bound:
                        # Among equal peaks, expand the state with the most executed steps first.
                        heapq.heappush(frontier, (max(peak, bytes_in_use), -after.bit_count(), after, live_after, state, step))
        return None

    def greedy(self) -> tuple[int, ...]:
        """Build an order by always running the step that leaves the least memory live."""
        state, live, order = 0, self.start, []
        while state != self.final_state:
            costs = {n: self.run(state, live, n) for n in self.runnable_steps(state)}
            number = min(costs, key=lambda n: (costs[n][1], costs[n][0], n))
            live = costs[number][1]
            state |= 1 << number
            order.append(number)
        return tuple(order)


def _executed_steps(edges: Mapping[int, tuple[int, int]], state: int) -> Iterator[int]:
    """Iterate over the steps that led to a state, last step first."""
    while state:
        state, number = edges[state]
        yield number
