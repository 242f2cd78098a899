"""Loaded regions, which enqueue the launches of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid_opencl.queues import Memory, Queue
from inlaid_opencl.sessions import Bound, KernelSession, RegionCode
from inlaid_runtime.execution.launch_queues import LaunchQueue
from inlaid_runtime.execution.launch_regions import LaunchedRegion, Limits, times_of_calls
from inlaid_runtime.plugins import DeviceTensor, KernelTime


class RegionKernel(LaunchedRegion[Bound]):
    """A region loaded on a device; implements `inlaid.plugins.DeviceKernel`. It owns its constants in device memory. Raises
    `Unsupported` if program and plan differ, and `OutOfMemory` if the constants do not fit."""

    def __init__(self, code: RegionCode, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._code, self._opencl = code, code.device
        self._spare: list[list[cl.Kernel]] | None = code.checked_kernels()
        super().__init__(code.artifact, code.plan, code.device, constants.values(), launch_limits(code))

    def new_session(self, queue: LaunchQueue) -> KernelSession:
        """Create the kernel objects of a queue. The first queue reuses the kernel objects that the check at load created."""
        with self._lock:
            spare, self._spare = self._spare, None
        return KernelSession(self, self._code, spare or [[] for _ in self._code.plan.kernels], queue)

    def launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
    ) -> None:
        """Enqueue the region. Synchronizes only if later launches need a size that the region computes."""
        if self._opencl.lost:
            raise self._opencl.lost_error()
        commands, enqueue = queue.commands, cl.enqueue_nd_range_kernel
        try:
            for kernel, items, group, _ in self._bound_to(inputs, outputs, workspace, dims, queue, commands):
                enqueue(commands, kernel, items, group)
            commands.flush()
        except cl.Error as error:
            raise self._opencl.failure(error, f"launching region {self.artifact.symbol}") from error
        finally:
            queue.put()

    def timed_launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
    ) -> Callable[[], Sequence[KernelTime]]:
        """Enqueue the region on the profiling queue. It runs after earlier commands of `queue` and before later ones."""
        if self._opencl.lost:
            raise self._opencl.lost_error()
        events: list[tuple[int, cl.Event]] = []
        try:
            commands = queue.timed()
            before = cl.enqueue_marker(queue.commands)
            queue.commands.flush()
            cl.enqueue_barrier(commands, wait_for=[before])
            for kernel, items, group, launch in self._bound_to(inputs, outputs, workspace, dims, queue, commands):
                events.append((launch.call, cl.enqueue_nd_range_kernel(commands, kernel, items, group)))
            after = cl.enqueue_marker(commands)
            commands.flush()
            cl.enqueue_barrier(queue.commands, wait_for=[after])
        except cl.Error as error:
            raise self._opencl.failure(error, f"launching region {self.artifact.symbol}") from error
        finally:
            queue.put()
        return lambda: times_of_calls((call, event.profile.start * 1e-9, event.profile.end * 1e-9) for call, event in events)

    def _bound_to(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
        commands: cl.CommandQueue,
    ) -> Iterable[Bound]:
        """Yield the bound launches of a run. Sizes that the region computes are read on queue `commands`."""

        def read(memory: Memory, offset: int, target: np.ndarray[Any, Any], now: bool) -> None:
            if now:
                cl.enqueue_copy(commands, target, memory.buffer, src_offset=offset)
            else:
                queue.read(memory.buffer, offset, target, commands)

        return self.bound(inputs, outputs, workspace, dims, self.session(queue), read)


def launch_limits(code: RegionCode) -> Limits:
    """Return the launch limits of a region's device."""
    device = code.device
    grid = (device.largest_grid,) * 3
    remedy = "compile for this kind of device (option kind)"
    return Limits(device.name, device.largest_group, device.largest_items, grid, "work-group", "work-item", remedy)
