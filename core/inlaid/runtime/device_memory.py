"""The memory of devices at run time: weights that stay there, and what one run of a plan works with."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlaid.errors import InputError
from inlaid.plugins.blame import blame
from inlaid.plugins.device import Device, DeviceTensor
from inlaid.runtime.arrays import Array, aligned_empty
from inlaid.runtime.sizes import Shape, align_up


@dataclass(eq=False)
class DeviceMemory:
    """A device of an executable. `target` is whose, `plugin` whose runtime has opened it; `weights` are the constants of plans that
    it holds."""

    device: Device
    target: str
    plugin: str
    weights: dict[str, DeviceTensor] = field(default_factory=dict)

    def allocate(self, size: int, owner: object) -> Any:
        """A buffer that is given back with its owner."""
        with blame(self.plugin, f"allocating {size} bytes on {self.target}"):
            buffer = self.device.allocate(size)
        weakref.finalize(owner, self.device.free, buffer)
        return buffer

    def hold(self, weights: Mapping[str, Array]) -> None:
        """Copy constants of plans to the device, where they stay as long as this object."""
        work = DeviceWork(self)
        for name, array in weights.items():
            if array.nbytes:
                tensor = DeviceTensor(self.allocate(array.nbytes, self), 0, array.shape, array.dtype)
                work.upload(array, tensor)
            else:
                tensor = DeviceTensor(None, 0, array.shape, array.dtype)
            self.weights[name] = tensor
        work.wait()


class DeviceArray:
    """A tensor in a device's memory that the user owns: what `Executable.run(..., keep_on_device=True)` gives, and takes as an
    input. Its memory is given back with it."""

    __slots__ = ("__weakref__", "_keep", "memory", "tensor")

    def __init__(self, memory: DeviceMemory, tensor: DeviceTensor, keep: object = None) -> None:
        self.memory = memory
        self.tensor = tensor
        self._keep = keep

    @staticmethod
    def empty(memory: DeviceMemory, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """One with memory of its own, uninitialised. Raises `OutOfMemory`."""
        size = math.prod(shape) * dtype.itemsize
        buffer = Buffer(memory, size)
        return DeviceArray(memory, DeviceTensor(buffer.handle, 0, shape, dtype), buffer)

    @staticmethod
    def adopted(memory: DeviceMemory, value: Any) -> DeviceArray:
        """Another library's tensor on the device, by DLPack, where it lies. Raises `InputError` where it cannot be read so."""
        with blame(memory.plugin, f"adopting a tensor on {memory.target}"):
            return DeviceArray(memory, *memory.device.adopt(value))

    def __dlpack__(self, *, stream: Any = None, **asked: Any) -> object:
        """A capsule of the tensor (DLPack). Raises `BufferError` where the device exchanges none."""
        return self.memory.device.export(self.tensor, self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        found = self.memory.device.dlpack_device()
        if found is None:
            raise BufferError(f"{self.memory.target} exchanges no tensors by DLPack")
        return found

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return self.tensor.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}[{', '.join(map(str, self.shape))}] on {self.memory.target}>"

    def numpy(self) -> Array:
        """A copy in the host's memory. Raises what the device raises."""
        work, found = DeviceWork(self.memory), aligned_empty(self.shape, self.dtype)
        work.download(self.tensor, found)
        work.wait()
        return found

    def assign(self, array: Array) -> None:
        """Give it other elements, those of an array of its shape and dtype. Raises `InputError` for another array."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InputError(f"{self!r} takes arrays of its shape and dtype, got {array.dtype}{list(array.shape)}")
        work = DeviceWork(self.memory)
        work.upload(np.array(array, order="C", copy=None), self.tensor)
        work.wait()


class DeviceWork:
    """What one run of a plan works with on a device: a queue for kernels, one for copies beside them, the arena and scratch memory.
    Nothing runs on the queues once `wait` has returned; one that `failed` is of no further use."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.device = memory.device
        self.queue = self._new_queue()
        self.copies: Any = None
        self.arena = self.scratch = _NOTHING
        self.busy = self.failed = False
        self._arriving: dict[int, Any] = {}

    def _new_queue(self) -> Any:
        with blame(self.memory.plugin, f"a queue on {self.memory.target}"):
            queue = self.device.queue()
        weakref.finalize(self, self.device.release, queue)
        return queue

    def want(self, arena: int, scratch: int) -> None:
        """Have an arena and scratch memory of at least so many bytes. What was there before is given back once nothing uses it."""
        if self.arena.size < arena or self.scratch.size < scratch:
            self.wait()
        self.arena = self._grown(self.arena, arena)
        self.scratch = self._grown(self.scratch, scratch)

    def _grown(self, memory: Buffer, size: int) -> Buffer:
        return memory if memory.size >= size else Buffer(self.memory, align_up(size + size // 4 if memory.size else size))

    def pinned(self, size: int) -> Array | None:
        """Host memory that the device copies faster, None where it has none."""
        with blame(self.memory.plugin, f"host memory for {self.memory.target}"):
            return self.device.pinned(size)

    def tensor(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> DeviceTensor:
        """A tensor in the arena."""
        return DeviceTensor(self.arena.handle, offset, shape, dtype)

    def workspace(self, size: int) -> DeviceTensor | None:
        """Scratch memory for a kernel, None for none."""
        return DeviceTensor(self.scratch.handle, 0, (self.scratch.size,), _BYTES) if size else None

    def upload(self, source: Array, target: DeviceTensor) -> None:
        """Copy an array to a tensor."""
        self.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self.queue)

    def upload_apart(self, source: Array, target: DeviceTensor, number: int) -> None:
        """Copy an array to a tensor beside kernels; those that read value `number` must say so by `await_values`."""
        self.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self._apart())
                self._arriving[number] = self.device.event(self.copies)

    def await_values(self, numbers: Sequence[int]) -> None:
        """Let the next kernels wait for values that are copied beside them."""
        if self._arriving:
            for number in numbers:
                event = self._arriving.pop(number, None)
                if event is not None:
                    with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                        self.device.wait(self.queue, event)

    def download(self, source: DeviceTensor, target: Array, apart: bool = False) -> None:
        """Copy a tensor to an array, which holds it after `wait`: beside the kernels that come later, or before them."""
        self.busy = True
        if target.nbytes:
            with blame(self.memory.plugin, f"copying from {self.memory.target}"):
                queue = self.queue
                if apart:
                    queue = self._apart()
                    self.device.wait(queue, self.device.event(self.queue))
                self.device.download(source, target, queue)

    def _apart(self) -> Any:
        if self.copies is None:
            self.copies = self._new_queue()
        return self.copies

    def copy(self, source: DeviceTensor, target: DeviceTensor) -> None:
        """Copy a tensor to another."""
        self.busy = True
        if target.buffer is not None:
            with blame(self.memory.plugin, f"copying on {self.memory.target}"):
                self.device.copy(source, target, self.queue)

    def wait(self) -> None:
        """Return once the queue is done. Raises what went wrong on it."""
        if self.busy:
            self.busy = False
            self._arriving.clear()
            self.failed = True
            with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                try:
                    if self.copies is not None:
                        self.device.synchronise(self.device.event(self.copies))
                finally:
                    self.device.synchronise(self.device.event(self.queue))
            self.failed = False


class Buffer:
    """A buffer of a device, given back with this object."""

    def __init__(self, memory: DeviceMemory | None, size: int) -> None:
        self.size = size
        self.handle = memory.allocate(size, self) if memory is not None and size else None


_NOTHING = Buffer(None, 0)
_BYTES = np.dtype(np.uint8)
