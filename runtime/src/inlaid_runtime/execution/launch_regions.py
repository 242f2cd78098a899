"""Loaded regions for devices that run grids of threads. Binds launches to the buffers of a run and caches bound launches."""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import le
from typing import Any, Generic, TypeVar

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import KernelFault, Unsupported
from inlaid_runtime.execution.invoked import check_constraints
from inlaid_runtime.execution.launch_checks import KernelFootprint, LaunchChecks
from inlaid_runtime.execution.launch_code import walk_steps
from inlaid_runtime.execution.launch_queues import Flags, LaunchQueue
from inlaid_runtime.execution.launches import EvaluatedLaunch, KernelFunction, LaunchEvaluator, LaunchPlan, Stores
from inlaid_runtime.execution.sizes import Sizes
from inlaid_runtime.plugins.blame import summarize_nodes
from inlaid_runtime.plugins.device import Device, DeviceTensor, Opaque
from inlaid_runtime.plugins.runtime_module import KernelTime

Bound = TypeVar("Bound")
"""A launch with bound arguments, in the representation of a device."""
Reader = Callable[[Opaque, int, np.ndarray[Any, Any], bool], None]
"""Copies bytes of a buffer, from a byte offset, to an array: synchronously if the last argument is True, else in queue order."""

MAX_BOUND_SETS = 4
"""Greatest number of sets of sizes and buffers for which a queue caches the bound launches of a region."""


@dataclass(frozen=True)
class Limits:
    """Launch limits of a device: `threads` per block, `block` threads and `grid` blocks along each axis.

    `device` is the device's name; `block_term` and `thread_term` are its terms for a block and a thread; `remedy` says how to
    compile for the device."""

    device: str
    threads: int
    block: tuple[int, ...]
    grid: tuple[int, ...]
    block_term: str
    thread_term: str
    remedy: str


class LaunchSession(ABC, Generic[Bound]):
    """Per-queue state of a region: bound launches by sizes and buffers, and its fault flags.

    The queue owns the session while the region lives. A session must not reference the region."""

    flags: Flags | None = None

    def __init__(self) -> None:
        self.bound: dict[tuple[object, ...], tuple[Bound, ...]] = {}

    @abstractmethod
    def bind(self, region: LaunchedRegion[Bound], stores: Stores, launch: EvaluatedLaunch) -> Bound:
        """Bind the arguments of a launch, which the caller has checked."""

    def recycle(self, bound: Iterable[Bound]) -> None:
        """Make bound launches reusable: they will not be enqueued again, but may still run."""

    def bind_launches(
        self, region: LaunchedRegion[Bound], key: tuple[object, ...], stores: Stores, launches: Sequence[EvaluatedLaunch]
    ) -> tuple[Bound, ...]:
        """Bind launches and cache them under a key. Evicts the oldest entry if the cache is full. Raises `KernelFault`."""
        checks = region.checks(stores)
        for launch in launches:
            region.check(launch, checks)
        if len(self.bound) >= MAX_BOUND_SETS:
            self.recycle(self.bound.pop(next(iter(self.bound))))
        bound_launches = self.bound[key] = tuple(self.bind(region, stores, launch) for launch in launches)
        return bound_launches


