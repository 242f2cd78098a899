"""Queues of devices with threads: how far they have come, and the faults that kernels on them report."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.errors import KernelFault
from inlaid.plugins.device import Opaque


class Flags:
    """An int32 for each call of a region, at multiples of `stride` bytes of `size` bytes of a device's memory. A kernel writes 1 to
    that of its call where an index is out of range. `fault` makes the error of a call by its number."""

    def __init__(self, memory: Opaque, size: int, stride: int, fault: Callable[[int], KernelFault]) -> None:
        self.memory, self.size = memory, size
        self._stride, self._fault = stride // 4, fault

    def first(self, found: np.ndarray[Any, Any]) -> KernelFault | None:
        """The fault of the first call whose flag is set in the bytes that were read."""
        calls = np.flatnonzero(found.view(np.int32)[:: self._stride])
        return self._fault(int(calls[0])) if calls.size else None


class LaunchQueue(ABC):
    """An in-order queue of a device, used by one thread at a time.

    What is put on it has the numbers 1 to `sequence`; all up to `done` is done. `sessions` is what regions keep for runs on this
    queue.
    """

    def __init__(self) -> None:
        self.sequence = self.done = 0
        self.sessions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._reporting: dict[Flags, None] = {}
        self._checks: deque[tuple[int, Flags, np.ndarray[Any, Any]]] = deque()

    @abstractmethod
    def read_flags(self, flags: Flags) -> np.ndarray[Any, Any]:
        """Put a copy of flags to the host on the queue: the bytes that hold them once that is done."""

    @abstractmethod
    def clear_flags(self, flags: Flags) -> None:
        """Put it on the queue to set flags to 0."""

    @property
    def idle(self) -> bool:
        """Whether all commands are known to have completed."""
        return self.sequence == self.done

    def put(self) -> None:
        """Count a command that was enqueued."""
        self.sequence += 1

    def reports(self, flags: Flags) -> None:
        """Note that enqueued kernels may set flags; the next event reads them back."""
        self._reporting[flags] = None

    def check_reports(self) -> None:
        """Put copies of all flags that kernels on the queue may have set on the queue."""
        for flags in self._reporting:
            found = self.read_flags(flags)
            self._checks.append((self.sequence, flags, found))
        self._reporting.clear()

    def finished(self, sequence: int) -> None:
        """Note the completion of commands up to a number. Raises the `KernelFault` that one of them reported."""
        self.done = max(self.done, sequence)
        fault = None
        while self._checks and self._checks[0][0] <= sequence:
            _, flags, found = self._checks.popleft()
            reported = flags.first(found)
            if reported is not None:
                self.clear_flags(flags)
                fault = fault or reported
        if fault is not None:
            raise fault
