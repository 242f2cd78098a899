"""The executor's `Device` on CUDA: memory, queues, copies, events, graphs, DLPack."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
import weakref
from typing import Any

import numpy as np

from inlaid_cuda import array_interface
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.driver import Context, Driver, DriverError, Status
from inlaid_cuda.faults import RESTART, translate
from inlaid_cuda.options import HOST, CudaOptions
from inlaid_cuda.queues import Event, Memory, Queue, Recording
from inlaid_runtime.errors import InlaidError, InputError, TargetError
from inlaid_runtime.execution.arrays import address
from inlaid_runtime.execution.dlpack import export_capsule, import_capsule
from inlaid_runtime.execution.driver_devices import DriverDevice
from inlaid_runtime.plugins import CapturingDevice, DeviceTensor, MemoryFacts

MEMORY = "INLAID_CUDA_MEMORY"
"""Environment variable that bounds the bytes that a process allocates on each device."""
ALIGNMENT = 64
"""Required alignment of tensors of other libraries in bytes."""
_CUDA = 2
"""DLPack device type of memory of CUDA devices."""
_MAPS = 1024
"""Maximum number of cached encoded tensor maps. The key is tensor, box and address."""
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def memory_limit() -> int | None:
    """Return the value of `MEMORY` in bytes; None if it is unset. Raises `TargetError` for a malformed value."""
    text = os.environ.get(MEMORY, "")
    match = re.fullmatch(r"(\d+)([KMG]?)(iB)?", text)
    if text and not match:
        raise TargetError(f"environment variable {MEMORY} must be bytes such as 4000000000, 512M or 4GiB, got {text!r}")
    return int(match[1]) << _UNITS[match[2]] if match else None


class Devices:
    """The devices of a driver. There is one `CudaDevice` per device number; it is opened on first use."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._opened: dict[int, CudaDevice] = {}
        self._lock = threading.Lock()

    def open(self, number: int) -> CudaDevice:
        """Open device `number`. Raises `TargetError` if no driver is installed or the number is out of range."""
        with self._lock:
            device = self._opened.get(number)
            if device is None:
                infos = self.driver.devices()
                if not 0 <= number < len(infos):
                    listed = "; ".join(map(str, infos))
                    raise TargetError(
                        f"cuda device number must be 0 to {len(infos) - 1}, got {number}", remedy=f"choose from {listed}"
                    )
                name = f"{infos[number].name} (cuda device {number})"
                try:
                    context = self.driver.open(number)
                except DriverError as error:
                    raise translate(error, name, "opening the device") from error
                device = self._opened[number] = CudaDevice(context, name)
            return device


def open_devices(options: CudaOptions) -> Devices:
    """Return the devices of a target: the GPUs of this machine, or one emulated device for `arch=host`."""
    return _devices(options.arch == HOST)


@functools.cache
def _devices(emulated: bool) -> Devices:
    """Return the devices of this process. All target options share them, so that one memory limit applies to each device."""
    if emulated:
        from inlaid_cuda.emulation.driver import HostDriver

        return Devices(HostDriver())
    return Devices(SystemDriver())


