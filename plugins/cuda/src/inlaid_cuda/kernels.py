"""Loaded regions. Loads functions, packs the arguments of launches, and enqueues or records launches."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from inlaid_cuda.device import CudaDevice
from inlaid_cuda.driver import Context, DriverError, FunctionFacts, Prepared, Status, TensorMap
from inlaid_cuda.faults import RECOMPILE
from inlaid_cuda.queues import Memory, Queue
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import KernelFault, Unsupported
from inlaid_runtime.execution.arrays import address
from inlaid_runtime.execution.launch_queues import LaunchQueue
from inlaid_runtime.execution.launch_regions import (
    LaunchedRegion,
    LaunchSession,
    Limits,
    check_parameters,
    sizes_text,
    times_of_calls,
)
from inlaid_runtime.execution.launches import Descriptor, EvaluatedLaunch, LaunchPlan, Stores
from inlaid_runtime.plugins import DeviceTensor, KernelTime
from inlaid_runtime.plugins.blame import summarize_nodes

_FLAG = 4
"""Bytes of a fault flag."""


class Bound(NamedTuple):
    """A launch with packed arguments, and the number of its call in the region."""

    prepared: Prepared
    call: int


class Functions:
    """The functions of a region's module. The object owns the module. Raises `Unsupported` if the module is damaged, is compiled
    for another architecture, or differs from the plan."""

    def __init__(self, device: CudaDevice, artifact: Artifact, plan: LaunchPlan, program: bytes) -> None:
        context, symbol = device.context, artifact.symbol
        with device.driver_call(f"loading region {symbol}"):
            module = context.load(program)
            weakref.finalize(self, _unload, context, module)
            for kernel in plan.kernels:
                _check_shared(device, kernel.name, kernel.shared)
            self.handles = [self._function(context, module, kernel.name, kernel.shared, symbol) for kernel in plan.kernels]
            self.facts: list[FunctionFacts] = [context.function_facts(handle) for handle in self.handles]
        self.maps = [[(item.buffer, _tensor_map(item, symbol)) for item in kernel.descriptors] for kernel in plan.kernels]
        for kernel, facts in zip(plan.kernels, self.facts, strict=True):
            if facts.parameters is not None:
                check_parameters(artifact, kernel, facts.parameters)
            _check_shared(device, kernel.name, facts.shared + kernel.shared)

    @staticmethod
    def _function(context: Context, module: int, name: str, shared: int, symbol: str) -> int:
        try:
            return context.function(module, name, shared)
        except DriverError as error:
            if error.status == Status.NOT_FOUND:
                raise Unsupported(
                    f"the code of {symbol} is damaged: it lacks kernel {name}", remedy="compile the model again"
                ) from error
            raise


class PreparedSession(LaunchSession[Bound]):
    """The bound launches of a region on one queue."""

    def __init__(self, region: RegionKernel, queue: LaunchQueue) -> None:
        super().__init__()
        self._device, self._functions = region.cuda, region.functions
        self.flags = region.new_flags(self, queue, _FLAG)

    def bind(self, region: LaunchedRegion[Bound], stores: Stores, launch: EvaluatedLaunch) -> Bound:
        """Pack the arguments of a launch. Raises `KernelFault` for more threads than the function's registers allow."""
        max_threads = self._functions.facts[launch.kernel].threads
        if math.prod(launch.threads) > max_threads:
            info = region.artifact.kernels[launch.call]
            raise KernelFault(
                f"a block of kernel {info.name} must have at most {max_threads} threads, got {sizes_text(launch.threads)}",
                node=summarize_nodes(info.nodes),
                remedy=RECOMPILE,
            )
        arguments: list[Any] = []
        for memory, offset in region.arguments(stores, launch):
            arguments += (0 if memory is None else memory.address, offset)
        arguments += launch.scalars
        for buffer, described in self._functions.maps[launch.kernel]:
            start = sum(arguments[2 * buffer : 2 * buffer + 2])
            arguments.append(self._device.tensor_map(described, start))
        if region.plan.kernels[launch.kernel].reports:
            assert self.flags is not None
            arguments.append(self.flags.memory.address + launch.call * _FLAG)
        function = self._functions.handles[launch.kernel]
        return Bound(self._device.context.prepare(function, launch.grid, launch.threads, arguments), launch.call)