class LaunchedRegion(ABC, Generic[Bound]):
    """A region loaded on a device, with its constants in device memory. Raises `OutOfMemory` if the constants do not fit."""

    def __init__(
        self, artifact: Artifact, plan: LaunchPlan, device: Device, constants: Iterable[np.ndarray[Any, Any]], limits: Limits
    ) -> None:
        self.artifact, self.plan = artifact, plan
        self._device, self._limits = device, limits
        self._launches = LaunchEvaluator(plan)
        self._footprints = [KernelFootprint(function) for function in plan.kernels]
        self._lock = threading.Lock()
        sizes = [step.read.size for step in walk_steps(plan.steps) if step.read is not None]
        size_names = {name for size in plan.sizes for name in arith.free_vars(arith.wrap(size.dim))}
        self.reads = bool(sizes)
        names = {arith.wrap(plan.dims[number].dim) for number in sizes}
        # Constraints on computed sizes, which are checked between launches.
        self._late = [constraint for constraint in artifact.constraints if names & arith.free_vars(constraint.condition)]
        size_names = size_names.union(*(arith.free_vars(constraint.condition) for constraint in self._late))
        self._awaited = {number for number in sizes if arith.wrap(plan.dims[number].dim) in size_names}
        self._constants: list[tuple[Opaque, int, int]] = []
        self._upload(constants)

    def _upload(self, constants: Iterable[np.ndarray[Any, Any]]) -> None:
        device, queue = self._device, self._device.queue()
        try:
            for array in constants:
                memory = device.allocate(array.nbytes) if array.nbytes else None
                if memory is not None:
                    weakref.finalize(self, device.free, memory)
                    device.upload(array, DeviceTensor(memory, 0, array.shape, array.dtype), queue)
                self._constants.append((memory, 0, array.nbytes))
            device.synchronize(device.event(queue))
        finally:
            device.release(queue)

    @abstractmethod
    def new_session(self, queue: LaunchQueue) -> LaunchSession[Bound]:
        """Create the region's state for a queue that runs the region for the first time."""

    def new_flags(self, owner: object, queue: LaunchQueue, stride: int) -> Flags | None:
        """Allocate cleared flags that live as long as `owner`; None if no kernel of the region reports faults."""
        if not any(function.reports for function in self.plan.kernels):
            return None
        size = len(self.artifact.kernels) * stride
        memory = self._device.allocate(size)
        weakref.finalize(owner, self._device.free, memory)
        flags = Flags(memory, size, stride, partial(_fault, self.artifact))
        queue.clear_flags(flags)
        return flags

    def checks(self, stores: Stores) -> LaunchChecks:
        """Return the checks of the launches of one run."""
        return LaunchChecks(self.artifact.symbol, self.plan, self._footprints, stores)

    def check(self, launch: EvaluatedLaunch, checks: LaunchChecks) -> None:
        """Raise `KernelFault` for a block or grid beyond the limits of the device, and for a launch that `checks` refuse."""
        limits = self._limits
        is_grid_too_large = not all(map(le, launch.grid, limits.grid))
        if is_grid_too_large or math.prod(launch.threads) > limits.threads or not all(map(le, launch.threads, limits.block)):
            info = self.artifact.kernels[launch.call]
            what, limit = (
                f"a {limits.block_term}",
                f"{limits.threads} {limits.thread_term}s, {sizes_text(limits.block)} along its axes",
            )
            actual, remedy = launch.threads, limits.remedy
            if is_grid_too_large:
                what, limit = "a grid", f"{sizes_text(limits.grid)} {limits.block_term}s"
                actual, remedy = launch.grid, "give smaller inputs"
            raise KernelFault(
                f"{what} of {limits.device} must have at most {limit}, got {sizes_text(actual)} for kernel {info.name}",
                node=summarize_nodes(info.nodes),
                remedy=remedy,
            )
        checks.check(launch)

    def arguments(self, stores: Stores, launch: EvaluatedLaunch) -> Iterator[tuple[Opaque, int]]:
        """Yield (buffer, byte offset) of each place of a checked launch."""
        for storage, index, offset in launch.places:
            memory, begin, _ = stores[storage][index]
            yield memory, begin + offset

    def session(self, queue: LaunchQueue) -> LaunchSession[Bound]:
        """Return the state of the region on a queue, created lazily. The next event of the queue checks the flags."""
        session: LaunchSession[Bound] | None = queue.sessions.get(self)
        if session is None:
            session = queue.sessions[self] = self.new_session(queue)
        if session.flags is not None:
            queue.reports(session.flags)
        return session

    def bound(
        self,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        workspace: DeviceTensor | None,
        dims: np.ndarray[Any, Any],
        session: LaunchSession[Bound],
        read: Reader,
    ) -> Iterable[Bound]:
        """Return the bound launches of a run. If the region computes sizes, each launch is bound after the previous launch is
        enqueued; the host waits only for sizes that later launches need."""
        if self.reads:
            return self._bound_late(session, self._stores(inputs, outputs, workspace), dims, read)
        tensors = (*inputs, *outputs) if workspace is None else (*inputs, *outputs, workspace)
        key = (*dims.tolist(), *[(tensor.buffer, tensor.offset) for tensor in tensors])
        bound_launches = session.bound.get(key)
        if bound_launches is None:
            with self._lock:
                launches = tuple(self._launches.evaluate(dims.tolist(), lambda number, address: 0))
            bound_launches = session.bind_launches(self, key, self._stores(inputs, outputs, workspace), launches)
        return bound_launches

    def _stores(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], workspace: DeviceTensor | None) -> Stores:
        def store(tensor: DeviceTensor) -> tuple[Opaque, int, int]:
            return tensor.buffer, tensor.offset, math.prod(tensor.shape) * tensor.dtype.itemsize

        arena = (None, 0, 0) if workspace is None else store(workspace)
        return {"input": [*map(store, inputs)], "output": [*map(store, outputs)], "constant": self._constants, "arena": [arena]}

    def _bound_late(
        self, session: LaunchSession[Bound], stores: Stores, dims: np.ndarray[Any, Any], read: Reader
    ) -> Iterator[Bound]:
        sources = self.artifact.signature.dims
        sizes: Sizes = {SizeVar(source.name): int(dims[n]) for n, source in enumerate(sources) if source.upper is None}
        checks = self.checks(stores)

        def value(number: int, address: tuple[str, int, int]) -> int:
            checks.computed(address)
            memory, begin, _ = stores[address[0]][address[1]]
            awaited = number in self._awaited
            read(memory, begin + address[2], dims[number : number + 1].view(np.uint8), awaited)
            if not awaited:
                return 0
            self._check_size(number, dims)
            sizes[SizeVar(sources[number].name)] = int(dims[number])
            check_constraints(self.artifact.constraints, sizes)
            return int(dims[number])

        bound_launches: list[Bound] = []
        try:
            for launch in self._launches.evaluate(dims.tolist(), value):
                self.check(launch, checks)
                bound_launches.append(session.bind(self, stores, launch))
                yield bound_launches[-1]
        finally:
            session.recycle(bound_launches)

    def _check_size(self, number: int, dims: np.ndarray[Any, Any]) -> None:
        """Raise `KernelFault` if a computed size exceeds the upper bound for which buffers are allocated."""
        artifact, size = self.artifact, int(dims[number])
        source = artifact.signature.dims[number]
        sizes: dict[arith.Expr, int] = {
            SizeVar(other.name): value for other, value in zip(artifact.signature.dims, dims.tolist(), strict=True)
        }
        bound = size if source.upper is None else arith.evaluate(source.upper, sizes)
        if not 0 <= size <= bound:
            raise KernelFault(f"region {artifact.symbol}: computed size {source.name} must be 0 to {bound}, got {size}")