class CudaDevice(DriverDevice, CapturingDevice):
    """A device whose queues are streams and whose recordings are CUDA graphs."""

    driver_error = DriverError
    lost_remedy = RESTART

    def __init__(self, context: Context, name: str) -> None:
        limit = memory_limit()
        memory = context.facts.memory
        super().__init__(name, memory if limit is None else min(limit, memory))
        self.context, self.facts = context, context.facts
        self.tensor_map = functools.lru_cache(maxsize=_MAPS)(context.tensor_map)
        self._spare_events: list[int] = []
        self._spare_stages: list[np.ndarray[Any, Any]] = []
        self._exchange: Queue | None = None

    def translate(self, error: Exception, action: str) -> InlaidError | None:
        return translate(error, self.name, action) if isinstance(error, DriverError) else None

    # --- memory -----------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Memory:
        """Allocate `size` bytes. If they do not fit, trim the driver's cache and retry. Raises `OutOfMemory` and `DeviceLost`."""
        return self.reserve(size, lambda: Memory(self._allocated(size), size))

    def _allocated(self, size: int) -> int:
        try:
            return self.context.allocate(size)
        except DriverError as error:
            if error.status != Status.OUT_OF_MEMORY:
                raise
        self.context.trim()
        return self.context.allocate(size)

    def free(self, buffer: Memory) -> None:
        """Free memory. Never raises."""
        with contextlib.suppress(DriverError):
            self.context.free(buffer.address)
        self.forget(buffer.size)

    def memory(self) -> MemoryFacts:
        """Return the bytes that this process may allocate in total, and the bytes that it may still allocate."""
        with self.driver_call("querying free memory"):
            free, _ = self.context.memory()
        return MemoryFacts(self.total, min(free, self.total - self.live))

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Allocate page-locked host memory; None if host and device share memory."""
        return None if self.facts.integrated else self._page_locked(size)

    def _page_locked(self, size: int) -> np.ndarray[Any, Any]:
        with self.driver_call(f"page-locking {size} bytes"):
            address = self.context.allocate_host(size)
        memory = (ctypes.c_uint8 * size).from_address(address)
        weakref.finalize(memory, _free_host, self.context, address)
        return np.ctypeslib.as_array(memory)

    # --- queues -----------------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """Create a stream."""
        with self.driver_call("creating a stream"):
            return Queue(self.context, self._page_locked, self._spare_stages)

    def release(self, queue: Queue) -> None:
        """Wait for a queue's commands and release it. Never raises."""
        queue.close()

    def event(self, queue: Queue) -> Event:
        """Record an event that completes after all commands on the queue and after the download of their fault flags."""
        with self.driver_call("recording an event"):
            queue.check_reports()
            try:
                handle = self._spare_events.pop()
            except IndexError:
                handle = self.context.event()
            event = Event(queue, handle, self._spare_events)
            self.context.record(handle, queue.stream)
            return event

    def wait(self, queue: Queue, event: Event) -> None:
        """Make later commands of a queue wait for an event of another queue."""
        if event.queue is not queue:
            with self.driver_call("ordering streams"):
                self.context.await_event(queue.stream, event.handle)
                queue.put()

    def synchronize(self, event: Event) -> None:
        """Block until an event completes. Raises `KernelFault`, `OutOfMemory` or `DeviceLost` if an earlier command failed."""
        with self.driver_call("running commands"):
            self.context.synchronize_event(event.handle)
            event.queue.finished(event.sequence)

    # --- recordings -------------------------------------------------------------------------------------------------------

    def begin_capture(self, queue: Queue) -> None:
        """Start to record launches on the queue instead of enqueuing them."""
        with self.driver_call("recording launches"):
            queue.recording = Recording()

    def end_capture(self, queue: Queue) -> Recording | None:
        """Instantiate the graph of the recorded launches. None without launches, if a region reads sizes, or on failure."""
        recording, queue.recording = queue.recording, None
        if recording is None or recording.refused or not recording.launches:
            return None
        try:
            recording.graph = self.context.graph(recording.launches)
        except DriverError as error:
            failure = self.failure(error, f"creating a graph of {len(recording.launches)} launches")
            if self.lost:
                raise failure from error
            return None
        return recording

    def replay(self, recording: Recording, queue: Queue) -> None:
        """Enqueue a graph."""
        assert recording.graph is not None
        for flags in recording.flags:
            queue.reports(flags)
        with self.driver_call(f"launching a graph of {len(recording.launches)} launches"):
            self.context.launch_graph(recording.graph, queue.stream)
            queue.put()

    def discard(self, recording: Recording) -> None:
        """Destroy a graph. Never raises."""
        graph, recording.graph = recording.graph, None
        if graph is not None:
            with contextlib.suppress(DriverError):
                self.context.destroy_graph(graph)

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Queue) -> None:
        """Copy an array to a tensor. The caller may change the array after the call.

        "API synchronization behavior" of the CUDA driver's documentation says of asynchronous copies from pageable memory that the
        driver *may* synchronize and stage the memory. It need not: with unified addressing of host memory, the device reads the
        array itself, after the call has returned. So no upload relies on the driver's staging. Small arrays are copied to
        page-locked memory that the queue owns. For large arrays, the host waits for the copy, which costs less than staging
        them."""
        if not source.nbytes:
            return
        with self.driver_call(f"copying {source.nbytes} bytes to the device"):
            context, destination, idle = self.context, target.buffer.address + target.offset, queue.idle
            staged = queue.staged(source)
            context.upload(destination, address(source if staged is None else staged), source.nbytes, queue.stream)
            queue.put()
            if staged is None:
                context.synchronize(queue.stream)
                if idle:  # else an event that follows completes the earlier commands, and raises their faults
                    queue.finished(queue.sequence)

    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Queue) -> None:
        """Copy a tensor to an array."""
        if target.nbytes:
            with self.driver_call(f"copying {target.nbytes} bytes to the host"):
                self.context.download(address(target), source.buffer.address + source.offset, target.nbytes, queue.stream)
                queue.put()

    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Queue) -> None:
        """Copy a tensor to another tensor of the device."""
        size = int(np.prod(target.shape)) * target.dtype.itemsize
        if size:
            source_address, target_address = source.buffer.address + source.offset, target.buffer.address + target.offset
            with self.driver_call(f"copying {size} bytes"):
                self.context.copy(target_address, source_address, size, queue.stream)
                queue.put()

    # --- DLPack -----------------------------------------------------------------------------------------------------------

    def dlpack_device(self) -> tuple[int, int]:
        """Return the DLPack device type and number."""
        return self.facts.dlpack, self.facts.number

    def export(self, tensor: DeviceTensor, owner: object, stream: Any) -> object:
        """Create a DLPack capsule. The commands that wrote the tensor must have completed, so any stream may read it."""
        start = tensor.buffer.address + tensor.offset if tensor.buffer is not None else 0
        return export_capsule(start, self.dlpack_device(), tensor.shape, tensor.dtype, owner)

    def attribute(self, name: str, tensor: DeviceTensor) -> object:
        if name != array_interface.ATTRIBUTE or self.facts.dlpack != _CUDA:
            raise AttributeError(name)
        start = tensor.buffer.address + tensor.offset if tensor.buffer is not None else 0
        return array_interface.export(start, tensor.shape, tensor.dtype)

    def adopts(self, value: Any) -> bool:
        """Test whether an object is a tensor on this device, according to DLPack or else to `__cuda_array_interface__`."""
        if hasattr(value, "__dlpack_device__") or self.facts.dlpack != _CUDA:
            return super().adopts(value)
        interface = getattr(value, array_interface.ATTRIBUTE, None)
        if interface is None:
            return False
        address = array_interface.parse(interface).address
        return not address or self.context.pointer_device(address) == self.facts.number

    def adopt(self, value: Any) -> tuple[DeviceTensor, object]:
        """Import an object that `adopts` accepts, without a copy. Waits for commands that its library has enqueued."""
        if not hasattr(value, "__dlpack_device__"):
            array = array_interface.parse(getattr(value, array_interface.ATTRIBUTE))
            return self._adopted(array.address, array.shape, array.dtype, array.stream, value)
        if self._exchange is None:
            self._exchange = self.queue()
        stream = self._exchange.stream
        try:
            capsule = import_capsule(value.__dlpack__(stream=stream))
        except (BufferError, RuntimeError, TypeError) as error:
            raise InputError(f"the tensor cannot be exported by DLPack: {error}", remedy="detach it first") from error
        return self._adopted(capsule.address, capsule.shape, capsule.dtype, stream, capsule)

    def _adopted(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int | None, owner: object
    ) -> tuple[DeviceTensor, object]:
        """Wait for the commands of a stream, then wrap another library's memory as a tensor."""
        if address % ALIGNMENT:
            raise InputError(
                f"a tensor must start at a multiple of {ALIGNMENT} bytes, got address {address:#x}",
                remedy="pass a copy of it (clone, copy)",
            )
        if stream is not None:
            with self.driver_call("waiting for a tensor"):
                self.context.synchronize(stream)
        size = int(np.prod(shape)) * dtype.itemsize
        return DeviceTensor(Memory(address, size) if size else None, 0, shape, dtype), owner


def _free_host(context: Context, address: int) -> None:
    with contextlib.suppress(DriverError):
        context.free_host(address)
