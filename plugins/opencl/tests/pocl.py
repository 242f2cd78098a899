"""Programs as OpenCL kernels, run by pyopencl alone: no code generator, no runtime module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.kernels.regions import SCOPES, compare, region_of

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.runtime.launches import Launches
from inlaid.tensor import ir
from inlaid.tensor.region import RegionProgram
from inlaid.types import MemoryScope
from inlaid_opencl.dialect import DIALECT

cl = pytest.importorskip("pyopencl", reason="needs pyopencl: pip install pyopencl")


def device():
    """The first OpenCL device."""
    try:
        return next(found for platform in cl.get_platforms() for found in platform.get_devices())
    except (cl.LogicError, StopIteration):
        pytest.skip("there is no OpenCL device: pip install pocl-binary-distribution")


class Compiled:
    """The kernels of a region, built for the first device."""

    def __init__(self, region: RegionProgram, scopes: Sequence[MemoryScope] = SCOPES) -> None:
        self.region = region
        self.threads = thread_region(region, scopes)
        texts = [print_thread_kernel(kernel, DIALECT) for kernel in self.threads.kernels]
        self.source = thread_source(texts, DIALECT)
        self.reports = [text.reports for text in texts]
        self.context = cl.Context([device()])
        self.queue = cl.CommandQueue(self.context)
        built = cl.Program(self.context, self.source).build(options=["-cl-std=CL1.2", "-w"])
        self.kernels = [getattr(built, kernel.name) for kernel in self.threads.kernels]

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Run the region on its inputs; whether an index was out of range."""
        memory = {"input": list(map(self._of, arrays)), "output": list(map(self._of, outputs))}
        memory["constant"] = list(map(self._of, self.region.constants.values()))
        dims = self._dims(arrays)
        bounds = {SizeVar(dim.name): size for dim, size in zip(self.region.signature.dims, dims, strict=True)}
        room = arith.evaluate(arith.wrap(self.threads.workspace), bounds)
        arena = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(room, 1))
        report = self._of(np.zeros(1, np.int32))

        def read(number: int, place: tuple[str, int, int]) -> int:
            found = np.zeros(1, np.int64)
            cl.enqueue_copy(self.queue, found, arena, src_offset=place[2])
            return int(found[0])

        for ready in Launches(self.threads.plan).of(dims, read):
            args: list[object] = []
            for storage, index, offset in ready.places:
                args += [arena if storage == "arena" else memory[storage][index], np.int64(offset)]
            args += [np.int64(scalar) for scalar in ready.scalars]
            args += [report] * self.reports[ready.kernel]
            grid = tuple(blocks * threads for blocks, threads in zip(ready.grid, ready.threads, strict=True))
            self.kernels[ready.kernel](self.queue, grid, ready.threads, *args)
        for array, held in zip(outputs, memory["output"], strict=True):
            if array.nbytes:
                cl.enqueue_copy(self.queue, array.reshape(-1).view(np.uint8), held)
        found = np.zeros(1, np.int32)
        cl.enqueue_copy(self.queue, found, report)
        return bool(found[0])

    def _dims(self, arrays: Sequence[np.ndarray]) -> list[int]:
        """The values of the signature's dimensions, of those that the region works out 0."""
        specs = self.region.signature.dims
        return [0 if dim.input is None else arrays[dim.input].shape[dim.axis] for dim in specs]

    def _of(self, array: np.ndarray) -> object:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        held = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(1, np.uint8)
        return cl.Buffer(self.context, flags, hostbuf=np.array(held))


def check(
    programs: Sequence[ir.LoopProgram],
    arrays: Sequence[Sequence[np.ndarray]],
    scopes: Sequence[MemoryScope] = SCOPES,
) -> Compiled:
    """The kernels give what the interpreter gives, bit for bit but for NaNs."""
    compiled = Compiled(region_of(programs), scopes)
    compare(programs, arrays, compiled.run)
    return compiled
