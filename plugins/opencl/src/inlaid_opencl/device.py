"""OpenCL devices as the executor sees them: memory, queues, copies, events."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid.errors import DeviceLost, OutOfMemory
from inlaid.plugins import Device, DeviceTensor, MemoryFacts
from inlaid_opencl.faults import translated
from inlaid_opencl.platforms import Found, find_device
from inlaid_opencl.queues import Event, Memory, Queue, flat_bytes

_STAGED = 1 << 16
"""Bytes up to which a copy of an array to upload is faster than waiting for an idle queue to take it."""

_opened: dict[int, OpenCLDevice] = {}
_lock = threading.Lock()


def open_device(number: int) -> OpenCLDevice:
    """The device of that number, one object for the process until it is lost. Raises `TargetError` as `find_device` does."""
    with _lock:
        found = _opened.get(number)
        if found is None or found.lost:
            found = _opened[number] = OpenCLDevice(find_device(number))
        return found


class _Doing:
    """What a device is asked to do: errors of the driver become those of Inlaid."""

    __slots__ = ("_device", "_what")

    def __init__(self, device: OpenCLDevice, what: str) -> None:
        self._device, self._what = device, what

    def __enter__(self) -> None:
        if self._device.lost:
            raise self._device.lost_error()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, cl.Error):
            raise self._device.failure(error, self._what) from error


class OpenCLDevice(Device):
    """A device with a context of its own. `live` is the bytes that are allocated, `lost` why it answers no more, "" while it does.

    Drivers reserve memory when it is first used, so `allocate` compares sizes with what the device has."""

    def __init__(self, found: Found) -> None:
        self.device = device = found.device
        self.number = found.number
        self.name = f"{device.name.strip()} (opencl device {found.number})"
        self.context = cl.Context([device])
        self.total = int(device.global_mem_size)
        self.largest = int(device.max_mem_alloc_size)
        self.largest_group = int(device.max_work_group_size)
        self.largest_items = tuple(map(int, device.max_work_item_sizes))
        self.largest_grid = (1 << int(device.address_bits) - 1) // max(self.largest_group, 1)
        self.alignment = max(int(device.mem_base_addr_align) // 8, 64)
        self.live = 0
        self.lost = ""
        self._lock = threading.Lock()
        # Memory that is mapped into the host's address space is worth it where it is not the device's own memory.
        self._pins = not device.host_unified_memory

    def lost_error(self) -> DeviceLost:
        """The error of every call once the device is lost."""
        return DeviceLost(self.lost, remedy="load the model again, or choose another device by devices=")

    def failure(self, error: cl.Error, doing: str) -> Exception:
        """An error of the driver as one of Inlaid's; as it is where it means a mistake of the caller's."""
        found = translated(error, self.name, doing)
        if isinstance(found, DeviceLost):
            self.lost = found.message
        return found or error

    # --- memory -----------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Memory:
        """A buffer of that many bytes. Raises `OutOfMemory`, `DeviceLost`."""
        if size > self.largest:
            raise OutOfMemory(
                f"a buffer on {self.name} must have at most {self.largest} bytes, got {size}",
                remedy="give smaller inputs, or choose a device with more memory by devices=",
            )
        with self._lock:
            if self.live + size > self.total:
                raise OutOfMemory(
                    f"{self.name} has {self.total - self.live} of {self.total} bytes left, expected {size}",
                    remedy="give smaller inputs, or free what stays on the device",
                )
            self.live += size
        try:
            with _Doing(self, f"allocating {size} bytes"):
                return Memory(self._create(size), size)
        except BaseException:
            self._forget(size)
            raise

    def _create(self, size: int, flags: int = 0) -> cl.Buffer:
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | flags, size)

    def free(self, buffer: Memory) -> None:
        """Give a buffer back. Never raises."""
        with contextlib.suppress(cl.Error):
            buffer.buffer.release()
        self._forget(buffer.size)

    def _forget(self, size: int) -> None:
        with self._lock:
            self.live -= size

    def memory(self) -> MemoryFacts:
        """All bytes of the device, and those that this process has not allocated: OpenCL does not tell of others."""
        if self.lost:
            raise self.lost_error()
        return MemoryFacts(self.total, self.total - self.live)

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Page-locked host memory; None where device and host share their memory."""
        if not self._pins:
            return None
        with _Doing(self, f"mapping {size} bytes"):
            commands = cl.CommandQueue(self.context, self.device)
            buffer = self._create(size, cl.mem_flags.ALLOC_HOST_PTR)
            flags: Any = cl.map_flags.READ | cl.map_flags.WRITE
            mapped: Any = cl.enqueue_map_buffer(commands, buffer, flags, 0, (size,), np.dtype(np.uint8))
            array: np.ndarray[Any, Any] = mapped[0]
            return array if array.ctypes.data % 64 == 0 else None

    # --- queues -----------------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """A new in-order queue."""
        with _Doing(self, "making a queue"):
            return Queue(self.context, self.device)

    def release(self, queue: Queue) -> None:
        """Give a queue back, once what is on it is done. Never raises."""
        queue.close()

    def event(self, queue: Queue) -> Event:
        """An event of all that is on the queue."""
        with _Doing(self, "marking a queue"):
            return queue.event()

    def wait(self, queue: Queue, event: Event) -> None:
        """Let a queue wait for an event."""
        if event.queue is not queue:
            with _Doing(self, "ordering queues"):
                cl.enqueue_barrier(queue.commands, wait_for=[event.marker])
                queue.put()

    def synchronise(self, event: Event) -> None:
        """Return once an event has come. Raises `KernelFault`, `OutOfMemory` and `DeviceLost` of what came before it."""
        with _Doing(self, "running what is on a queue"):
            event.marker.wait()
            event.queue.finished(event.sequence)

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Queue) -> None:
        """Copy an array to a tensor. Where the queue is busy, a copy of the array waits in its place; a large one is taken at once
        by an idle queue."""
        if not source.nbytes:
            return
        data = flat_bytes(source)
        with _Doing(self, f"copying {data.nbytes} bytes to the device"):
            if queue.idle and data.nbytes > _STAGED:
                cl.enqueue_copy(queue.commands, target.buffer.buffer, data, dst_offset=target.offset, is_blocking=True)
            else:
                queue.write(target.buffer.buffer, target.offset, data.copy())

    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Queue) -> None:
        """Copy a tensor to an array."""
        if target.nbytes:
            with _Doing(self, f"copying {target.nbytes} bytes to the host"):
                queue.read(source.buffer.buffer, source.offset, flat_bytes(target))

    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Queue) -> None:
        """Copy a tensor to another."""
        size = int(np.prod(target.shape)) * target.dtype.itemsize
        if size:
            with _Doing(self, f"copying {size} bytes"):
                cl.enqueue_copy(
                    queue.commands,
                    target.buffer.buffer,
                    source.buffer.buffer,
                    byte_count=size,
                    src_offset=source.offset,
                    dst_offset=target.offset,
                )
                queue.put()
