"""Runs kernels on poisoned memory between guards. Poison shows what a kernel does not write, guards what it writes outside of its
arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid.plugins import Artifact, Device, DeviceKernel, DeviceTensor, Kernel, Loaded, RuntimeModule
from inlaid_conformance.case import Failed
from inlaid_conformance.samples import Array
from inlaid_conformance.stored_form import StoredForm
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.execution.arrays import address, aligned_empty

GUARD = 4096
"""Number of guard bytes on either side of a buffer, which no kernel may write; a multiple of 64."""
POISON = 0xA5


def run(what: str, runtime: RuntimeModule, artifact: Artifact, loaded: Loaded, stored: StoredForm) -> None:
    """Run a kernel that takes its caller's memory, and compare its results with the reference. Raises `Failed`."""
    if loaded.kernel is not None:
        invoke(what, stored, artifact, loaded.kernel)
    elif loaded.launching is not None:
        device = runtime.device()
        assert device is not None
        stored.check(launch(device, artifact, loaded.launching, stored, what))


def region_sizes(artifact: Artifact, stored: StoredForm) -> Mapping[Expr, int] | None:
    """Return the dimensions of a region for stored inputs; None if a dimension is not that of an input."""
    sizes: dict[Expr, int] = {}
    for source in artifact.signature.dims:
        if source.input is None:
            return None
        sizes[SizeVar(source.name)] = stored.inputs[source.input].shape[source.axis]
    return sizes


def workspace_bytes(artifact: Artifact, stored: StoredForm) -> int:
    """Return the bytes of workspace that an artifact asks for. The dimensions that they depend on must be those of inputs."""
    return int(arith.evaluate(artifact.workspace.get("", 0), region_sizes(artifact, stored) or {}))


def _dims(artifact: Artifact, stored: StoredForm) -> Array:
    return np.array(list((region_sizes(artifact, stored) or {}).values()), np.int64)


def invoke(what: str, stored: StoredForm, artifact: Artifact, kernel: Kernel) -> None:
    """Run a kernel of host memory between guards, and compare its results with the reference. Raises `Failed`."""
    inputs = [_GuardedArray(value.nbytes) for value in stored.inputs]
    arrays = [guarded.view(value.shape, value.dtype) for guarded, value in zip(inputs, stored.inputs, strict=True)]
    for array, value in zip(arrays, stored.inputs, strict=True):
        array[...] = value
    outputs = [_GuardedArray(type_.bytes) for type_ in stored.outputs]
    # A kernel that uses more workspace than it asks for writes past its end: the guard there is larger.
    workspace = _GuardedArray(workspace_bytes(artifact, stored), stored.bytes)
    results = [guarded.view(type_.shape, type_.dtype) for guarded, type_ in zip(outputs, stored.outputs, strict=True)]
    kernel.invoke(arrays, results, workspace.view((workspace.size,), np.dtype(np.uint8)), _dims(artifact, stored))
    for name, guarded_arrays in (("an input", inputs), ("an output", outputs), ("its workspace", [workspace])):
        for guarded in guarded_arrays:
            if not guarded.intact:
                raise Failed(f"the kernel of {what} writes outside of {name}, which has {guarded.size} bytes")
    if any(array.tobytes() != value.tobytes() for array, value in zip(arrays, stored.inputs, strict=True)):
        raise Failed(f"the kernel of {what} writes to an input")
    try:
        stored.check(results)
    except Failed as error:
        raise Failed(f"the kernel of {what}, on buffers that are not zeroed: {error}") from None


