"""Device memory in the plugin contract: targets whose values are not in the host's memory.

A runtime module with a device gives it by `RuntimeModule.device()`. The executor allocates arenas and weights on it, moves values
where the plan says so, and launches kernels on queues; it never looks into a buffer, a queue or an event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from inlaid.errors import InputError

Opaque = Any
"""A handle of the device's own: a buffer, a queue or an event."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A row-major tensor in a device's memory, at byte `offset`, a multiple of 64, of a buffer. `dtype` is that of its elements.
    Buffers are hashable; equal ones are the same memory."""

    buffer: Opaque
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class MemoryFacts:
    """The memory of a device, in bytes: all of it, and what is free."""

    total: int
    free: int


class Device(ABC):
    """Memory of its own, and queues that work on it beside the host.

    What is put on a queue runs in order, some time after the call returns; errors of it are raised by a later call, at the latest
    by `synchronise`: `KernelFault`, `OutOfMemory`, `DeviceLost`. Once a device is lost every call raises `DeviceLost`, but for
    `free` and `release`, which never raise. Methods may be called from several threads, those of one queue from one at a time.
    """

    @abstractmethod
    def allocate(self, size: int) -> Opaque:
        """A buffer of at least `size` bytes, more than 0. Raises `OutOfMemory`."""

    @abstractmethod
    def free(self, buffer: Opaque) -> None:
        """Give a buffer back. Nothing on a queue uses it any more."""

    @abstractmethod
    def queue(self) -> Opaque:
        """A new queue. Work on different queues has no order but by events."""

    @abstractmethod
    def release(self, queue: Opaque) -> None:
        """Give a queue back, whatever is still on it."""

    @abstractmethod
    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Opaque) -> None:
        """Copy a row-major array of the host to a tensor of its shape and dtype. The array may change once the call returns."""

    @abstractmethod
    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Opaque) -> None:
        """Copy a tensor to a row-major array of its shape and dtype, which holds it once the queue has come so far."""

    @abstractmethod
    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Opaque) -> None:
        """Copy a tensor to another of its shape and dtype, which does not overlap it. Either may start at any element of a buffer:
        loops copy rows that they read and write."""

    @abstractmethod
    def event(self, queue: Opaque) -> Opaque:
        """An event that comes when all that is on the queue by now is done."""

    @abstractmethod
    def wait(self, queue: Opaque, event: Opaque) -> None:
        """Let a queue begin nothing further before an event, of any queue of this device, has come."""

    @abstractmethod
    def synchronise(self, event: Opaque) -> None:
        """Return once an event has come. Raises what went wrong before it."""

    @abstractmethod
    def memory(self) -> MemoryFacts:
        """How much memory the device has."""

    def dlpack_device(self) -> tuple[int, int] | None:
        """The type and number that DLPack knows the device by; None where it exchanges no tensors that way."""
        return None

    def export(self, tensor: DeviceTensor, owner: object, stream: Any) -> object:
        """DLPack capsule of a tensor, which keeps `owner` alive; `stream` as of `__dlpack__`. Nothing is waiting on the tensor.
        `inlaid.runtime.dlpack` makes capsules of addresses. Raises `BufferError` where that cannot be done."""
        raise BufferError("the device exchanges no tensors by DLPack")

    def attribute(self, name: str, tensor: DeviceTensor) -> object:
        """Attribute of a device array by which libraries read it, besides DLPack. Raises `AttributeError` for other names."""
        raise AttributeError(name)

    def adopts(self, value: Any) -> bool:
        """Whether an object is a tensor on this device: by default, by its `__dlpack_device__`."""
        where = self.dlpack_device()
        return where is not None and hasattr(value, "__dlpack_device__") and tuple(map(int, value.__dlpack_device__())) == where

    def adopt(self, value: Any) -> tuple[DeviceTensor, object]:
        """Tensor of an object that `adopts` accepts, and what keeps it alive. Raises `InputError` if it cannot be read in place."""
        raise InputError("the device adopts no tensors", remedy="pass an array in the host's memory")

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Host memory of at least `size` bytes, uint8 aligned to 64, that is copied faster; None if the device has none."""
        return None


class CapturingDevice(Device):
    """A device that can record what launches put on a queue, and put it there again in one call, such as a CUDA graph. Launches of
    fixed sizes on the same memory are replayed where a run meets them again."""

    @abstractmethod
    def begin_capture(self, queue: Opaque) -> None:
        """Record what the calling thread's launches put on a queue from now on, instead of running it."""

    @abstractmethod
    def end_capture(self, queue: Opaque) -> Opaque | None:
        """The recording of what came since `begin_capture`, of which nothing has run; None where it cannot be replayed."""

    @abstractmethod
    def replay(self, recording: Opaque, queue: Opaque) -> None:
        """Put what was recorded on a queue, which may be another: the same kernels on the same memory, whatever that holds by then.
        A recording is on one queue at a time."""

    @abstractmethod
    def discard(self, recording: Opaque) -> None:
        """Give a recording back, which is on no queue any more. Never raises."""


class DeviceKernel(Protocol):
    """A loaded region of a target with a device."""

    def launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Opaque,
    ) -> None:
        """Put the region on a queue. `workspace` has at least the bytes that the artifact asks for, None where it asks for none.
        `dims` are as of `Kernel`, in host memory: those that the region works out are written when the queue has come so far, and
        an output of such a size comes with its upper bound. May be called from several threads, with queues of their own."""
