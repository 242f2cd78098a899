"""Number of CPU cores for parallel work of this process, and work on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[..., object], *arguments: Iterable[Any]) -> None:
    """Call `work` with arguments from each iterable, by one thread per usable core. Raises the first error."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(work, *arguments))


def in_background(work: Callable[[], T]) -> Callable[[], T]:
    """Start work in a thread. Returns a function that waits for the result, or raises the error."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    result = pool.submit(work)
    pool.shutdown(wait=False)
    return result.result
