"""Loop programs compiled and run natively, held to the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.lowering.kernels.finish import finish
from inlaid.passes.manager import run_passes
from inlaid.plugins import Capabilities, CompileContext, Target
from inlaid.tensor import interp, ir
from inlaid.tensor.math import expand_program
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact, DimSource, Signature, TensorSpec
from inlaid_runtime.cache import DiskCache
from inlaid_runtime.types import TensorType
from inlaid_x86.codegen import X86Codegen
from inlaid_x86_runtime.options import X86Options
from inlaid_x86_runtime.runtime import X86Runtime

Array = np.ndarray[Any, Any]
PLAIN = X86Options(threads=1, cpu="x86-64-v2")
"""Without fused multiply-add, so that nothing is contracted and floats are those of the interpreter to the bit."""
UNROLLS = Capabilities((), unrolls=True)
"""The code generator unrolls loops itself, as it does for models."""


class Context:
    """A code generator for loop programs asks nothing of the compiler but a place to keep objects, which is none here, one for what
    regions share, and which instructions the user declares, which are none either."""

    objects = DiskCache(None, 0)
    instructions = ()

    def __init__(self, options: X86Options) -> None:
        self.target = Target("x86", options)
        self.printed: dict[Any, Any] = {}

    def lower(self, region: Any) -> Any:
        raise AssertionError

    def operator(self, name: str) -> Any:
        raise AssertionError

    def run_passes(self, passes: Any, kernel: ir.LoopProgram) -> ir.LoopProgram:
        return run_passes(passes, kernel)

    def report(self, step: str, completed: int, total: int) -> None:
        assert 0 <= completed <= total


def make_region(programs: Sequence[ir.LoopProgram], name: str = "region") -> RegionProgram:
    """A region that calls each of several kernels once. Kernels must not share names of dimensions."""
    buffers: list[RegionBuffer] = []
    calls = []
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    dims: dict[SizeVar, DimSource] = {}

    def add(buffer: ir.Buffer, storage: Any, specs: list[TensorSpec]) -> int:
        label = f"{storage}{len(specs)}"
        buffers.append(RegionBuffer(label, storage, buffer.shape, buffer.dtype, len(specs)))
        specs.append(TensorSpec(label, buffer.shape, buffer.dtype))
        return len(buffers) - 1

    for number, program in enumerate(programs):
        for input_index, buffer in enumerate(program.inputs, len(inputs)):
            for axis, dim in enumerate(buffer.shape):
                if isinstance(dim, SizeVar):
                    dims.setdefault(dim, DimSource(dim.name, input_index, axis))
        input_numbers = [add(buffer, "input", inputs) for buffer in program.inputs]
        size_buffers = {buffer for _, buffer in program.defines}
        output_numbers = [add(buffer, "output", outputs) for buffer in program.outputs if buffer not in size_buffers]
        defines = tuple(size for size, _ in program.defines)
        dims.update({size: DimSource(size.name, None, 0, size.upper) for size in defines})
        sizes = size_vars(program)
        dims.update({size: DimSource(size.name) for size in sizes if size not in dims})
        calls.append(KernelCall(number, tuple(input_numbers), tuple(output_numbers), sizes, defines, (f"node{number}",)))
    signature = Signature(tuple(inputs), tuple(outputs), tuple(dims.values()))
    return RegionProgram(name, tuple(programs), tuple(calls), tuple(buffers), signature)


def compile_region(region: RegionProgram, options: X86Options) -> Artifact:
    context: CompileContext = Context(options)
    return X86Codegen(options).compile(region, context)


class Native:
    """Several kernels in one region."""

    def __init__(self, programs: Sequence[ir.LoopProgram], options: X86Options = PLAIN) -> None:
        self.region = make_region([finish(program, able=UNROLLS) for program in programs])
        self.artifact = compile_region(self.region, options)
        self.kernel = X86Runtime(options).load(self.artifact, {}).kernel

    def run(self, inputs: Sequence[Array], sizes: Mapping[str, int] | None = None) -> list[Array]:
        """All outputs, for the inputs of all kernels. Scratch buffers are among the outputs."""
        signature = self.artifact.signature
        extents: dict[arith.Expr, int] = {SizeVar(name): size for name, size in (sizes or {}).items()}
        for source in signature.dims:
            if source.input is not None:
                extents[SizeVar(source.name)] = inputs[source.input].shape[source.axis]
            elif source.upper is not None:
                extents[SizeVar(source.name)] = arith.evaluate(source.upper, extents)
        outputs = []
        for spec in signature.outputs:
            assert spec.dtype is not None
            shape = [arith.evaluate(dim, extents) for dim in spec.shape]
            outputs.append(np.full((*shape, spec.dtype.bytes), 0xA5, np.uint8).view(spec.dtype.numpy).reshape(shape))
        dims = np.array([extents[SizeVar(source.name)] for source in signature.dims], np.int64)
        self.kernel.invoke([np.ascontiguousarray(item) for item in inputs], outputs, np.empty(0, np.uint8), dims)
        for source, size in zip(signature.dims, dims.tolist(), strict=True):
            extents[SizeVar(source.name)] = size
        actual = [[arith.evaluate(dim, extents) for dim in spec.shape] for spec in signature.outputs]
        return [array.reshape(-1)[: int(np.prod(shape))].reshape(shape) for array, shape in zip(outputs, actual, strict=True)]


def run_reference(
    programs: Sequence[ir.LoopProgram], inputs: Sequence[Array], sizes: Mapping[str, int] | None = None
) -> list[Array]:
    """The outputs of all kernels by the interpreter, which runs what the code generator prints."""
    results: list[Array] = []
    rest = list(inputs)
    for program in programs:
        arguments, rest = rest[: len(program.inputs)], rest[len(program.inputs) :]
        outputs = interp.run(expand_program(program), arguments, {SizeVar(name): size for name, size in (sizes or {}).items()})
        results += outputs[: len(outputs) - len(program.defines)]
    return results


def check(
    programs: Sequence[ir.LoopProgram], inputs: Sequence[Array], options: X86Options = PLAIN, sizes: Mapping[str, int] | None = None
) -> None:
    """Native code gives what the interpreter gives: NaN where it does, else equal."""
    native = Native(programs, options)
    actual = native.run(inputs, sizes)
    expected = run_reference(programs, inputs, sizes)
    positions = result_positions(native.region, programs)
    for position, array in zip(positions, expected, strict=True):
        np.testing.assert_array_equal(actual[position], array)


def result_positions(region: RegionProgram, programs: Sequence[ir.LoopProgram]) -> list[int]:
    """The places of the kernels' own results among the region's outputs, which hold their scratch memory too."""
    positions = []
    for call, program in zip(region.calls, programs, strict=True):
        count = len(program.outputs) - len(program.defines)
        positions += [region.buffers[number].index for number in call.outputs[:count]]
    return positions


def tensor_type(array: Array) -> TensorType:
    """The type of an array."""
    from inlaid_runtime.types import from_numpy

    return TensorType(array.shape, from_numpy(array.dtype))
