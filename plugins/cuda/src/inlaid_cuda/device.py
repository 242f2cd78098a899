"""CUDA devices as the executor sees them: memory, queues, copies, events, graphs, and exchange by DLPack."""

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

from inlaid.errors import InlaidError, InputError, TargetError
from inlaid.plugins import CapturingDevice, DeviceTensor, MemoryFacts
from inlaid.runtime.arrays import address
from inlaid.runtime.dlpack import export_capsule, import_capsule
from inlaid.runtime.driver_devices import DriverDevice
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.driver import Context, Driver, DriverError, Status
from inlaid_cuda.faults import RESTART, translated
from inlaid_cuda.options import HOST, CudaOptions
from inlaid_cuda.queues import Event, Memory, Queue, Recording

MEMORY = "INLAID_CUDA_MEMORY"
"""The environment variable that bounds what a process allocates on each device."""
ALIGNMENT = 64
"""Bytes to which tensors of other libraries must be aligned."""
_STAGED = 1 << 16
"""Bytes of page-locked memory up to which a copy of it is faster than waiting for an idle queue to take it."""
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def memory_limit() -> int | None:
    """The bytes that this process may allocate on a device, None where the environment does not say. Raises `TargetError`."""
    text = os.environ.get(MEMORY, "")
    found = re.fullmatch(r"(\d+)([KMG]?)(iB)?", text)
    if text and not found:
        raise TargetError(f"{MEMORY} must be a number of bytes such as 4000000000, 512M or 4GiB, got {text!r}")
    return int(found[1]) << _UNITS[found[2]] if found else None


