"""Regions of loop programs, and what the interpreter makes of them: what printed kernels are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlaid.arith import SizeVar
from inlaid.artifact import DimSource, Signature, TensorSpec
from inlaid.tensor import interp, ir
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid.types import MemoryScope

SCOPES = (MemoryScope("shared", "block", 32 << 10, 16), MemoryScope("local", "thread", 1024))
Run = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], bool]
"""Runs a region on its inputs and into its outputs; whether an index was out of range."""


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


def compare(programs: Sequence[ir.LoopProgram], arrays: Sequence[Sequence[np.ndarray]], run: Run) -> None:
    """Hold the region of programs to what the interpreter gives: bit for bit but for NaNs."""
    expected = [found for program, given in zip(programs, arrays, strict=True) for found in interp.run(program, given)]
    results = [np.zeros_like(array) for array in expected]
    assert not run([array for given in arrays for array in given], results)
    names = [f"{number}: {program.name}" for number, program in enumerate(programs) for _ in program.outputs]
    for name, found, wanted in zip(names, results, expected, strict=True):
        wide = found.dtype.itemsize >= 4 or found.dtype.kind in "iub"
        found, wanted = (found, wanted) if wide else (found.astype(np.float32), wanted.astype(np.float32))
        np.testing.assert_array_equal(found, wanted, err_msg=name, strict=True)
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]), err_msg=name)
