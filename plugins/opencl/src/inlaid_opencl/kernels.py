"""A loaded region: puts the launches of its plan on queues."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.errors import KernelFault
from inlaid.plugins import DeviceTensor, KernelTime
from inlaid.runtime.launch_code import all_steps
from inlaid.runtime.launches import Launches
from inlaid_opencl.queues import Queue, flat_bytes
from inlaid_opencl.sessions import Bound, RegionCode, Session, Store, stores_of


class RegionKernel:
    """A region on a device (see `inlaid.plugins.DeviceKernel`), with its constants there as long as it lives. Raises `Unsupported`
    where the program does not fit the plan, `OutOfMemory` where there is no room for the constants."""

    def __init__(self, code: RegionCode, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._code, self._device = code, code.device
        self._launches = Launches(code.plan)
        self._lock = threading.Lock()
        self._spare: list[list[cl.Kernel]] | None = code.checked_kernels()
        sizes = [step.read.size for step in all_steps(code.plan.steps) if step.read is not None]
        used = {name for size in code.plan.sizes for name in arith.free_vars(arith.wrap(size.dim))}
        self._reads = bool(sizes)
        self._awaited = {number for number in sizes if arith.wrap(code.plan.dims[number].dim) in used}
        self._constants: list[Store] = []
        self._upload(constants.values())

    def _upload(self, constants: Iterable[np.ndarray[Any, Any]]) -> None:
        device, queue = self._device, self._device.queue()
        try:
            for array in constants:
                memory = device.allocate(array.nbytes) if array.nbytes else None
                if memory is not None:
                    weakref.finalize(self, device.free, memory)
                    device.upload(array, DeviceTensor(memory, 0, array.shape, array.dtype), queue)
                self._constants.append((memory, 0, array.nbytes))
            device.synchronise(device.event(queue))
        finally:
            device.release(queue)

    def launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
    ) -> None:
        """Put the region on a queue. Waits for the queue only where later launches need a size that the region works out."""
        if self._device.lost:
            raise self._device.lost_error()
        commands, enqueue = queue.commands, cl.enqueue_nd_range_kernel
        try:
            for kernel, items, group, _ in self._bound(inputs, outputs, workspace, dims, queue, commands):
                enqueue(commands, kernel, items, group)
            commands.flush()
        except cl.Error as error:
            raise self._device.failure(error, f"launching region {self._code.artifact.symbol}") from error
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
        """Put the region on the queue's neighbour whose events have times, between what is on the queue and what comes."""
        if self._device.lost:
            raise self._device.lost_error()
        events: list[tuple[int, cl.Event]] = []
        try:
            commands = queue.timed()
            before = cl.enqueue_marker(queue.commands)
            queue.commands.flush()
            cl.enqueue_barrier(commands, wait_for=[before])
            for kernel, items, group, ready in self._bound(inputs, outputs, workspace, dims, queue, commands):
                events.append((ready.call, cl.enqueue_nd_range_kernel(commands, kernel, items, group)))
            after = cl.enqueue_marker(commands)
            commands.flush()
            cl.enqueue_barrier(queue.commands, wait_for=[after])
        except cl.Error as error:
            raise self._device.failure(error, f"launching region {self._code.artifact.symbol}") from error
        finally:
            queue.put()
        return lambda: _times(events)

    def _bound(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
        commands: cl.CommandQueue,
    ) -> Iterable[Bound]:
        """The launches of a run, with their arguments."""
        session = self._session(queue)
        if self._reads:
            stores = stores_of(inputs, outputs, self._constants, workspace)
            return self._bound_late(session, stores, dims, queue, commands)
        tensors = (*inputs, *outputs) if workspace is None else (*inputs, *outputs, workspace)
        key = (*dims.tolist(), *[(0 if (memory := tensor.buffer) is None else memory.number, tensor.offset) for tensor in tensors])
        found = session.bound.get(key)
        if found is None:
            stores = stores_of(inputs, outputs, self._constants, workspace)
            with self._lock:
                ready = tuple(self._launches.of(dims.tolist(), lambda number, place: 0))
            found = session.keep(key, stores, ready)
        return found

    def _session(self, queue: Queue) -> Session:
        session: Session | None = queue.sessions.get(self)
        if session is None:
            with self._lock:  # the first queue takes the kernel objects of the check
                spare, self._spare = self._spare, None
            session = queue.sessions[self] = Session(self._code, spare or [[] for _ in self._code.plan.kernels], queue)
        if session.flags is not None:
            queue.reports(session.flags)
        return session

    def _bound_late(
        self,
        session: Session,
        stores: Mapping[str, Sequence[Store]],
        dims: np.ndarray[Any, Any],
        queue: Queue,
        commands: cl.CommandQueue,
    ) -> Iterator[Bound]:
        """The launches of a run that works out sizes, each made when those before it are on the queue."""

        def read(number: int, place: tuple[str, int, int]) -> int:
            memory, begin, _ = stores[place[0]][place[1]]
            assert memory is not None
            if number not in self._awaited:
                queue.read(memory.buffer, begin + place[2], flat_bytes(dims[number : number + 1]), commands)
                return 0
            cl.enqueue_copy(commands, flat_bytes(dims[number : number + 1]), memory.buffer, src_offset=begin + place[2])
            self._check_size(number, dims)
            return int(dims[number])

        used: list[Bound] = []
        try:
            for ready in self._launches.of(dims.tolist(), read):
                used.append(session.bind(stores, ready))
                yield used[-1]
        finally:
            session.recycle(used)

    def _check_size(self, number: int, dims: np.ndarray[Any, Any]) -> None:
        """Raise `KernelFault` for a size beyond the bound that buffers are made for."""
        artifact, size = self._code.artifact, int(dims[number])
        source = artifact.signature.dims[number]
        known: dict[arith.Expr, int] = {
            SizeVar(other.name): value for other, value in zip(artifact.signature.dims, dims.tolist(), strict=True)
        }
        bound = size if source.upper is None else arith.evaluate(source.upper, known)
        if not 0 <= size <= bound:
            raise KernelFault(f"region {artifact.symbol} gave {source.name} = {size}, which may be 0 to {bound}")


def _times(events: Sequence[tuple[int, cl.Event]]) -> Sequence[KernelTime]:
    """When each call ran: from the start of its first launch to the end of its last."""
    spans: dict[int, tuple[int, int]] = {}
    for call, event in events:
        profile = event.profile
        start = spans[call][0] if call in spans else profile.start
        spans[call] = start, profile.end
    first = min((start for start, _ in spans.values()), default=0)
    return [KernelTime(call, (start - first) * 1e-9, (end - start) * 1e-9) for call, (start, end) in spans.items()]
