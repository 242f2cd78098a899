"""What compilation tells Python's `logging`: the logger "inlaid" and those below it.

    logging.basicConfig(level=logging.INFO)

shows each compilation with its regions and its time, or that it was found compiled; DEBUG shows each stage with its time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inlaid.artifact.plan import RegionInfo

LOGGER = logging.getLogger("inlaid.compile")
logging.getLogger("inlaid").addHandler(logging.NullHandler())  # an application decides what becomes of messages


class StageLog:
    """Progress of one compilation that is logged, and passed on to `then`."""

    def __init__(self, model: str, targets: Sequence[str], then: Callable[[str, int, int], None] | None) -> None:
        self._model = model
        self._then = then
        self._stage = ""
        self._begin = self._since = time.perf_counter()
        LOGGER.debug("compile %s for %s", model, ", ".join(targets))

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._end_stage()
            self._stage = stage
        if self._then is not None:
            self._then(stage, done, total)

    def _end_stage(self) -> None:
        now = time.perf_counter()
        if self._stage:
            LOGGER.debug("%s: %s took %.1f ms", self._model, self._stage, 1e3 * (now - self._since))
        self._since = now

    def finish(self, regions: Iterable[RegionInfo], cached: bool = False) -> None:
        """Log the result: the regions with their targets, or that the package comes from the cache."""
        self._end_stage()
        seconds = time.perf_counter() - self._begin
        placed = ", ".join(f"{info.symbol} on {info.target}" for info in regions) or "no regions"
        LOGGER.info("%s %s in %.2f s: %s", "found compiled" if cached else "compiled", self._model, seconds, placed)
