"""Log messages of compilation, sent to the logger "inlaid" and its children.

    logging.basicConfig(level=logging.INFO)

INFO shows each compilation with its regions and duration, or that the package came from the cache. DEBUG adds the duration of each
stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inlaid.package_cache import RegionFacts
    from inlaid_runtime.artifact.plan import RegionInfo

LOGGER = logging.getLogger("inlaid.compile")
logging.getLogger("inlaid").addHandler(logging.NullHandler())  # the application chooses the handlers


class StageLog:
    """Progress callback that logs one compilation and forwards to `then`."""

    def __init__(self, model: str, targets: Sequence[str], then: Callable[[str, int, int], None] | None) -> None:
        self._model = model
        self._then = then
        self._stage = ""
        self._begin = self._stage_begin = time.perf_counter()
        LOGGER.debug("compile %s for %s", model, ", ".join(targets))

    def __call__(self, stage: str, completed: int, total: int) -> None:
        if stage != self._stage:
            self._end_stage()
            self._stage = stage
        if self._then is not None:
            self._then(stage, completed, total)

    def _end_stage(self) -> None:
        now = time.perf_counter()
        if self._stage:
            LOGGER.debug("%s: %s took %.1f ms", self._model, self._stage, 1e3 * (now - self._stage_begin))
        self._stage_begin = now

    def finish(self, regions: Iterable[RegionInfo | RegionFacts], cached: bool = False) -> None:
        """Log the regions with their targets, or that the package came from the cache."""
        self._end_stage()
        seconds = time.perf_counter() - self._begin
        placed = ", ".join(f"{info.symbol} on {info.target}" for info in regions) or "no regions"
        LOGGER.info("%s %s in %.2f s: %s", "loaded from cache" if cached else "compiled", self._model, seconds, placed)
