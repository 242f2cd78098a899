"""Threads for parallel loops: fork-join in native code, without a compiler on the user's machine.

The pool is written in LLVM text (`pool_text.py`), and ships as an image made of it. Workers are Python threads that enter the
native worker loop and never come back; they wait for a job by spinning a little, then by sleeping on a futex. The thread that opens
a job works on it too and waits only for workers that have joined: one that is still asleep is not waited for, so a job is never
slower than the work itself, and a process that forks, and so loses its workers, goes on alone. A pool serves one job at a time; a
job that finds it busy (another executable in another thread, or a nested parallel loop) runs serially.

Every thread has a range of a job's iterations of its own, the same part in every job of that many iterations, and takes chunks of
the others' ranges only when it is through with it: what one job wrote lies in the cache of the core that reads it in the next.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path

from inlaid.runtime.mapped import Mapped, map_image
from inlaid_x86.options import MACHINE

IMAGE = Path(__file__).with_name("pool.elf")
"""The compiled pool: `python -m inlaid_x86.pool_text` makes it."""
SPINS = 2000
"""How often a worker looks for a job before it sleeps, and how often whoever opened a job looks whether the others are done before
it lets other threads run: about 40 microseconds."""
_LOCK = threading.Lock()
"""Held while a pool is made: threads that ask for it at once get the same."""

RANGE_BYTES = 128
"""Two cache lines: what processors fetch at once."""

_CLOSED = 1 << 30


class Pool:
    """`threads` threads, the caller's included. `run` is the address of `inlaid_pool_run`, `state` that of the pool."""

    def __init__(self, threads: int) -> None:
        functions = _functions().addresses
        self.run: int = functions["inlaid_pool_run"]
        memory = (ctypes.c_int8 * (RANGE_BYTES * (threads + 2)))()
        self.state = -(-ctypes.addressof(memory) // RANGE_BYTES) * RANGE_BYTES
        self._memory = memory
        header = (ctypes.c_int32 * 12).from_address(self.state)
        header[3], header[11] = _CLOSED, threads
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(functions["inlaid_pool_worker"])
        for number in range(1, threads):
            threading.Thread(target=worker, args=(self.state, number), daemon=True, name=f"inlaid-x86-{number}").start()


@functools.cache
def _functions() -> Mapped:
    """The pool's functions. Workers never leave them, so that they stay mapped."""
    return map_image(IMAGE.read_bytes(), MACHINE, "the pool of threads")


def pool(threads: int) -> Pool:
    """The pool of that many threads; one per process, alive until it ends."""
    with _LOCK:
        return _made(threads)


@functools.cache
def _made(threads: int) -> Pool:
    return Pool(threads)