class RegionKernel(LaunchedRegion[Bound]):
    """A region loaded on a device; implements `inlaid.plugins.DeviceKernel`. It owns its constants in device memory. Raises
    `Unsupported` if program and plan differ, and `OutOfMemory` if the constants do not fit."""

    def __init__(
        self,
        device: CudaDevice,
        artifact: Artifact,
        plan: LaunchPlan,
        program: bytes,
        constants: Mapping[str, np.ndarray[Any, Any]],
    ) -> None:
        facts = device.facts
        limits = Limits(device.name, facts.threads, facts.block, facts.grid, "block", "thread", RECOMPILE)
        self.cuda, self.functions = device, Functions(device, artifact, plan, program)
        super().__init__(artifact, plan, device, constants.values(), limits)

    def new_session(self, queue: LaunchQueue) -> PreparedSession:
        """Create the bound launches and fault flags of the region on a queue."""
        return PreparedSession(self, queue)

    def launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
    ) -> None:
        """Enqueue or record the region. Synchronizes only if later launches need a size that the region computes. A region that
        synchronizes cannot be recorded."""
        recording = queue.recording
        if recording is not None and self.reads:
            recording.refused = True
            return
        context, stream = self.cuda.context, queue.stream
        with self.cuda.driver_call(f"launching region {self.artifact.symbol}"):
            session = self.session(queue)
            bound_launches = self.bound(inputs, outputs, workspace, dims, session, self._reader(queue))
            if recording is not None:
                recording.add([bound.prepared for bound in bound_launches], session.flags, (self, session))
                return
            queue.put()
            if self.reads:
                for bound in bound_launches:
                    context.launch((bound.prepared,), stream)
            else:
                context.launch([bound.prepared for bound in bound_launches], stream)

    def timed_launch(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        queue: Queue,
    ) -> Callable[[], Sequence[KernelTime]]:
        """Enqueue the region with a timed event before and after each launch."""
        context, stream = self.cuda.context, queue.stream
        times: list[tuple[int, _Instant, _Instant]] = []
        with self.cuda.driver_call(f"launching region {self.artifact.symbol}"):
            session = self.session(queue)
            queue.put()
            for bound in self.bound(inputs, outputs, workspace, dims, session, self._reader(queue)):
                start = _Instant(context, stream)
                context.launch((bound.prepared,), stream)
                times.append((bound.call, start, _Instant(context, stream)))
        return lambda: self._times(times)

    def _times(self, times: Sequence[tuple[int, _Instant, _Instant]]) -> Sequence[KernelTime]:
        with self.cuda.driver_call("timing kernels"):
            return times_of_calls((call, start - times[0][1], end - times[0][1]) for call, start, end in times)

    def _reader(self, queue: Queue) -> Callable[[Memory, int, np.ndarray[Any, Any], bool], None]:
        def read(memory: Memory, offset: int, target: np.ndarray[Any, Any], now: bool) -> None:
            self.cuda.context.download(address(target), memory.address + offset, target.nbytes, queue.stream)
            queue.put()
            if now:
                self.cuda.context.synchronize(queue.stream)

        return read


def _tensor_map(descriptor: Descriptor, symbol: str) -> TensorMap:
    try:
        return TensorMap.parse(descriptor.text)
    except ValueError as error:
        raise Unsupported(f"the code of {symbol} is damaged: {error}", remedy="compile the model again") from error


def _check_shared(device: CudaDevice, name: str, size: int) -> None:
    """Raise `Unsupported` if a kernel needs more shared memory than a block of the device has."""
    if size > device.facts.shared:
        raise Unsupported(
            f"kernel {name} needs {size} bytes of shared memory, but a block of {device.name} has {device.facts.shared}",
            remedy=RECOMPILE,
        )


class _Instant:
    """A timestamp on a stream, taken after all earlier commands."""

    def __init__(self, context: Context, stream: int) -> None:
        self._context, self._event = context, context.event(timed=True)
        weakref.finalize(self, _destroy_event, context, self._event)
        context.record(self._event, stream)

    def __sub__(self, earlier: _Instant) -> float:
        return self._context.elapsed(earlier._event, self._event)


def _unload(context: Context, module: int) -> None:
    with contextlib.suppress(DriverError):
        context.unload(module)


def _destroy_event(context: Context, event: int) -> None:
    with contextlib.suppress(DriverError):
        context.destroy_event(event)
