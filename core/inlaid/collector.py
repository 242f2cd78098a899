"""Thresholds of the garbage collector for processes that compile."""

from __future__ import annotations

import gc

COLLECTIONS = (500_000, 20, 100)
"""Thresholds. Compilation allocates millions of small objects, few of them in cycles: at Python's default thresholds, collections
that find nothing take a tenth of its time."""


def collect_rarely() -> None:
    """Set the thresholds, for the whole process."""
    gc.set_threshold(*COLLECTIONS)
