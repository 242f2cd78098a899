"""Thread pool for parallel loops: fork-join in native code. The compiled code is part of the distribution.

The pool is written in LLVM text (`pool_text.py`) and ships as an image compiled from it. Workers are Python threads that enter the
native worker loop and never return. They wait for a job by spinning briefly, then by sleeping on a futex. The thread that opens a
job also works on it, and waits only for workers that have joined: it does not wait for sleeping workers, so a job is never slower
than serial work. A forked process has no workers and continues serially. A pool serves one job at a time; if it is busy (with
another executable in another thread, or an outer parallel loop), the job runs serially.

Each thread owns a range of a job's iterations, the same range for every job of equal length, and steals chunks of other ranges only
after finishing its own. Data written by one job is therefore in the cache of the core that reads it in the next.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path

from inlaid_runtime.artifact.image import Machine
from inlaid_runtime.execution.mapped import Mapped, map_image

MACHINE = Machine(number=62, relative=8, page=4096)
"""Architecture of images: EM_X86_64, R_X86_64_RELATIVE, and the page size of Linux on x86-64."""
IMAGE = Path(__file__).with_name("pool.elf")
"""The compiled pool, written by `python -m inlaid_x86.pool_text`."""
SPINS = 2000
"""Spin iterations before an idle worker sleeps, and before a thread that waits for workers yields: about 40 us."""
_LOCK = threading.Lock()
"""Lock held while a pool is created, so that concurrent threads get the same pool."""

RANGE_BYTES = 128
"""Bytes of the record of a thread's range: two cache lines, since processors prefetch pairs of lines."""

_CLOSED = 1 << 30


class Pool:
    """A pool of `threads` threads, including the caller's. `run`: address of `inlaid_pool_run`. `state`: address of the pool."""

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
    """Map the pool's functions. They stay mapped, because workers never leave them."""
    return map_image(IMAGE.read_bytes(), MACHINE, "the pool of threads")


def pool(threads: int) -> Pool:
    """Return the process-wide pool of `threads` threads, which lives until the process ends."""
    with _LOCK:
        return _create_pool(threads)


@functools.cache
def _create_pool(threads: int) -> Pool:
    return Pool(threads)
