"""Programs as OpenCL kernels, run by pyopencl alone: no code generator, no runtime module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from tests.threads.arithmetic import NATIVE
from tests.threads.printed import SCOPES, Printed, check_printed

from inlaid.codegen.threads.kernel import thread_source
from inlaid.tensor import ir
from inlaid.tensor.region import RegionProgram
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.platforms import find_device
from inlaid_runtime.errors import TargetError
from inlaid_runtime.types import MemoryScope

cl = pytest.importorskip("pyopencl", reason="needs pyopencl: pip install pyopencl")


def device():
    """The first OpenCL device. Skips the test without a device."""
    try:
        return find_device(0).device
    except TargetError as error:
        pytest.skip(f"{error.message}: pip install pocl-binary-distribution")


def native_types() -> list[str]:
    """The element types of registers of the first device, which may lack float64."""
    return [name for name in NATIVE if name != "float64" or device().double_fp_config]


class Compiled:
    """The kernels of a region, built for the first device, of their source as `changed`."""

    def __init__(
        self,
        region: RegionProgram,
        scopes: Sequence[MemoryScope] = SCOPES,
        subgroup: int = 0,
        changed: Callable[[str], str] = lambda source: source,
    ) -> None:
        self.printed = Printed(region, DIALECT, scopes, subgroup=subgroup)
        self.source = changed(thread_source(self.printed.texts, DIALECT))
        self.context = cl.Context([device()])
        self.queue = cl.CommandQueue(self.context)
        # pyopencl's `Program` warns if the driver logs anything, and its cache fails on some drivers.
        built = cl._cl._Program(self.context, self.source)
        built._build(b"-cl-std=CL1.2 -w", [self.context.devices[0]])
        self.kernels = [cl.Kernel(built, name) for name in self.printed.names]

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Run the region on its inputs; whether an index was out of range."""
        printed = self.printed
        memory = {"input": list(map(self._upload, arrays)), "output": list(map(self._upload, outputs))}
        memory["constant"] = list(map(self._upload, printed.region.constants.values()))
        dims = printed.dims(arrays)
        arena = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, printed.arena_bytes(dims))
        report = self._upload(np.zeros(1, np.int32))

        def read(number: int, location: tuple[str, int, int]) -> int:
            count = np.zeros(1, np.int64)
            cl.enqueue_copy(self.queue, count, arena, src_offset=location[2])
            return int(count[0])

        for launch in printed.checked_launches(arrays, outputs, dims, read):
            args: list[object] = []
            for storage, index, offset in launch.places:
                args += [arena if storage == "arena" else memory[storage][index], np.int64(offset)]
            args += [np.int64(scalar) for scalar in launch.scalars]
            args += [report] * printed.reports[launch.kernel]
            grid = tuple(blocks * threads for blocks, threads in zip(launch.grid, launch.threads, strict=True))
            self.kernels[launch.kernel](self.queue, grid, launch.threads, *args)
        for array, buffer in zip(outputs, memory["output"], strict=True):
            if array.nbytes:
                cl.enqueue_copy(self.queue, array.reshape(-1).view(np.uint8), buffer)
        fault = np.zeros(1, np.int32)
        cl.enqueue_copy(self.queue, fault, report)
        return bool(fault[0])

    def _upload(self, array: np.ndarray) -> object:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        host_array = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(1, np.uint8)
        return cl.Buffer(self.context, flags, hostbuf=np.array(host_array))


def check(
    programs: Sequence[ir.LoopProgram],
    arrays: Sequence[Sequence[np.ndarray]],
    scopes: Sequence[MemoryScope] = SCOPES,
) -> None:
    """The kernels give what the interpreter gives."""
    check_printed(partial(Compiled, scopes=scopes), programs, arrays)
