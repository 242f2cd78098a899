"""Streams of a device, events on them, and recordings of launches as CUDA graphs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlaid_cuda.driver import Context, DriverError, Prepared
from inlaid_runtime.execution.arrays import address
from inlaid_runtime.execution.launch_queues import Flags, LaunchQueue

STAGED = 1 << 16
"""Largest upload in bytes that is staged in page-locked memory."""
_STAGE_BYTES, _STAGE_ALIGNMENT = 4 * STAGED, 64
"""Bytes of page-locked memory of a queue for pending uploads, and the alignment of uploads in it."""


class Memory:
    """Device memory. Compares by address, so bound launches are reused if memory is freed and allocated again."""

    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and other.address == self.address

    def __hash__(self) -> int:
        return self.address


class Event:
    """Completion of a queue's commands up to number `sequence`. When garbage-collected, it frees its handle."""

    __slots__ = ("_spare", "handle", "queue", "sequence")

    def __init__(self, queue: Queue, handle: int, spare: list[int]) -> None:
        self.queue, self.sequence = queue, queue.sequence
        self.handle, self._spare = handle, spare

    def __del__(self) -> None:
        self._spare.append(self.handle)


class Recording:
    """Recorded launches, and the `graph` that `end_capture` instantiates from them. It owns the resources that the launches use.
    `refused`: a region could not be recorded."""

    def __init__(self) -> None:
        self.launches: list[Prepared] = []
        self.flags: dict[Flags, None] = {}
        self.refused = False
        self.graph: int | None = None
        self._owners: list[object] = []

    def add(self, launches: Sequence[Prepared], flags: Flags | None, owner: object) -> None:
        """Record launches that may set `flags` and use resources owned by `owner`."""
        self.launches += launches
        self._owners.append(owner)
        if flags is not None:
            self.flags[flags] = None


class Queue(LaunchQueue):
    """A stream. During a capture, launches go to `recording` instead of the stream. `spare_stages` is page-locked memory of queues
    that were closed, for reuse, since locking pages takes longer than most uploads."""

    def __init__(
        self,
        context: Context,
        pinned: Callable[[int], np.ndarray[Any, Any]],
        spare_stages: list[np.ndarray[Any, Any]],
    ) -> None:
        super().__init__()
        self._spare_stages = spare_stages
        self._stage: np.ndarray[Any, Any] | None = None
        self._stage_end = 0
        self.stream = context.stream()
        self.recording: Recording | None = None
        self._context, self._pinned = context, pinned
        self._mirrors: weakref.WeakKeyDictionary[Flags, np.ndarray[Any, Any]] = weakref.WeakKeyDictionary()

    def staged(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Copy a small array to page-locked memory, which keeps the bytes until the commands that follow have completed. Returns
        None for an array of more than `STAGED` bytes. Waits for the stream if pending uploads fill the memory."""
        if array.nbytes > STAGED:
            return None
        if self._stage is None:
            try:
                self._stage = self._spare_stages.pop()
            except IndexError:
                self._stage = self._pinned(_STAGE_BYTES)
        if self.idle:
            self._stage_end = 0
        elif self._stage_end + array.nbytes > _STAGE_BYTES:
            self._context.synchronize(self.stream)
            self._stage_end = 0
        copy: np.ndarray[Any, Any] = (
            self._stage[self._stage_end : self._stage_end + array.nbytes].view(array.dtype).reshape(array.shape)
        )
        copy[...] = array
        self._stage_end += -(-array.nbytes // _STAGE_ALIGNMENT) * _STAGE_ALIGNMENT
        return copy

    def read_flags(self, flags: Flags) -> np.ndarray[Any, Any]:
        mirror = self._mirrors.get(flags)
        if mirror is None:
            mirror = self._mirrors[flags] = self._pinned(flags.size)
        self._context.download(address(mirror), flags.memory.address, flags.size, self.stream)
        self.put()
        return mirror

    def clear_flags(self, flags: Flags) -> None:
        self._context.clear(flags.memory.address, flags.size, self.stream)
        self.put()

    def close(self) -> None:
        """Wait for all commands, even if some failed, and release the stream and the sessions."""
        with contextlib.suppress(DriverError):
            if not self.idle:
                self._context.synchronize(self.stream)
            if self._stage is not None:
                self._spare_stages.append(self._stage)
                self._stage = None
        with contextlib.suppress(DriverError):
            self._context.destroy_stream(self.stream)
        self.sessions.clear()
