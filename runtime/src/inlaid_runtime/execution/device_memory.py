"""Device memory at run time: resident weights, and the working memory of plan runs."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from inlaid_runtime.errors import InputError, KernelFault
from inlaid_runtime.execution.arrays import Array, aligned_empty
from inlaid_runtime.execution.sizes import Shape, align_up, byte_count
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.plugins.device import CapturingDevice, Device, DeviceTensor


@dataclass(eq=False)
class DeviceMemory:
    """A device of an executable. `target` is its target, `plugin` the plugin whose runtime opened it; `weights` are resident
    constants of plans."""

    device: Device
    target: str
    plugin: str
    weights: dict[str, DeviceTensor] = field(default_factory=dict)

    def allocate(self, size: int, owner: object) -> Any:
        """Allocate a buffer that is freed when `owner` is garbage."""
        with blame(self.plugin, f"allocating {size} bytes on {self.target}"):
            buffer = self.device.allocate(size)
        weakref.finalize(owner, self.device.free, buffer)
        return buffer

    def hold(self, weights: Mapping[str, Array]) -> None:
        """Copy constants of plans to the device, for the lifetime of this object."""
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
    """A tensor in device memory owned by the user, as returned by `Executable.run(..., keep_on_device=True)` and accepted as an
    input. Its memory is freed when the object is garbage."""

    __slots__ = ("__weakref__", "_keep", "memory", "tensor")

    def __init__(self, memory: DeviceMemory, tensor: DeviceTensor, keep: object = None) -> None:
        self.memory = memory
        self.tensor = tensor
        self._keep = keep

    @staticmethod
    def empty(memory: DeviceMemory, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Allocate an uninitialized array. Raises `OutOfMemory`."""
        size = math.prod(shape) * dtype.itemsize
        buffer = DeviceBuffer(memory, size)
        return DeviceArray(memory, DeviceTensor(buffer.handle, 0, shape, dtype), buffer)

    @staticmethod
    def adopted(memory: DeviceMemory, value: Any) -> DeviceArray:
        """Wrap another library's tensor on the device, by DLPack, without a copy. Raises `InputError` if this is impossible."""
        with blame(memory.plugin, f"adopting a tensor on {memory.target}"):
            return DeviceArray(memory, *memory.device.adopt(value))

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> object:
        """Export the tensor as a DLPack capsule. Raises `BufferError` if the device does not support DLPack."""
        return self.memory.device.export(self.tensor, self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.memory.device.dlpack_device()
        if device is None:
            raise BufferError(f"{self.memory.target} does not support DLPack")
        return device

    def __getattr__(self, name: str) -> Any:
        """Return an attribute by which other libraries read the tensor, besides DLPack."""
        if name.startswith("__"):
            return self.memory.device.attribute(name, self.tensor)
        raise AttributeError(name)

    @property
    def shape(self) -> Shape:
        """Shape of the tensor."""
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.tensor.dtype

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise InputError(f"{self!r} cannot be pickled: its memory belongs to this process", remedy="pickle the array of .numpy()")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}[{', '.join(map(str, self.shape))}] on {self.memory.target}>"

    def numpy(self) -> Array:
        """Copy the tensor to a new host array. Raises the device's errors."""
        work, array = DeviceWork(self.memory), aligned_empty(self.shape, self.dtype)
        work.download(self.tensor, array)
        work.wait()
        return array

    def copy(self) -> DeviceArray:
        """Copy the tensor to a new tensor on the device. Raises the device's errors."""
        work, duplicate = DeviceWork(self.memory), DeviceArray.empty(self.memory, self.shape, self.dtype)
        work.copy(self.tensor, duplicate.tensor)
        work.wait()
        return duplicate

    def assign(self, array: Array) -> None:
        """Overwrite the elements with the elements of a host array. Raises `InputError` if the shape or dtype differs."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InputError(f"{self!r} expected an array of its shape and dtype, got {array.dtype}{list(array.shape)}")
        work = DeviceWork(self.memory)
        work.upload(np.array(array, order="C", copy=None), self.tensor)
        work.wait()


class DeviceQueues:
    """Queues of a run on a device, shared by the plans that the run calls: one for kernels, and one for overlapping copies. Both
    are empty once `wait` has returned. If `failed` is set, they are unusable."""

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
        """Return the queue for copies that overlap with kernels."""
        if self._copies is None:
            self._copies = self._new_queue()
        return self._copies

    def wait(self) -> None:
        """Wait for the queues. Raises errors of their work."""
        if self.busy:
            self.busy, self.failed = False, True
            device = self.memory.device
            with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                try:
                    if self._copies is not None:
                        device.synchronize(device.event(self._copies))
                finally:
                    device.synchronize(device.event(self.kernels))
            self.failed = False


class DeviceWork:
    """Working memory of one plan run on a device: queues, the arena, scratch memory, and blocks for tensors of data-dependent sizes
    (see `inlaid_runtime.execution.blocks`)."""

    def __init__(self, memory: DeviceMemory, queues: DeviceQueues | None = None) -> None:
        self.memory = memory
        self.device = memory.device
        self.queues = queues or DeviceQueues(memory)
        self.arena = self.scratch = _NOTHING
        self._blocks: dict[int, DeviceBuffer] = {}
        self._arriving: dict[int, Any] = {}
        self._recordings: dict[object, _Recording] = {}

    def want(self, arena: int, scratch: int) -> None:
        """Grow the arena and the scratch memory to at least the given bytes. Replaced memory and its recordings are freed once
        unused."""
        if self.arena.size < arena or self.scratch.size < scratch:
            self.wait()
            self._recordings.clear()
        self.arena = self._grown(self.arena, arena)
        self.scratch = self._grown(self.scratch, scratch)

    def _grown(self, memory: DeviceBuffer, size: int) -> DeviceBuffer:
        return memory if memory.size >= size else DeviceBuffer(self.memory, _room(memory, size))

    def block(self, number: int, shape: Shape, dtype: np.dtype[Any]) -> DeviceTensor:
        """Return a tensor in block `number`. If the block is too small, it is reallocated and loses its contents."""
        size, block = byte_count(shape, dtype.itemsize), self._blocks.get(number, _NOTHING)
        if block.size < size:
            if block.size:
                self.wait()
            room = _room(block, size)
            self._blocks[number] = block = _NOTHING  # free before allocating the successor
            self._blocks[number] = block = DeviceBuffer(self.memory, room)
        return DeviceTensor(block.handle if size else None, 0, shape, dtype)

    def pinned(self, size: int) -> Array | None:
        """Return page-locked host memory for fast copies, None if unsupported."""
        with blame(self.memory.plugin, f"host memory for {self.memory.target}"):
            return self.device.pinned(size)

    def tensor(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> DeviceTensor:
        """Return a tensor in the arena."""
        return DeviceTensor(self.arena.handle, offset, shape, dtype)

    def workspace(self, size: int) -> DeviceTensor | None:
        """Return scratch memory for a kernel, None for size 0."""
        return DeviceTensor(self.scratch.handle, 0, (self.scratch.size,), _BYTES) if size else None

    def upload(self, source: Array, target: DeviceTensor) -> None:
        """Copy a host array to a tensor."""
        _check_shape_and_dtype(source, target)
        self.queues.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self.queues.kernels)

    def upload_apart(self, source: Array, target: DeviceTensor, number: int) -> None:
        """Copy a host array to a tensor concurrently with kernels. Readers of value `number` must first call `await_values`."""
        _check_shape_and_dtype(source, target)
        self.queues.busy = True
        if source.nbytes:
            with blame(self.memory.plugin, f"copying to {self.memory.target}"):
                self.device.upload(source, target, self.queues.copies())
                self._arriving[number] = self.device.event(self.queues.copies())

    def await_values(self, numbers: Sequence[int]) -> None:
        """Make later kernels wait for the concurrent copies of the given values."""
        if self._arriving:
            for number in numbers:
                event = self._arriving.pop(number, None)
                if event is not None:
                    with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
                        self.device.wait(self.queues.kernels, event)

    def download(self, source: DeviceTensor, target: Array, apart: bool = False) -> None:
        """Copy a tensor to a host array, which is valid after `wait`; with `apart`, concurrently with later kernels."""
        _check_shape_and_dtype(source, target)
        self.queues.busy = True
        if target.nbytes:
            with blame(self.memory.plugin, f"copying from {self.memory.target}"):
                queue = self.queues.kernels
                if apart:
                    queue = self.queues.copies()
                    self.device.wait(queue, self.device.event(self.queues.kernels))
                self.device.download(source, target, queue)

    def copy(self, source: DeviceTensor, target: DeviceTensor) -> None:
        """Copy a tensor to another on the device."""
        _check_shape_and_dtype(source, target)
        self.queues.busy = True
        if target.buffer is not None:
            with blame(self.memory.plugin, f"copying on {self.memory.target}"):
                self.device.copy(source, target, self.queues.kernels)

    def replayed(self, steps: object, tensors: Sequence[DeviceTensor], launch: Callable[[], None]) -> None:
        """Call `launch`, which launches `steps` on `tensors`, or replay its recording. The second call with the same steps and the
        same memory makes the recording."""
        device = self.device
        assert isinstance(device, CapturingDevice)
        key = (steps, id(self.scratch), *[(tensor.buffer, tensor.offset) for tensor in tensors])
        recording = self._recordings.get(key)
        if recording is None:
            recording = self._recordings[key] = self._new_recording(tensors)
        elif not recording.tried:
            with blame(self.memory.plugin, f"recording on {self.memory.target}"):
                recording.capture(device, self.queues.kernels, launch)
            recording.tried = True
        if recording.handle is None:
            launch()
            return
        self.queues.busy = True
        with blame(self.memory.plugin, f"the queue of {self.memory.target}"):
            device.replay(recording.handle, self.queues.kernels)

    def _new_recording(self, tensors: Sequence[DeviceTensor]) -> _Recording:
        """Create an empty recording. If there are `_MAX_RECORDINGS` already, drop the oldest one without a handle; if each has one,
        drop all."""
        if len(self._recordings) >= _MAX_RECORDINGS:
            oldest = next((key for key, recording in self._recordings.items() if recording.handle is None), None)
            if oldest is None:
                self.wait()  # recordings must not be in use when released
                self._recordings.clear()
            else:
                del self._recordings[oldest]
        return _Recording(tensors, self.scratch)

    def wait(self) -> None:
        """Wait for the queues. Raises errors of their work."""
        self._arriving.clear()
        self.queues.wait()


def _check_shape_and_dtype(source: Array | DeviceTensor, target: Array | DeviceTensor) -> None:
    """Raise `KernelFault` unless source and target of a copy have equal shapes and dtypes."""
    if source.shape != target.shape or source.dtype != target.dtype:
        raise KernelFault(
            f"expected a value of {target.dtype} and shape {target.shape}, got {source.dtype} and shape {source.shape}"
        )


class _Recording:
    """A recording of launches. It keeps the tensors' buffers alive, so that ids are not reused; `handle` is the recording of the
    device."""

    def __init__(self, tensors: Sequence[DeviceTensor], scratch: DeviceBuffer) -> None:
        self._references = (tuple(tensors), scratch)
        self.tried = False
        self.handle: Any = None

    def capture(self, device: CapturingDevice, queue: Any, launch: Callable[[], None]) -> None:
        """Record the launches that `launch` makes."""
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


class DeviceBuffer:
    """A device buffer, freed with this object."""

    def __init__(self, memory: DeviceMemory | None, size: int) -> None:
        self.size = size
        self.handle = memory.allocate(size, self) if memory is not None and size else None


def _room(memory: DeviceBuffer, size: int) -> int:
    """Return the size in bytes of the replacement for a buffer that is too small, including a reserve for further growth."""
    return align_up(size + size // 4 if memory.size else size)


_MAX_RECORDINGS = 16
"""Greatest number of recordings of a workspace on a device."""
_NOTHING = DeviceBuffer(None, 0)
_BYTES = np.dtype(np.uint8)