class _GuardedArray:
    """Poisoned host memory with a guard on either side, and `room` further guard bytes after it."""

    def __init__(self, size: int, room: int = 0) -> None:
        self.size = size
        self._memory = aligned_empty((size + 2 * GUARD + room,), np.uint8)
        self._memory[:] = POISON

    def view(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the memory between the guards as an array."""
        view: Array = self._memory[GUARD : GUARD + self.size].view(dtype).reshape(shape)
        assert not view.size or address(view) % ALIGNMENT == 0
        return view

    @property
    def intact(self) -> bool:
        """Whether the guards are unchanged."""
        return bool((self._memory[:GUARD] == POISON).all() and (self._memory[GUARD + self.size :] == POISON).all())


class Memory:
    """A device buffer, or a part of one, filled with poison or with given bytes."""

    def __init__(
        self, device: Device, queue: Any, size: int, content: Array | None = None, tensor: DeviceTensor | None = None
    ) -> None:
        self.device, self.queue = device, queue
        self.tensor = tensor or DeviceTensor(device.allocate(size), 0, (size,), np.dtype(np.uint8))
        device.upload(np.full(size, POISON, np.uint8) if content is None else content, self.tensor, queue)

    def read(self, queue: Any = None) -> Array:
        """Read the bytes, after all work on the buffer's queue or on `queue`."""
        content, queue = np.zeros(self.tensor.shape, np.uint8), self.queue if queue is None else queue
        self.device.download(self.tensor, content, queue)
        self.device.synchronize(self.device.event(queue))
        return content

    def part(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTensor:
        """Return a tensor in the buffer."""
        return DeviceTensor(self.tensor.buffer, self.tensor.offset + offset, shape, dtype)


class Arena:
    """A device buffer in which memory is allocated in order."""

    def __init__(self, device: Device, size: int) -> None:
        self.buffer, self.size = device.allocate(size), size
        self._device, self._end = device, 0

    def take(self, queue: Any, size: int) -> Memory:
        """Return the next bytes of the buffer."""
        tensor = DeviceTensor(self.buffer, self._end, (size,), np.dtype(np.uint8))
        self._end += -(-size // ALIGNMENT) * ALIGNMENT
        assert self._end <= self.size
        return Memory(self._device, queue, size, tensor=tensor)


def launch(device: Device, artifact: Artifact, kernel: DeviceKernel, stored: StoredForm, what: str) -> list[Array]:
    """Launch a kernel on tensors between guards and return its results."""
    queue = device.queue()
    launch = Launch(device, artifact, kernel, stored, queue)
    launch.enqueue()
    results = launch.results(what)
    launch.free()
    device.release(queue)
    return results


class Launch:
    """A launch of a kernel on tensors between guards, which are buffers or parts of an arena."""

    def __init__(
        self, device: Device, artifact: Artifact, kernel: DeviceKernel, stored: StoredForm, queue: Any, arena: Arena | None = None
    ) -> None:
        self._device, self._kernel, self._stored, self._queue, self._arena = device, kernel, stored, queue, arena
        self._inputs = [self._guarded(value.nbytes) for value in stored.inputs]
        self._outputs = [self._guarded(tensor.bytes) for tensor in stored.outputs]
        self._size, self._dims = workspace_bytes(artifact, stored), _dims(artifact, stored)
        # A kernel that uses more workspace than it asks for writes past its end: the guard there is larger.
        self._scratch = self._guarded(self._size + stored.bytes)

    @staticmethod
    def arena_bytes(artifact: Artifact, stored: StoredForm) -> int:
        """Return the bytes that a launch takes of an arena."""
        sizes = [*(value.nbytes for value in stored.inputs), *(tensor.bytes for tensor in stored.outputs)]
        return sum(size + 2 * GUARD + ALIGNMENT for size in (*sizes, workspace_bytes(artifact, stored) + stored.bytes))

    def _guarded(self, size: int) -> Memory:
        size += 2 * GUARD
        return Memory(self._device, self._queue, size) if self._arena is None else self._arena.take(self._queue, size)

    def enqueue(self) -> None:
        """Upload the inputs and launch the kernel."""
        pairs = zip(self._inputs, self._stored.inputs, strict=True)
        tensors = [memory.part(GUARD, value.shape, value.dtype) for memory, value in pairs]
        for tensor, value in zip(tensors, self._stored.inputs, strict=True):
            self._device.upload(value, tensor, self._queue)
        results = [
            memory.part(GUARD, tensor.shape, tensor.dtype)
            for memory, tensor in zip(self._outputs, self._stored.outputs, strict=True)
        ]
        workspace = self._scratch.part(GUARD, (self._size,), np.dtype(np.uint8)) if self._size else None
        self._kernel.launch(tensors, results, workspace, self._dims, self._queue)

    def results(self, what: str) -> list[Array]:
        """Wait for the launch and return its results. Raises `Failed` if it has written outside of its tensors."""
        for name, memory, length in (
            *(("an input", memory, value.nbytes) for memory, value in zip(self._inputs, self._stored.inputs, strict=True)),
            *(("an output", memory, tensor.bytes) for memory, tensor in zip(self._outputs, self._stored.outputs, strict=True)),
            ("its workspace", self._scratch, self._size),
        ):
            content = memory.read()
            if (content[:GUARD] != POISON).any() or (content[GUARD + length :] != POISON).any():
                raise Failed(f"the kernel of {what} writes outside of {name}, which has {length} bytes")
        for memory, value in zip(self._inputs, self._stored.inputs, strict=True):
            if memory.read()[GUARD : GUARD + value.nbytes].tobytes() != value.tobytes():
                raise Failed(f"the kernel of {what} writes to an input")
        return [
            memory.read()[GUARD : GUARD + tensor.bytes].view(tensor.dtype).reshape(tensor.shape)
            for memory, tensor in zip(self._outputs, self._stored.outputs, strict=True)
        ]

    def free(self) -> None:
        """Free the tensors."""
        if self._arena is None:
            for memory in (*self._inputs, *self._outputs, self._scratch):
                self._device.free(memory.tensor.buffer)
