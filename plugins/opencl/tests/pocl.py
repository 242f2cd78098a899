"""Programs as OpenCL kernels, run by pyopencl alone: no code generator, no runtime module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.artifact import DimSource, Signature, TensorSpec
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.runtime.launches import Launches
from inlaid.tensor import interp, ir
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid.types import MemoryScope
from inlaid_opencl.dialect import DIALECT

cl = pytest.importorskip("pyopencl", reason="needs pyopencl: pip install pyopencl")
SCOPES = (MemoryScope("shared", "block", 32 << 10, 16), MemoryScope("local", "thread", 1024))


def device():
    """The first OpenCL device."""
    try:
        return next(found for platform in cl.get_platforms() for found in platform.get_devices())
    except (cl.LogicError, StopIteration):
        pytest.skip("there is no OpenCL device: pip install pocl-binary-distribution")


def region_of(programs: Sequence[ir.LoopProgram], names: Sequence[str] = ()) -> RegionProgram:
    """A region that calls each kernel once, on inputs and outputs of its own."""
    buffers, calls, inputs, outputs, dims = [], [], [], [], {}

    def add(buffer: ir.Buffer, storage: str, specs: list[TensorSpec]) -> int:
        buffers.append(RegionBuffer(f"{storage}{len(specs)}", storage, buffer.shape, buffer.dtype, len(specs)))
        specs.append(TensorSpec(f"{storage}{len(specs)}", buffer.shape, buffer.dtype))
        return len(buffers) - 1

    for number, program in enumerate(programs):
        own = {buffer for _, buffer in program.defines}
        for place, buffer in enumerate(program.inputs, len(inputs)):
            for axis, dim in enumerate(buffer.shape):
                if isinstance(dim, SizeVar):
                    dims.setdefault(dim, DimSource(dim.name, place, axis))
        given = tuple(add(buffer, "input", inputs) for buffer in program.inputs)
        made = tuple(add(buffer, "output", outputs) for buffer in program.outputs if buffer not in own)
        defines = tuple(size for size, _ in program.defines)
        dims.update({size: DimSource(size.name, None, 0, size.upper) for size in defines})
        calls.append(KernelCall(number, given, made, size_vars(program), defines, (f"node{number}",)))
    signature = Signature(tuple(inputs), tuple(outputs), tuple(dims.values()))
    return RegionProgram("region", tuple(programs), tuple(calls), tuple(buffers), signature)


class Compiled:
    """The kernels of a region, built for the first device, of their source as `changed`."""

    def __init__(
        self,
        region: RegionProgram,
        scopes: Sequence[MemoryScope] = SCOPES,
        subgroup: int = 0,
        changed: Callable[[str], str] = lambda source: source,
    ) -> None:
        self.region = region
        self.threads = thread_region(region, scopes, subgroup)
        texts = [print_thread_kernel(kernel, DIALECT) for kernel in self.threads.kernels]
        self.source = changed(thread_source(texts, DIALECT))
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
    expected = [found for program, given in zip(programs, arrays, strict=True) for found in interp.run(program, given)]
    compiled = Compiled(region_of(programs), scopes)
    results = [np.zeros_like(array) for array in expected]
    assert not compiled.run([array for given in arrays for array in given], results)
    names = [f"{number}: {program.name}" for number, program in enumerate(programs) for _ in program.outputs]
    for name, found, wanted in zip(names, results, expected, strict=True):
        wide = found.dtype.itemsize >= 4 or found.dtype.kind in "iub"
        found, wanted = (found, wanted) if wide else (found.astype(np.float32), wanted.astype(np.float32))
        np.testing.assert_array_equal(found, wanted, err_msg=name, strict=True)
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]), err_msg=name)
    return compiled
