"""Imports modules while the calling thread does work that releases the interpreter lock."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def preloading(modules: Sequence[str]) -> Iterator[None]:
    """Import modules in order in a thread. At the end of the block, it finishes the current one only. A module that cannot be
    imported raises when it is imported for use."""
    ended = threading.Event()

    def load() -> None:
        for name in modules:
            if ended.is_set():
                return
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="inlaid-preload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