def _fault(artifact: Artifact, call: int) -> KernelFault:
    info = artifact.kernels[call]
    return KernelFault(
        f"region {artifact.symbol}: an index is out of range in kernel {info.name}", node=summarize_nodes(info.nodes)
    )


def check_parameters(artifact: Artifact, function: KernelFunction, actual: int) -> None:
    """Raise `Unsupported` if `actual`, a kernel's number of parameters in the program, is not that of `function`."""
    if actual != function.parameters:
        raise Unsupported(
            f"the code of {artifact.symbol} is damaged: "
            f"kernel {function.name} must have {function.parameters} parameters, got {actual}",
            remedy="compile the model again",
        )


def times_of_calls(spans: Iterable[tuple[int, float, float]]) -> Sequence[KernelTime]:
    """Return the times of each call of a region, from the start of its first launch to the end of its last. `spans` are (call,
    start, end) of each launch, in seconds."""
    spans_by_call: dict[int, tuple[float, float]] = {}
    for call, start, end in spans:
        spans_by_call[call] = spans_by_call[call][0] if call in spans_by_call else start, end
    first = min((start for start, _ in spans_by_call.values()), default=0.0)
    return [KernelTime(call, start - first, end - start) for call, (start, end) in spans_by_call.items()]


def sizes_text(sizes: Sequence[int]) -> str:
    """Format extents, such as "4 x 8 x 1"."""
    return " x ".join(map(str, sizes))
