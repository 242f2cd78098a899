"""Kernel objects with arguments: what one queue keeps of a region.

Kernel objects hold their arguments, so each queue has its own, whose arguments stay for launches on the same buffers: a run that
repeats one before only enqueues them.
"""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import le

import pyopencl as cl
from pyopencl import _cl

from inlaid.artifact import Artifact
from inlaid.errors import KernelFault, Unsupported
from inlaid.plugins import DeviceTensor
from inlaid.plugins.blame import some
from inlaid.runtime.launch_code import all_steps
from inlaid.runtime.launches import LaunchPlan, Ready
from inlaid_opencl.device import OpenCLDevice
from inlaid_opencl.queues import Flags, Memory, Queue, sizes_text

Bound = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], Ready]
"""A kernel with its arguments, how many work-items run it, how many of them are a group, and the launch that it stands for."""
Store = tuple[Memory | None, int, int]
"""The buffer behind a storage of a plan, the byte at which the storage begins, and its bytes."""

_KEPT = 4
"""Sets of sizes and buffers for which a queue keeps the launches of a region. Each has kernel objects of its own, which pyopencl
takes 0.1 ms and more to make; to set their arguments anew takes a few microseconds."""
_LONG = struct.Struct("=q").pack


@dataclass(frozen=True, eq=False)
class RegionCode:
    """A region's functions on a device: `program` is built from the source of `plan`."""

    artifact: Artifact
    plan: LaunchPlan
    program: _cl._Program
    device: OpenCLDevice

    def new_kernel(self, number: int) -> cl.Kernel:
        """A kernel object of a function. Raises `Unsupported` where the program lacks it."""
        name = self.plan.kernels[number]
        try:
            return cl.Kernel(self.program, name)
        except cl.Error as error:
            if error.code == cl.status_code.INVALID_KERNEL_NAME:
                raise Unsupported(f"the code of {self.artifact.symbol} is damaged: it has no kernel {name}") from error
            raise self.device.failure(error, f"loading kernel {name}") from error

    def checked_kernels(self) -> list[list[cl.Kernel]]:
        """A kernel object of each function. Raises `Unsupported` for one that takes other arguments than the plan gives it."""
        made = [[self.new_kernel(number)] for number in range(len(self.plan.kernels))]
        for step in all_steps(self.plan.steps):
            if step.launch is not None:
                number = step.launch.kernel
                found = made[number][0].num_args
                given = 2 * len(step.launch.buffers) + len(step.launch.scalars) + self.plan.reports[number]
                if found != given:
                    raise Unsupported(
                        f"the code of {self.artifact.symbol} is damaged: kernel {self.plan.kernels[number]} takes {found} "
                        f"arguments, and the plan gives {given}"
                    )
        return made

    def fault(self, call: int) -> KernelFault:
        """The error of a call that reports an index."""
        info = self.artifact.kernels[call]
        return KernelFault(
            f"region {self.artifact.symbol}: an index is out of range in kernel {info.name}", node=some(info.nodes), plugin="opencl"
        )

    def check_sizes(self, ready: Ready) -> None:
        """Raise `KernelFault` for groups or grids that are larger than the device's."""
        device, threads = self.device, ready.threads
        most, each, largest = device.largest_group, device.largest_items, device.largest_grid
        if math.prod(threads) <= most and all(map(le, threads, each)) and max(ready.grid) <= largest:
            return
        info = self.artifact.kernels[ready.call]
        if max(ready.grid) <= largest:
            raise KernelFault(
                f"a work-group of {self.device.name} must have at most {most} work-items, {sizes_text(each)} along its axes, "
                f"got {sizes_text(ready.threads)} for kernel {info.name}",
                node=some(info.nodes),
                remedy="compile for this kind of device (option kind)",
            )
        raise KernelFault(
            f"a grid of {self.device.name} must have at most {largest} work-groups along an axis, got {sizes_text(ready.grid)} "
            f"for kernel {info.name}",
            node=some(info.nodes),
            remedy="give smaller inputs",
        )


class Session:
    """What one queue needs to run a region: launches by sizes and buffers, kernel objects that are free, and flags where kernels
    report indices."""

    def __init__(self, code: RegionCode, spare: list[list[cl.Kernel]], queue: Queue) -> None:
        self.bound: dict[tuple[object, ...], tuple[Bound, ...]] = {}
        self.flags: Flags | None = None
        self._code, self._spare = code, spare
        if any(code.plan.reports):
            device, count = code.device, len(code.artifact.kernels)
            memory = device.allocate(count * device.alignment)
            weakref.finalize(self, device.free, memory)
            self.flags = Flags(memory, device.alignment, count, code.fault)
            self.flags.clear(queue)

    def keep(self, key: tuple[object, ...], stores: Mapping[str, Sequence[Store]], ready: Sequence[Ready]) -> tuple[Bound, ...]:
        """Bind launches and keep them for a key, in place of the oldest where there are many. Raises as `bind` does."""
        if len(self.bound) >= _KEPT:
            self.recycle(self.bound.pop(next(iter(self.bound))))
        found = self.bound[key] = tuple(self.bind(stores, each) for each in ready)
        return found

    def recycle(self, bound: Iterable[Bound]) -> None:
        """Take kernel objects back. Drivers copy arguments when a launch is enqueued, so it need not have run."""
        for kernel, _, _, ready in bound:
            self._spare[ready.kernel].append(kernel)

    def bind(self, stores: Mapping[str, Sequence[Store]], ready: Ready) -> Bound:
        """A kernel object with the arguments of a launch. Raises `KernelFault` for a buffer outside its storage and for sizes
        beyond the device's."""
        code = self._code
        code.check_sizes(ready)
        spare = self._spare[ready.kernel]
        kernel = spare.pop() if spare else code.new_kernel(ready.kernel)
        # What the functions that pyopencl generates for typed arguments call; `set_arg` takes 6 us for a number.
        set_bytes = getattr(kernel, "_set_arg_buf", kernel.set_arg)
        place = 0
        for storage, index, offset in ready.places:
            memory, begin, size = stores[storage][index]
            if not 0 <= offset <= size:
                raise KernelFault(f"region {code.artifact.symbol}: a buffer begins at byte {offset} of {size} in its {storage}")
            kernel.set_arg(place, None if memory is None else memory.buffer)
            set_bytes(place + 1, _LONG(begin + offset))
            place += 2
        for scalar in ready.scalars:
            set_bytes(place, _LONG(scalar))
            place += 1
        if code.plan.reports[ready.kernel]:
            assert self.flags is not None
            kernel.set_arg(place, self.flags.parts[ready.call])
        items = tuple(size * threads for size, threads in zip(ready.grid, ready.threads, strict=True))
        return kernel, items, ready.threads, ready


def stores_of(
    inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], constants: Sequence[Store], workspace: DeviceTensor | None
) -> dict[str, Sequence[Store]]:
    """Where the storages of a plan are for one run."""

    def store(tensor: DeviceTensor) -> Store:
        return tensor.buffer, tensor.offset, math.prod(tensor.shape) * tensor.dtype.itemsize

    arena = (None, 0, 0) if workspace is None else store(workspace)
    return {"input": [*map(store, inputs)], "output": [*map(store, outputs)], "constant": constants, "arena": [arena]}
