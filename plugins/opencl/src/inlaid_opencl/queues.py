"""Command queues, which own the host arrays of pending copies."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid_runtime.execution.launch_queues import Flags, LaunchQueue

_STAGED_BYTES = 64 << 20
"""Maximum bytes of host memory that a queue stages for pending copies. A copy that exceeds the limit blocks."""


class Memory:
    """A buffer of a device."""

    __slots__ = ("__weakref__", "buffer", "size")

    def __init__(self, buffer: cl.Buffer, size: int) -> None:
        self.buffer = buffer
        self.size = size


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """Completion of a queue's commands up to number `sequence`."""

    queue: Queue
    sequence: int
    marker: cl.Event


class Queue(LaunchQueue):
    """An in-order command queue."""

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        super().__init__()
        self._context, self._device = context, device
        self.commands = cl.CommandQueue(context, device)
        self._timed: cl.CommandQueue | None = None
        self._staged: deque[tuple[int, object, int]] = deque()
        self._bytes = 0

    def timed(self) -> cl.CommandQueue:
        """Return the profiling queue, a second queue whose commands are timed. The first call creates it."""
        if self._timed is None:
            flag = cl.command_queue_properties.PROFILING_ENABLE
            self._timed = cl.CommandQueue(self._context, self._device, properties=flag)
        return self._timed

    def write(self, buffer: cl.Buffer, offset: int, source: np.ndarray[Any, Any]) -> None:
        """Enqueue a copy of host bytes to a buffer. The bytes must not change until the copy has completed."""
        self._hold(cl.enqueue_copy(self.commands, buffer, source, dst_offset=offset, is_blocking=False), source.nbytes)

    def read(self, buffer: cl.Buffer, offset: int, target: np.ndarray[Any, Any], commands: cl.CommandQueue | None = None) -> None:
        """Enqueue a copy of a buffer to host bytes. `commands`: profiling queue to use instead of this queue."""
        self._hold(cl.enqueue_copy(commands or self.commands, target, buffer, src_offset=offset, is_blocking=False), 0)

    def read_flags(self, flags: Flags) -> np.ndarray[Any, Any]:
        values = np.empty(flags.size, np.uint8)
        self.read(flags.memory.buffer, 0, values)
        return values

    def clear_flags(self, flags: Flags) -> None:
        self.write(flags.memory.buffer, 0, np.zeros(flags.size, np.uint8))

    def _hold(self, event: cl.Event, size: int) -> None:
        """Keep an event and the array that it references until its completion, since releasing a pending event blocks."""
        self.sequence += 1
        self._staged.append((self.sequence, event, size))
        self._bytes += size
        if self._bytes > _STAGED_BYTES:
            event.wait()
            self._release(self.sequence)

    def event(self) -> Event:
        """Enqueue a marker. It completes after all earlier commands and after the download of their fault flags."""
        self.check_reports()
        marker = cl.enqueue_marker(self.commands)
        self.commands.flush()
        return Event(self, self.sequence, marker)

    def finished(self, sequence: int) -> None:
        self._release(sequence)
        super().finished(sequence)

    def _release(self, sequence: int) -> None:
        self.completed_sequence = max(self.completed_sequence, sequence)
        while self._staged and self._staged[0][0] <= sequence:
            self._bytes -= self._staged.popleft()[2]

    def close(self) -> None:
        """Wait for all commands, even if some failed, and release the events and arrays of the queue."""
        for commands in filter(None, (self._timed, self.commands)):
            if not self.idle:
                with contextlib.suppress(cl.Error):
                    commands.finish()
        self.sessions.clear()
        self._staged.clear()


def flat_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """View a contiguous array as bytes. A memoryview does not work for dtypes of other packages without buffer protocol."""
    return array.reshape(-1).view(np.uint8)
