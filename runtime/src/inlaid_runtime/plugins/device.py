"""Device memory in the plugin contract, for targets whose values are not in host memory.

A runtime module returns its device from `RuntimeModule.device()`. The executor allocates arenas and weights on it, moves values as
the plan says, and launches kernels on queues. Buffers, queues and events are opaque to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from inlaid_runtime.errors import InputError
from inlaid_runtime.records import dataclass

Opaque = Any
"""A handle of the device: a buffer, a queue or an event."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A row-major tensor in device memory, at byte `offset` (a multiple of 64) of a buffer, with elements of `dtype`. Buffers are
    hashable; equal buffers are the same memory."""

    buffer: Opaque
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class MemoryFacts:
    """Total and free memory of a device, in bytes."""

    total: int
    free: int


class Device(ABC):
    """A device with its own memory and asynchronous queues.

    Work on a queue runs in order, some time after the call returns. Its errors (`KernelFault`, `OutOfMemory`, `DeviceLost`) are
    raised by a later call, at the latest by `synchronize`. Once a device is lost, every call raises `DeviceLost`, except `free` and
    `release`, which never raise. Methods are thread-safe, but a queue is used by one thread at a time.
    """

    @abstractmethod
    def allocate(self, size: int) -> Opaque:
        """Allocate a buffer of at least `size` > 0 bytes. Raises `OutOfMemory` at once, without waiting for other threads."""

    @abstractmethod
    def free(self, buffer: Opaque) -> None:
        """Free a buffer that no queued work uses."""

    @abstractmethod
    def queue(self) -> Opaque:
        """Create a queue. Work on different queues is ordered by events only."""

    @abstractmethod
    def release(self, queue: Opaque) -> None:
        """Release a queue, even if work on it is not finished. This work is done all the same, and completes its events."""

    @abstractmethod
    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Opaque) -> None:
        """Copy a row-major host array to a tensor of the same shape and dtype. `source` may change once this returns."""

    @abstractmethod
    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Opaque) -> None:
        """Copy a tensor to a row-major host array of the same shape and dtype. `target` is valid once the queue has executed the
        copy."""

    @abstractmethod
    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Opaque) -> None:
        """Copy a tensor to another tensor of the same shape and dtype that does not overlap `source`. Both may start at any element
        of a buffer, since loops copy single rows."""

    @abstractmethod
    def event(self, queue: Opaque) -> Opaque:
        """Record an event that completes when all work enqueued so far is done."""

    @abstractmethod
    def wait(self, queue: Opaque, event: Opaque) -> None:
        """Make a queue wait for an event of any queue of this device before it starts further work."""

    @abstractmethod
    def synchronize(self, event: Opaque) -> None:
        """Block until an event completes. Raises the errors of work enqueued before the event."""

    @abstractmethod
    def memory(self) -> MemoryFacts:
        """Query the size of the device's memory."""

    def dlpack_device(self) -> tuple[int, int] | None:
        """DLPack device type and number; None if the device does not support DLPack."""
        return None

    def export(self, tensor: DeviceTensor, owner: object, stream: Any) -> object:
        """Export a tensor as a DLPack capsule that keeps `owner` alive; `stream` is as for `__dlpack__`. No work on the tensor is
        pending. `inlaid_runtime.execution.dlpack` makes capsules from addresses. Raises `BufferError` if export is impossible."""
        raise BufferError("the device does not support DLPack")

    def attribute(self, name: str, tensor: DeviceTensor) -> object:
        """Attribute of a device array by which other libraries read it, besides DLPack. Raises `AttributeError` for other names."""
        raise AttributeError(name)

    def adopts(self, value: Any) -> bool:
        """Test whether an object is a tensor on this device. The default compares `__dlpack_device__`."""
        where = self.dlpack_device()
        return where is not None and hasattr(value, "__dlpack_device__") and tuple(map(int, value.__dlpack_device__())) == where

    def adopt(self, value: Any) -> tuple[DeviceTensor, object]:
        """Wrap an object that `adopts` accepts as a tensor, without a copy. Returns the tensor and an object that keeps its memory
        alive. Raises `InputError` if the memory cannot be read in place."""
        raise InputError("the device cannot import tensors", remedy="pass an array in host memory")

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Allocate page-locked host memory of at least `size` bytes, as uint8 aligned to 64, for faster copies; None if
        unsupported."""
        return None


class CapturingDevice(Device):
    """A device that can record launches and replay them in one call, such as a CUDA graph. The executor replays a recording if a
    run repeats launches of fixed sizes on the same memory."""

    @abstractmethod
    def begin_capture(self, queue: Opaque) -> None:
        """Start recording the calling thread's launches on a queue instead of running them."""

    @abstractmethod
    def end_capture(self, queue: Opaque) -> Opaque | None:
        """End recording. Returns the recording, or None if it cannot be replayed. Recorded launches have not run."""

    @abstractmethod
    def replay(self, recording: Opaque, queue: Opaque) -> None:
        """Enqueue a recording: the recorded kernels read the current contents of the recorded memory. `queue` may differ from the
        recorded queue. A recording is on one queue at a time."""

    @abstractmethod
    def discard(self, recording: Opaque) -> None:
        """Release a recording that is on no queue. Never raises."""


class DeviceKernel(Protocol):
    """A loaded region that runs in device memory."""

    def launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Opaque,
    ) -> None:
        """Enqueue the region. `workspace` has at least the bytes that the artifact requires, None if it requires none. `dims` is as
        for `Kernel`, in host memory: computed dimensions are written when the queue has executed the region. An output with a
        computed dimension is allocated at the upper bound. The caller keeps the kernel until the queue has executed the
        region; memory that the kernel allocates, such as that of constants, must last as long. Must be thread-safe for different
        queues."""
