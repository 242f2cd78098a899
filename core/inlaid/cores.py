"""Number of CPU cores for parallel work of this process."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
