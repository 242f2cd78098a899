"""Per-queue state of a region: kernel objects with bound arguments.

Kernel objects store their arguments, so each queue has separate kernel objects. Bound arguments are cached: a run on the buffers of
an earlier run only enqueues its kernel objects. pyopencl takes 0.1 ms or more to create a kernel object, and a few microseconds to
set its arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import pyopencl as cl
from pyopencl import _cl

from inlaid_opencl.device import OpenCLDevice
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.launch_queues import LaunchQueue
from inlaid_runtime.execution.launch_regions import LaunchedRegion, LaunchSession, check_parameters
from inlaid_runtime.execution.launches import EvaluatedLaunch, LaunchPlan, Stores

Bound = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], EvaluatedLaunch]
"""A kernel with bound arguments, its global size, its work-group size, and the launch that it implements."""
_LONG = struct.Struct("=q").pack


@dataclass(frozen=True, eq=False)
class RegionCode:
    """A region's program on a device, and the plan of its launches."""

    artifact: Artifact
    plan: LaunchPlan
    program: _cl._Program
    device: OpenCLDevice

    def new_kernel(self, number: int) -> cl.Kernel:
        """Create a kernel object of function `number`. Raises `Unsupported` if the program lacks it."""
        name = self.plan.kernels[number].name
        try:
            return cl.Kernel(self.program, name)
        except cl.Error as error:
            if error.code == cl.status_code.INVALID_KERNEL_NAME:
                raise Unsupported(
                    f"the code of {self.artifact.symbol} is damaged: it lacks kernel {name}", remedy="compile the model again"
                ) from error
            raise self.device.failure(error, f"loading kernel {name}") from error

    def checked_kernels(self) -> list[list[cl.Kernel]]:
        """Create a kernel object per function. Raises `Unsupported` if the number of parameters of a function differs from the
        plan."""
        kernels = [self.new_kernel(number) for number in range(len(self.plan.kernels))]
        for function, kernel in zip(self.plan.kernels, kernels, strict=True):
            check_parameters(self.artifact, function, kernel.num_args)
        return [[kernel] for kernel in kernels]


class KernelSession(LaunchSession[Bound]):
    """The kernel objects of a region on one queue. `spare`: kernel objects that are free for reuse, by function."""

    def __init__(self, region: LaunchedRegion[Bound], code: RegionCode, spare: list[list[cl.Kernel]], queue: LaunchQueue) -> None:
        alignment = code.device.alignment
        super().__init__()
        self._code, self._spare = code, spare
        self.flags = flags = region.new_flags(self, queue, alignment)
        count = len(code.artifact.kernels)
        self._parts = [flags.memory.buffer.get_sub_region(number * alignment, 4) for number in range(count)] if flags else []

    def recycle(self, bound: Iterable[Bound]) -> None:
        """Return kernel objects to the free list. The launches need not have completed, since drivers copy arguments at enqueue."""
        for kernel, _, _, launch in bound:
            self._spare[launch.kernel].append(kernel)

    def bind(self, region: LaunchedRegion[Bound], stores: Stores, launch: EvaluatedLaunch) -> Bound:
        """Set the arguments of a launch on a kernel object."""
        code = self._code
        spare = self._spare[launch.kernel]
        kernel = spare.pop() if spare else code.new_kernel(launch.kernel)
        # The private setter that pyopencl's generated code calls: `set_arg` takes 6 us for a scalar.
        set_bytes = getattr(kernel, "_set_arg_buf", kernel.set_arg)
        position = 0
        for memory, offset in region.arguments(stores, launch):
            kernel.set_arg(position, None if memory is None else memory.buffer)
            set_bytes(position + 1, _LONG(offset))
            position += 2
        for scalar in launch.scalars:
            set_bytes(position, _LONG(scalar))
            position += 1
        if code.plan.kernels[launch.kernel].reports:
            kernel.set_arg(position, self._parts[launch.call])
        items = tuple(size * threads for size, threads in zip(launch.grid, launch.threads, strict=True))
        return kernel, items, launch.threads, launch
