"""The memory of devices at run time: weights that stay there, and what one run of a plan works with."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlaid.errors import InputError
from inlaid.plugins.blame import blame
from inlaid.plugins.device import CapturingDevice, Device, DeviceTensor
from inlaid.runtime.arrays import Array, aligned_empty
from inlaid.runtime.sizes import Shape, align_up, byte_count


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

    def __getattr__(self, name: str) -> Any:
        """Attributes by which other libraries read the tensor, besides DLPack."""
        if name.startswith("__"):
            return self.memory.device.attribute(name, self.tensor)
        raise AttributeError(name)

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

    def copy(self) -> DeviceArray:
        """Another with the same elements. Raises what the device raises."""
        work, found = DeviceWork(self.memory), DeviceArray.empty(self.memory, self.shape, self.dtype)
        work.copy(self.tensor, found.tensor)
        work.wait()
        return found

    def assign(self, array: Array) -> None:
        """Give it other elements, those of an array of its shape and dtype. Raises `InputError` for another array."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InputError(f"{self!r} takes arrays of its shape and dtype, got {array.dtype}{list(array.shape)}")
        work = DeviceWork(self.memory)
        work.upload(np.array(array, order="C", copy=None), self.tensor)
        work.wait()


class DeviceQueues:
    """The queues on which a run, with all plans that it runs, works on a device: one for kernels, one for copies beside them.
    Nothing is on them any more once `wait` has returned; those that `failed` are of no further use."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.kernels = self._new_queue()
        self._copies: Any = None
        self.busy = self.failed = False

    def _new_queue(self) -> Any:
        with blame(self.memory.plugin, f"a queue on {self.memory.target}"):
            queue = self.memory.device.queue()
        weakref.finalize(self, self.memory.device.release, queue)
        return queue

    def copies(self) -> Any:
        """The queue for copies beside kernels."""
        if self._copies is None:
            self._copies = self._new_queue()
        return self._copies

    def wait(self) -> None:
        """Return once the queues are done. Raises what went wrong on them."""
        if self.busy:
            self.busy, self.failed = False, True
            device = self.memory.device
            with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                try:
                    if self._copies is not None:
                        device.synchronise(device.event(self._copies))
                finally:
                    device.synchronise(device.event(self.kernels))
            self.failed = False


class DeviceWork:
    """What one run of a plan works with on a device: queues, the arena, scratch memory, and blocks for tensors whose sizes only the
    run tells (see `inlaid.runtime.blocks`)."""

    def __init__(self, memory: DeviceMemory, queues: DeviceQueues | None = None) -> None:
        self.memory = memory
        self.device = memory.device
        self.queues = queues or DeviceQueues(memory)
        self.arena = self.scratch = _NOTHING
        self._blocks: dict[int, Buffer] = {}
        self._arriving: dict[int, Any] = {}
        self._recordings: dict[object, _Recording] = {}

    def want(self, arena: int, scratch: int) -> None:
        """Grow arena and scratch memory to at least these sizes in bytes. Replaced memory is freed, with recordings of it,
        once nothing uses it."""
        if self.arena.size < arena or self.scratch.size < scratch:
            self.wait()
            self._recordings.clear()
        self.arena = self._grown(self.arena, arena)
        self.scratch = self._grown(self.scratch, scratch)

    def _grown(self, memory: Buffer, size: int) -> Buffer:
        return memory if memory.size >= size else Buffer(self.memory, _room(memory, size))

    def block(self, number: int, shape: Shape, dtype: np.dtype[Any]) -> DeviceTensor:
        """A tensor in block `number`, for which that grows where it is too small: what was in it is lost."""
        size, block = byte_count(shape, dtype.itemsize), self._blocks.get(number, _NOTHING)
        if block.size < size:
            if block.size:
                self.wait()
            room = _room(block, size)
            self._blocks[number] = block = _NOTHING  # given back before its successor is allocated
            self._blocks[number] = block = Buffer(self.memory, room)
        return DeviceTensor(block.handle if size else None, 0, shape, dtype)

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
        self.queues.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self.queues.kernels)

    def upload_apart(self, source: Array, target: DeviceTensor, number: int) -> None:
        """Copy an array to a tensor beside kernels; those that read value `number` must say so by `await_values`."""
        self.queues.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self.queues.copies())
                self._arriving[number] = self.device.event(self.queues.copies())

    def await_values(self, numbers: Sequence[int]) -> None:
        """Let the next kernels wait for values that are copied beside them."""
        if self._arriving:
            for number in numbers:
                event = self._arriving.pop(number, None)
                if event is not None:
                    with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                        self.device.wait(self.queues.kernels, event)

    def download(self, source: DeviceTensor, target: Array, apart: bool = False) -> None:
        """Copy a tensor to an array, which holds it after `wait`: beside the kernels that come later, or before them."""
        self.queues.busy = True
        if target.nbytes:
            with blame(self.memory.plugin, f"copying from {self.memory.target}"):
                queue = self.queues.kernels
                if apart:
                    queue = self.queues.copies()
                    self.device.wait(queue, self.device.event(self.queues.kernels))
                self.device.download(source, target, queue)

    def copy(self, source: DeviceTensor, target: DeviceTensor) -> None:
        """Copy a tensor to another."""
        self.queues.busy = True
        if target.buffer is not None:
            with blame(self.memory.plugin, f"copying on {self.memory.target}"):
                self.device.copy(source, target, self.queues.kernels)

    def replayed(self, steps: object, tensors: Sequence[DeviceTensor], launch: Callable[[], None]) -> None:
        """Do what `launch` does, which `steps` stand for, on tensors: by a recording of it where there is one for the same memory.
        One is made when that is met again."""
        device = self.device
        assert isinstance(device, CapturingDevice)
        key = (steps, id(self.scratch), *[(tensor.buffer, tensor.offset) for tensor in tensors])
        found = self._recordings.get(key)
        if found is None:
            found = self._recordings[key] = self._new_recording(tensors)
        elif not found.tried:
            with blame(self.memory.plugin, f"recording on {self.memory.target}"):
                found.capture(device, self.queues.kernels, launch)
            found.tried = True
        if found.handle is None:
            launch()
            return
        self.queues.busy = True
        with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
            device.replay(found.handle, self.queues.kernels)

    def _new_recording(self, tensors: Sequence[DeviceTensor]) -> _Recording:
        """One that is not made yet, in place of the oldest of those where there are many."""
        if len(self._recordings) >= _KEPT_RECORDINGS:
            oldest = next((key for key, found in self._recordings.items() if found.handle is None), None)
            if oldest is None:
                self.wait()  # nothing uses what is given back
                self._recordings.clear()
            else:
                del self._recordings[oldest]
        return _Recording(tensors, self.scratch)

    def wait(self) -> None:
        """Return once the queues are done. Raises what went wrong on them."""
        self._arriving.clear()
        self.queues.wait()


class _Recording:
    """Launches on tensors, whose buffers it holds, so that nothing else has their identity; `handle` is the device's where they are
    recorded."""

    def __init__(self, tensors: Sequence[DeviceTensor], scratch: Buffer) -> None:
        self._held = (tuple(tensors), scratch)
        self.tried = False
        self.handle: Any = None

    def capture(self, device: CapturingDevice, queue: Any, launch: Callable[[], None]) -> None:
        """Record what is launched."""
        device.begin_capture(queue)
        try:
            launch()
        except BaseException:
            handle = device.end_capture(queue)
            if handle is not None:
                device.discard(handle)
            raise
        self.handle = device.end_capture(queue)
        if self.handle is not None:
            weakref.finalize(self, device.discard, self.handle)


class Buffer:
    """A buffer of a device, given back with this object."""

    def __init__(self, memory: DeviceMemory | None, size: int) -> None:
        self.size = size
        self.handle = memory.allocate(size, self) if memory is not None and size else None


def _room(memory: Buffer, size: int) -> int:
    """Bytes to allocate in place of a buffer that is too small: one that grows is likely to grow again."""
    return align_up(size + size // 4 if memory.size else size)


_KEPT_RECORDINGS = 16
"""How many sequences of launches a workspace remembers, on a device."""
_NOTHING = Buffer(None, 0)
_BYTES = np.dtype(np.uint8)
