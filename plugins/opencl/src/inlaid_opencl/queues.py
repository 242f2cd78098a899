"""Queues: what is on them, what lives until it is done, and the faults that kernels report."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid.errors import KernelFault

_NUMBERS = itertools.count(1)
_HELD_BYTES = 64 << 20
"""Bytes of host memory that a queue may hold for copies to come; what comes then waits for those before."""


class Memory:
    """A buffer of a device. `number` is its own: no other buffer of the process ever has it."""

    __slots__ = ("__weakref__", "buffer", "number", "size")

    def __init__(self, buffer: cl.Buffer, size: int) -> None:
        self.buffer = buffer
        self.size = size
        self.number = next(_NUMBERS)


class Flags:
    """An int32 for each call of a region, in the device's memory, to which kernels write 1 where an index is out of range.

    `parts` are the flags as buffers for kernels; `fault` makes the message of a call by its number."""

    def __init__(self, memory: Memory, stride: int, count: int, fault: Callable[[int], KernelFault]) -> None:
        self.memory = memory
        self.fault = fault
        self._stride = stride // 4
        self.parts = [memory.buffer.get_sub_region(number * stride, 4) for number in range(count)]

    def clear(self, queue: Queue) -> None:
        """Set all flags to 0, in the queue's order."""
        queue.write(self.memory.buffer, 0, np.zeros(self.memory.size, np.uint8))

    def first(self, found: np.ndarray[Any, Any]) -> KernelFault | None:
        """The fault of the first call whose flag is set in what was read."""
        calls = np.flatnonzero(found.view(np.int32)[:: self._stride])
        return self.fault(int(calls[0])) if calls.size else None


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """All that was on a queue up to number `sequence`."""

    queue: Queue
    sequence: int
    marker: cl.Event


class Queue:
    """An in-order command queue.

    What is put on it has the numbers 1 to `sequence`; all up to `done` is done. `sessions` is what regions keep for runs on this
    queue. Used by one thread at a time.
    """

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        self._context, self._device = context, device
        self.commands = cl.CommandQueue(context, device)
        self.sequence = self.done = 0
        self.sessions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._timed: cl.CommandQueue | None = None
        self._held: deque[tuple[int, object, int]] = deque()
        self._bytes = 0
        self._reporting: dict[Flags, None] = {}
        self._checks: deque[tuple[int, Flags, np.ndarray[Any, Any]]] = deque()

    @property
    def idle(self) -> bool:
        """Whether nothing is on the queue."""
        return self.sequence == self.done

    def timed(self) -> cl.CommandQueue:
        """A queue beside this one whose events have times."""
        if self._timed is None:
            flag = cl.command_queue_properties.PROFILING_ENABLE
            self._timed = cl.CommandQueue(self._context, self._device, properties=flag)
        return self._timed

    def write(self, buffer: cl.Buffer, offset: int, source: np.ndarray[Any, Any]) -> None:
        """Put a copy of bytes to a buffer on the queue. They must not change until it is done."""
        self._hold(cl.enqueue_copy(self.commands, buffer, source, dst_offset=offset, is_blocking=False), source.nbytes)

    def read(self, buffer: cl.Buffer, offset: int, target: np.ndarray[Any, Any], commands: cl.CommandQueue | None = None) -> None:
        """Put a copy of a buffer to bytes on the queue, or on the neighbour of it that `commands` is."""
        self._hold(cl.enqueue_copy(commands or self.commands, target, buffer, src_offset=offset, is_blocking=False), 0)

    def put(self) -> None:
        """Note that something was put on the queue."""
        self.sequence += 1

    def reports(self, flags: Flags) -> None:
        """Note that kernels on the queue may set flags."""
        self._reporting[flags] = None

    def _hold(self, event: cl.Event, size: int) -> None:
        """Keep an event, and the array in it, until it is done: to drop it before would wait for it."""
        self.sequence += 1
        self._held.append((self.sequence, event, size))
        self._bytes += size
        if self._bytes > _HELD_BYTES:
            event.wait()
            self._release(self.sequence)

    def event(self) -> Event:
        """An event that comes when all that is on the queue by now is done, and its faults are known."""
        for flags in self._reporting:
            found = np.empty(flags.memory.size, np.uint8)
            self.read(flags.memory.buffer, 0, found)
            self._checks.append((self.sequence, flags, found))
        self._reporting.clear()
        marker = cl.enqueue_marker(self.commands)
        self.commands.flush()
        return Event(self, self.sequence, marker)

    def finished(self, sequence: int) -> None:
        """Note that all up to a number is done. Raises `KernelFault` where a kernel among that has reported one."""
        self._release(sequence)
        fault = None
        while self._checks and self._checks[0][0] <= sequence:
            _, flags, found = self._checks.popleft()
            reported = flags.first(found)
            if reported is not None:
                flags.clear(self)
                fault = fault or reported
        if fault is not None:
            raise fault

    def _release(self, sequence: int) -> None:
        self.done = max(self.done, sequence)
        while self._held and self._held[0][0] <= sequence:
            self._bytes -= self._held.popleft()[2]

    def close(self) -> None:
        """Wait for what is on the queue, whatever becomes of it, and let go of all that it holds."""
        for commands in filter(None, (self._timed, self.commands)):
            if not self.idle:
                with contextlib.suppress(cl.Error):
                    commands.finish()
        self.sessions.clear()
        self._held.clear()


def flat_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of a row-major array, without a copy. Types of other packages have no buffer protocol."""
    return array.reshape(-1).view(np.uint8)


def sizes_text(sizes: Sequence[int]) -> str:
    """Extents in words: 4 x 8 x 1."""
    return " x ".join(map(str, sizes))
