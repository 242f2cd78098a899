"""The executor's `Device` on OpenCL: memory, queues, copies, events."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid_opencl.faults import translate
from inlaid_opencl.platforms import NumberedDevice, find_device
from inlaid_opencl.queues import Event, Memory, Queue, flat_bytes
from inlaid_runtime.errors import InlaidError, OutOfMemory
from inlaid_runtime.execution.driver_devices import DriverDevice
from inlaid_runtime.plugins import DeviceTensor, MemoryFacts

_STAGED = 1 << 16
"""Largest upload in bytes that is staged even if the queue is idle. Up to this size, a host copy is faster than a blocking
transfer."""

_opened: dict[int, OpenCLDevice] = {}
_lock = threading.Lock()


def open_device(number: int) -> OpenCLDevice:
    """Open device `number`. Later calls return the same object until the device is lost. Raises the `TargetError` of
    `find_device`."""
    with _lock:
        device = _opened.get(number)
        if device is None or device.lost:
            device = _opened[number] = OpenCLDevice(find_device(number))
        return device


class OpenCLDevice(DriverDevice):
    """A device with a separate OpenCL context.

    Drivers allocate memory on first use and report errors late. So `allocate` compares sizes with the device's memory."""

    driver_error = cl.Error
    lost_remedy = "load the model again, or choose another device by devices="

    def __init__(self, numbered: NumberedDevice) -> None:
        self.device = device = numbered.device
        super().__init__(f"{device.name.strip()} (opencl device {numbered.number})", int(device.global_mem_size))
        self.number = numbered.number
        self.context = cl.Context([device])
        self.largest = int(device.max_mem_alloc_size)
        self.largest_group = int(device.max_work_group_size)
        self.largest_items = tuple(map(int, device.max_work_item_sizes))
        self.largest_grid = (1 << int(device.address_bits) - 1) // max(self.largest_group, 1)
        self.alignment = max(int(device.mem_base_addr_align) // 8, 64)
        # With unified memory, pinned staging buffers gain nothing.
        self._pins = not device.host_unified_memory

    def translate(self, error: Exception, action: str) -> InlaidError | None:
        return translate(error, self.name, action) if isinstance(error, cl.Error) else None

    # --- memory -----------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Memory:
        """Allocate a buffer of `size` bytes. Raises `OutOfMemory` and `DeviceLost`."""
        if size > self.largest:
            raise OutOfMemory(
                f"a buffer on {self.name} must have at most {self.largest} bytes, got {size}",
                remedy="pass smaller inputs, or choose a device with more memory by devices=",
            )
        return self.reserve(size, lambda: Memory(self._create(size), size))

    def _create(self, size: int, flags: int = 0) -> cl.Buffer:
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | flags, size)

    def free(self, buffer: Memory) -> None:
        """Free a buffer. Never raises."""
        with contextlib.suppress(cl.Error):
            buffer.buffer.release()
        self.forget(buffer.size)

    def memory(self) -> MemoryFacts:
        """Return the total bytes of the device, and the bytes that this process has not allocated. OpenCL does not report the
        allocations of other processes."""
        if self.lost:
            raise self.lost_error()
        return MemoryFacts(self.total, self.total - self.live)

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """Allocate page-locked host memory; None if host and device share memory."""
        if not self._pins:
            return None
        with self.driver_call(f"mapping {size} bytes"):
            commands = cl.CommandQueue(self.context, self.device)
            buffer = self._create(size, cl.mem_flags.ALLOC_HOST_PTR)
            flags: Any = cl.map_flags.READ | cl.map_flags.WRITE
            mapped: Any = cl.enqueue_map_buffer(commands, buffer, flags, 0, (size,), np.dtype(np.uint8))
            array: np.ndarray[Any, Any] = mapped[0]
            return array if array.ctypes.data % 64 == 0 else None

    # --- queues -----------------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """Create an in-order queue."""
        with self.driver_call("creating a queue"):
            return Queue(self.context, self.device)

    def release(self, queue: Queue) -> None:
        """Wait for a queue's commands and release it. Never raises."""
        queue.close()

    def event(self, queue: Queue) -> Event:
        """Record an event that completes after all commands on the queue."""
        with self.driver_call("recording an event"):
            return queue.event()

    def wait(self, queue: Queue, event: Event) -> None:
        """Make later commands of a queue wait for an event of another queue."""
        if event.queue is not queue:
            with self.driver_call("ordering queues"):
                cl.enqueue_barrier(queue.commands, wait_for=[event.marker])
                queue.put()

    def synchronize(self, event: Event) -> None:
        """Block until an event completes. Raises `KernelFault`, `OutOfMemory` or `DeviceLost` if an earlier command failed."""
        with self.driver_call("running commands"):
            event.marker.wait()
            event.queue.finished(event.sequence)

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, source: np.ndarray[Any, Any], target: DeviceTensor, queue: Queue) -> None:
        """Copy an array to a tensor. The caller may overwrite the array after the call. A large array is copied synchronously if
        the queue is idle; otherwise, the array is first staged in a host copy."""
        if not source.nbytes:
            return
        data = flat_bytes(source)
        with self.driver_call(f"copying {data.nbytes} bytes to the device"):
            if queue.idle and data.nbytes > _STAGED:
                cl.enqueue_copy(queue.commands, target.buffer.buffer, data, dst_offset=target.offset, is_blocking=True)
            else:
                queue.write(target.buffer.buffer, target.offset, data.copy())

    def download(self, source: DeviceTensor, target: np.ndarray[Any, Any], queue: Queue) -> None:
        """Copy a tensor to an array."""
        if target.nbytes:
            with self.driver_call(f"copying {target.nbytes} bytes to the host"):
                queue.read(source.buffer.buffer, source.offset, flat_bytes(target))

    def copy(self, source: DeviceTensor, target: DeviceTensor, queue: Queue) -> None:
        """Copy a tensor to another tensor of the device."""
        size = int(np.prod(target.shape)) * target.dtype.itemsize
        if size:
            with self.driver_call(f"copying {size} bytes"):
                cl.enqueue_copy(
                    queue.commands,
                    target.buffer.buffer,
                    source.buffer.buffer,
                    byte_count=size,
                    src_offset=source.offset,
                    dst_offset=target.offset,
                )
                queue.put()
