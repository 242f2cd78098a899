"""The order in which the interpreter runs the threads of a phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

_Stop = tuple[object, tuple[int, ...], int]
"""The point at which a thread waits: the statement, the group of threads that must arrive there, and the size of the group."""
_START: _Stop = (None, (), 0)


class ThreadOrder:
    """Generates a random permutation of threads for each phase, determined by the seed.

    A permutation of three or more threads is never ascending or descending. Some thread thus runs before its lower neighbor and
    some other thread after its lower neighbor, which exposes races in either direction.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def next(self, count: int) -> list[int]:
        """Return the order of `count` threads for the next phase."""
        order: list[int] = self._random.permutation(count).tolist()
        monotone = order in (list(range(count)), list(range(count))[::-1])
        return [*order[1:], order[0]] if count > 2 and monotone else order

    def run(self, thread: Callable[..., Iterator[_Stop]], counts: tuple[int, ...]) -> None:
        """Run the threads of a block, each up to its next barrier, until all threads end. Fails on deadlock."""
        running = [thread(*index) for index in np.ndindex(*counts)]
        stops: list[_Stop | None] = [_START] * len(running)
        open_stops = {_START}
        while open_stops:
            for number in self.next(len(running)):
                if stops[number] in open_stops:
                    stops[number] = next(running[number], None)
            open_stops = {stop for stop, count in Counter(stops).items() if stop is not None and stop[2] == count}
        assert not any(stops), "some threads wait at a barrier that others never reach"