class Devices:
    """The devices of a driver, one object each for the process."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._opened: dict[int, CudaDevice] = {}
        self._lock = threading.Lock()

    def open(self, number: int) -> CudaDevice:
        """The device of that number. Raises `TargetError` where there is no driver or no such device."""
        with self._lock:
            found = self._opened.get(number)
            if found is None:
                known = self.driver.devices()
                if not 0 <= number < len(known):
                    listed = "; ".join(map(str, known))
                    raise TargetError(
                        f"cuda device number must be 0 to {len(known) - 1}, got {number}", remedy=f"choose from {listed}"
                    )
                name = f"{known[number].name} (cuda device {number})"
                try:
                    context = self.driver.open(number)
                except DriverError as error:
                    raise translated(error, name, "opening the device") from error
                found = self._opened[number] = CudaDevice(context, name)
            return found


@functools.cache
def devices_of(options: CudaOptions) -> Devices:
    """The devices of a target: those of this machine, or its processor in their place."""
    if options.arch == HOST:
        from inlaid_cuda.emulation.driver import HostDriver

        return Devices(HostDriver())
    return Devices(SystemDriver())


class CudaDevice(DriverDevice, CapturingDevice):
    """A device of a driver. Queues are streams, recordings are graphs."""

    driver_error = DriverError
    lost_remedy = RESTART

    def __init__(self, context: Context, name: str) -> None:
        limit = memory_limit()
        memory = context.facts.memory
        super().__init__(name, memory if limit is None else min(limit, memory))
        self.context, self.facts = context, context.facts
        self._spare_events: list[int] = []
        self._exchange: Queue | None = None

    def translated(self, error: Exception, doing: str) -> InlaidError | None:
        """What an error of the driver means."""
        return translated(error, self.name, doing) if isinstance(error, DriverError) else None

    # --- memory -----------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Memory:
        """Memory of that many bytes. Raises `OutOfMemory`, `DeviceLost`."""
        return self.make(size, lambda: Memory(self._allocated(size), size))

    def _allocated(self, size: int) -> int:
        try:
            return self.context.allocate(size)
        except DriverError as error:
            if error.status != Status.OUT_OF_MEMORY:
                raise
        self.context.trim()
        return self.context.allocate(size)

    def free(self, buffer: Memory) -> None:
        """Give memory back. Never raises."""
        with contextlib.suppress(DriverError):
            self.context.free(buffer.address)
        self.forget(buffer.size)

    def memory(self) -> MemoryFacts:
        """All bytes that this process may allocate, and those of them that are free."""
        with self.doing("asking for free memory"):
            free, _ = self.context.memory()
        return MemoryFacts(self.total, min(free, self.total - self.live))

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Allocate page-locked host memory; None if host and device share memory."""
        return None if self.facts.integrated else self._page_locked(size)

    def _page_locked(self, size: int) -> np.ndarray[Any, Any]:
        with self.doing(f"page-locking {size} bytes"):
            found = self.context.allocate_host(size)
        memory = (ctypes.c_uint8 * size).from_address(found)
        weakref.finalize(memory, _free_host, self.context, found)
        return np.ctypeslib.as_array(memory)

    # --- queues -----------------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """A new stream."""
        with self.doing("making a stream"):
            return Queue(self.context, self._page_locked)

    def release(self, queue: Queue) -> None:
        """Wait for a queue's commands and release it. Never raises."""
        queue.close()

    def event(self, queue: Queue) -> Event:
        """An event of all that is on the queue, whose faults are known once it has come."""
        with self.doing("marking a stream"):
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
            with self.doing("ordering streams"):
                self.context.await_event(queue.stream, event.handle)
                queue.put()

    def synchronise(self, event: Event) -> None:
        """Return once an event has come. Raises `KernelFault`, `OutOfMemory` and `DeviceLost` of what came before it."""
        with self.doing("running what is on a stream"):
            self.context.synchronise_event(event.handle)
            event.queue.finished(event.sequence)

    # --- recordings -------------------------------------------------------------------------------------------------------

    def begin_capture(self, queue: Queue) -> None:
        """Let launches on the queue be recorded."""
        with self.doing("recording launches"):
            queue.recording = Recording()

    def end_capture(self, queue: Queue) -> Recording | None:
        """The graph of what was launched; None where there is nothing, where a region waits for sizes, or where the driver makes
        no graph of it."""
        recording, queue.recording = queue.recording, None
        if recording is None or recording.refused or not recording.launches:
            return None
        try:
            recording.graph = self.context.graph(recording.launches)
        except DriverError as error:
            found = self.failure(error, f"making a graph of {len(recording.launches)} launches")
            if self.lost:
                raise found from error
            return None
        return recording

    def replay(self, recording: Recording, queue: Queue) -> None:
        """Put a graph on a queue."""
        assert recording.graph is not None
        for flags in recording.flags:
            queue.reports(flags)
        with self.doing(f"launching a graph of {len(recording.launches)} launches"):
            self.context.launch_graph(recording.graph, queue.stream)
            queue.put()

    def discard(self, recording: Recording) -> None:
        """Give a graph back. Never raises."""
        graph, recording.graph = recording.graph, None
        if graph is not None:
            with contextlib.suppress(DriverError):
                self.context.destroy_graph(graph)

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Queue) -> None:
        """Copy an array to a tensor. The driver copies pageable memory before it returns; page-locked memory is taken at once by an
        idle queue, or copied first."""
        if not source.nbytes:
            return
        with self.doing(f"copying {source.nbytes} bytes to the device"):
            context, place = self.context, target.buffer.address + target.offset
            locked = context.page_locked(address(source))
            at_once = locked and queue.idle and source.nbytes > _STAGED
            if locked and not at_once:
                source = source.copy()
            context.upload(place, address(source), source.nbytes, queue.stream)
            queue.put()
            if at_once:
                context.synchronise(queue.stream)
                queue.finished(queue.sequence)

    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Queue) -> None:
        """Copy a tensor to an array."""
        if target.nbytes:
            with self.doing(f"copying {target.nbytes} bytes to the host"):
                self.context.download(address(target), source.buffer.address + source.offset, target.nbytes, queue.stream)
                queue.put()

    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Queue) -> None:
        """Copy a tensor to another."""
        size = int(np.prod(target.shape)) * target.dtype.itemsize
        if size:
            begin, end = source.buffer.address + source.offset, target.buffer.address + target.offset
            with self.doing(f"copying {size} bytes"):
                self.context.copy(end, begin, size, queue.stream)
                queue.put()

    # --- DLPack -----------------------------------------------------------------------------------------------------------

    def dlpack_device(self) -> tuple[int, int]:
        """The device as DLPack knows it."""
        return self.facts.dlpack, self.facts.number

    def export(self, tensor: DeviceTensor, owner: object, stream: Any) -> object:
        """A capsule of a tensor. What made it is done, so every stream may read it."""
        start = tensor.buffer.address + tensor.offset if tensor.buffer is not None else 0
        return export_capsule(start, self.dlpack_device(), tensor.shape, tensor.dtype, owner)

    def adopt(self, value: Any) -> tuple[DeviceTensor, object]:
        """The tensor behind an object with `__dlpack__`, once what its library has put on streams for it is done."""
        if self._exchange is None:
            self._exchange = self.queue()
        stream = self._exchange.stream
        try:
            found = import_capsule(value.__dlpack__(stream=stream))
        except (BufferError, RuntimeError, TypeError) as error:
            raise InputError(f"the tensor cannot be read by DLPack: {error}", remedy="detach it first") from error
        if found.address % ALIGNMENT:
            raise InputError(
                f"a tensor must start at a multiple of {ALIGNMENT} bytes, got address {found.address:#x}",
                remedy="give a copy of it (clone, copy)",
            )
        with self.doing("waiting for a tensor"):
            self.context.synchronise(stream)
        size = int(np.prod(found.shape)) * found.dtype.itemsize
        return DeviceTensor(Memory(found.address, size) if size else None, 0, found.shape, found.dtype), found


def _free_host(context: Context, address: int) -> None:
    with contextlib.suppress(DriverError):
        context.free_host(address)
