"""Queues of devices that run grids of threads: completion by sequence number, and faults that kernels report."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid_runtime.errors import KernelFault
from inlaid_runtime.plugins.device import Opaque


class Flags:
    """Fault flags of a region in device memory: one int32 per call, `stride` bytes apart; `size` is the total size in bytes.

    A kernel writes 1 to the flag of its call if an index is out of range. `fault` creates the error of a call number."""

    def __init__(self, memory: Opaque, size: int, stride: int, fault: Callable[[int], KernelFault]) -> None:
        self.memory, self.size = memory, size
        self._stride, self._fault = stride // 4, fault

    def first(self, flag_bytes: np.ndarray[Any, Any]) -> KernelFault | None:
        """Return the error of the first call whose flag is set in downloaded bytes; None if none is set."""
        calls = np.flatnonzero(flag_bytes.view(np.int32)[:: self._stride])
        return self._fault(int(calls[0])) if calls.size else None


class LaunchQueue(ABC):
    """An in-order queue of a device, used by one thread at a time.

    Enqueued commands are numbered 1 to `sequence`; commands 1 to `completed_sequence` have completed. `sessions` caches the
    per-queue state of regions.
    """

    def __init__(self) -> None:
        self.sequence = self.completed_sequence = 0
        self.sessions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._reporting: dict[Flags, None] = {}
        self._checks: deque[tuple[int, Flags, np.ndarray[Any, Any]]] = deque()

    @abstractmethod
    def read_flags(self, flags: Flags) -> np.ndarray[Any, Any]:
        """Enqueue a download of flags. Returns the host bytes, valid once the download has completed."""

    @abstractmethod
    def clear_flags(self, flags: Flags) -> None:
        """Enqueue a reset of flags to 0."""

    @property
    def idle(self) -> bool:
        """Whether all commands are known to have completed."""
        return self.sequence == self.completed_sequence

    def put(self) -> None:
        """Count a command that was enqueued."""
        self.sequence += 1

    def reports(self, flags: Flags) -> None:
        """Record that enqueued kernels may set `flags`; the next event reads the flags back."""
        self._reporting[flags] = None

    def check_reports(self) -> None:
        """Enqueue downloads of all flags that enqueued kernels may set."""
        for flags in self._reporting:
            flag_bytes = self.read_flags(flags)
            self._checks.append((self.sequence, flags, flag_bytes))
        self._reporting.clear()

    def finished(self, sequence: int) -> None:
        """Record that commands up to number `sequence` have completed. Raises the first `KernelFault` among their reports."""
        self.completed_sequence = max(self.completed_sequence, sequence)
        fault = None
        while self._checks and self._checks[0][0] <= sequence:
            _, flags, flag_bytes = self._checks.popleft()
            reported = flags.first(flag_bytes)
            if reported is not None:
                self.clear_flags(flags)
                fault = fault or reported
        if fault is not None:
            raise fault
