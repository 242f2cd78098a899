"""The order in which the interpreter runs the threads of a phase."""

from __future__ import annotations

import numpy as np


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
