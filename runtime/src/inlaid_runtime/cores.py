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
    """Call `work` with one argument from each iterable at a time, in one thread per usable core. Raises the first error."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(work, *arguments))


def in_background(work: Callable[[], T]) -> Callable[[], T]:
    """Start work in a thread, which ends with the process. Returns a function that waits for the result, or raises the error."""
    import threading
    from concurrent.futures import Future

    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result
