"""State of a loop in a plan: double-buffered carried values, slices of scanned inputs, and stacked outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.arrays import Array, aligned_empty, fresh_copy, in_place
from inlaid_runtime.execution.device_memory import DeviceWork
from inlaid_runtime.execution.sizes import evaluate_shape
from inlaid_runtime.execution.workspace import Workspace
from inlaid_runtime.plugins.device import DeviceTensor


class State:
    """A carried value in host memory, double-buffered: an iteration reads one array and writes the other. If `donated` is set,
    the body may update the value in place, so the initial value is copied."""

    def __init__(self, initial: Any, donated: bool) -> None:
        self.value = fresh_copy(initial) if donated else initial
        self._before: Any = None
        self._owns_value = False

    def target(self, states: Sequence[State | DeviceState]) -> Array | None:
        """Return the array that the next iteration may write, None if it must allocate. An array that one of `states` now holds may
        not be written: an in-place update may have passed it to that state."""
        is_unused = isinstance(self._before, np.ndarray) and not any(self._before is state.value for state in states)
        return self._before if is_unused else None

    def take(self, result: Any) -> None:
        """Set the value to an iteration's result. The initial value belongs to the caller and is not overwritten."""
        self._before = self.value if self._owns_value else None
        self.value, self._owns_value = result, True

    def finish(self) -> Any:
        """Return the value after the last iteration."""
        return self.value


class DeviceState:
    """A carried value on a device, in its `result` buffer and a spare buffer. `iterations` is the greatest number of iterations."""

    def __init__(
        self,
        work: DeviceWork,
        initial: DeviceTensor,
        buffers: tuple[DeviceTensor, DeviceTensor],
        donated: bool,
        iterations: float,
    ) -> None:
        self.value = initial
        self._work, self._buffers = work, buffers
        # Choose the first buffer so that the last iteration writes the result, which then needs no copy.
        self._first = 0 if math.isinf(iterations) else (int(iterations) + 1) % 2
        if donated:
            work.copy(initial, buffers[0])
            self.value = buffers[0]

    def target(self, states: Sequence[State | DeviceState]) -> DeviceTensor:
        """Return the buffer that the next iteration writes."""
        if self.value in self._buffers:
            return self._buffers[self._buffers[0] is self.value]
        return self._buffers[self._first]

    def take(self, result: DeviceTensor) -> None:
        """Set the value to an iteration's result: in the target buffer, updated in place, or in the reused buffer of another
        state."""
        target = self.target(())
        if result is not target and not (result is self.value and result in self._buffers):
            self._work.copy(result, target)
            result = target
        self.value = result

    def finish(self) -> DeviceTensor:
        """Return the value after the last iteration, in the result buffer."""
        if self.value is not self._buffers[0]:
            self._work.copy(self.value, self._buffers[0])
        return self._buffers[0]


def sliced(scanned: Any, index: int, run: Workspace, device: str, spare: DeviceTensor | None) -> Any:
    """Return the slice of a scanned value for an iteration: a view, or a copy if kernels need a greater alignment."""
    if spare is None:
        return scanned[index, ...]
    row = _row(scanned, index)
    if row.offset % ALIGNMENT:
        run.devices[device].copy(row, spare)
        return spare
    return row


def _row(tensor: DeviceTensor, index: int) -> DeviceTensor:
    shape = tensor.shape[1:]
    return replace(tensor, shape=shape, offset=tensor.offset + index * math.prod(shape) * tensor.dtype.itemsize)


class DeviceStack:
    """A stacked output of a loop on a device. If kernels cannot write at a row's offset, they write to a spare buffer, which is
    copied."""

    def __init__(self, work: DeviceWork, number: int, tensor: DeviceTensor, spare: DeviceTensor) -> None:
        self.number = number
        self._work, self._tensor, self._spare = work, tensor, spare

    def row(self, index: int) -> DeviceTensor:
        """Return the buffer for an iteration's output."""
        row = _row(self._tensor, index)
        return self._spare if row.offset % ALIGNMENT or index >= self._tensor.shape[0] else row

    def push(self, index: int, part: DeviceTensor) -> None:
        """Append the output of one iteration."""
        if index >= self._tensor.shape[0]:
            raise KernelFault(f"output {index} of a loop must fit its stacked output of shape {self._tensor.shape}")
        row = _row(self._tensor, index)
        if (part.buffer, part.offset) != (row.buffer, row.offset):
            self._work.copy(part, row)

    def finish(self, iterations: int) -> DeviceTensor:
        """Return all outputs as one tensor."""
        _check_count(iterations, self._tensor.shape[0])
        return self._tensor


class Stack:
    """A stacked output of a loop, written in place if its shape is known, otherwise collected as a list of rows."""

    def __init__(self, run: Workspace, number: int, alignment: int) -> None:
        self.number = number
        self._alignment = alignment
        self._value = run.prepared.plan.values[number]
        self._sizes = run.sizes
        shape = run.layout.shapes[number]
        buffer = run.frame[number]
        if buffer is None and shape is not None:
            assert self._value.dtype is not None
            buffer = aligned_empty(shape, self._value.dtype.numpy)
        self._buffer: Array | None = buffer
        self._offered: Array | None = None
        self._parts: list[Array] = []

    def row(self, index: int) -> Array | None:
        """Return the array that an iteration may write its output to, None if the iteration must allocate."""
        self._offered = None
        if self._buffer is not None and index < len(self._buffer):
            row: Array = self._buffer[index, ...]
            self._offered = row if in_place(row, self._alignment) else None
        return self._offered

    def push(self, index: int, part: Array) -> None:
        """Append the output of one iteration."""
        if part is self._offered:
            return
        if self._buffer is None:
            if self._parts and self._parts[0].shape != part.shape:
                raise KernelFault(f"stacked outputs of a loop must have equal shapes, got {self._parts[0].shape} and {part.shape}")
            self._parts.append(part)
            return
        if index >= len(self._buffer) or self._buffer.shape[1:] != part.shape:
            raise KernelFault(f"output {index} of a loop must fit {self._buffer.shape}, got shape {part.shape}")
        self._buffer[index, ...] = part

    def finish(self, iterations: int) -> Array:
        """Return all outputs as one array. After zero iterations, unknown sizes are 0."""
        if self._buffer is not None:
            _check_count(iterations, len(self._buffer))
            return self._buffer
        assert self._value.dtype is not None
        if self._parts:
            stacked = aligned_empty((len(self._parts), *self._parts[0].shape), self._value.dtype.numpy)
            for index, part in enumerate(self._parts):
                stacked[index, ...] = part
            return stacked
        rest = [evaluate_shape((dim,), self._sizes) or (0,) for dim in self._value.shape[1:]]
        return aligned_empty((0, *(size for (size,) in rest)), self._value.dtype.numpy)


def _check_count(iterations: int, expected: int) -> None:
    if iterations != expected:
        raise KernelFault(f"expected {expected} iterations of a loop, got {iterations}")
