"""The order in which the interpreter runs the threads of a phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

_Stop = tuple[object, tuple[int, ...], int]
"""Where a thread waits: the statement, the group of threads that meet there, and how many these are."""
_START: _Stop = (None, (), 0)


class ThreadOrder:
    """Permutations of threads, a new one for each phase, the same ones for each seed.

    No permutation of three threads or more is ascending or descending: among neighbours, some thread runs before the one below it
    and some other after it, so that a race shows in whichever direction it goes.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def next(self, count: int) -> list[int]:
        """The order for a phase of some number of threads."""
        order: list[int] = self._random.permutation(count).tolist()
        monotone = order in (list(range(count)), list(range(count))[::-1])
        return [*order[1:], order[0]] if count > 2 and monotone else order

    def run(self, thread: Callable[..., Iterator[_Stop]], counts: tuple[int, ...]) -> None:
        """Run the threads of a block, each to where it waits for others, until all end. Fails where some wait for ever."""
        running = [thread(*index) for index in np.ndindex(*counts)]
        stops: list[_Stop | None] = [_START] * len(running)
        ready = {_START}
        while ready:
            for number in self.next(len(running)):
                if stops[number] in ready:
                    stops[number] = next(running[number], None)
            ready = {stop for stop, count in Counter(stops).items() if stop is not None and stop[2] == count}
        assert not any(stops), "some threads wait at a barrier that others never reach"
