"""Thresholds of the garbage collector for processes that compile."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

COLLECTIONS = (500_000, 20, 100)
"""Thresholds. Compilation allocates millions of small objects, few of them in cycles: at Python's default thresholds, collections
that find nothing take a tenth of its time."""


def collect_rarely() -> None:
    """Set the thresholds, for the whole process."""
    gc.set_threshold(*COLLECTIONS)


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Set the thresholds, for the whole process, within a block. No-op if collections are already as rare, or off."""
    before = gc.get_threshold()
    if not 0 < before[0] < COLLECTIONS[0]:
        yield
        return
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
