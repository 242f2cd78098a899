"""Print loop programs as kernels of a region, and compare them with the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.kernel import print_thread_kernel
from inlaid.tensor import interp, ir
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import DimSource, Signature, TensorSpec
from inlaid_runtime.execution.launch_checks import KernelFootprint, LaunchChecks
from inlaid_runtime.execution.launches import EvaluatedLaunch, LaunchEvaluator
from inlaid_runtime.types import MemoryScope

SCOPES = (MemoryScope("shared", "block", 32 << 10, 16), MemoryScope("local", "thread", 1024))


def make_region(programs: Sequence[ir.LoopProgram]) -> RegionProgram:
    """Build a region that calls each kernel once, on separate inputs and outputs."""
    buffers, calls, inputs, outputs, dims = [], [], [], [], {}

    def add(buffer: ir.Buffer, storage: str, specs: list[TensorSpec]) -> int:
        buffers.append(RegionBuffer(f"{storage}{len(specs)}", storage, buffer.shape, buffer.dtype, len(specs)))
        specs.append(TensorSpec(f"{storage}{len(specs)}", buffer.shape, buffer.dtype))
        return len(buffers) - 1

    for number, program in enumerate(programs):
        size_cells = {buffer for _, buffer in program.defines}
        for input_index, buffer in enumerate(program.inputs, len(inputs)):
            for axis, dim in enumerate(buffer.shape):
                if isinstance(dim, SizeVar):
                    dims.setdefault(dim, DimSource(dim.name, input_index, axis))
        input_numbers = tuple(add(buffer, "input", inputs) for buffer in program.inputs)
        output_numbers = tuple(add(buffer, "output", outputs) for buffer in program.outputs if buffer not in size_cells)
        defines = tuple(size for size, _ in program.defines)
        other_sizes = (*defines, *(size for size in size_vars(program) if size not in dims))
        dims.update({size: DimSource(size.name, None, 0, size.upper) for size in other_sizes})
        calls.append(KernelCall(number, input_numbers, output_numbers, size_vars(program), defines, (f"node{number}",)))
    signature = Signature(tuple(inputs), tuple(outputs), tuple(dims.values()))
    return RegionProgram("region", tuple(programs), tuple(calls), tuple(buffers), signature)


class Printed:
    """A region with its launches and printed kernels, whose names begin with `prefix`."""

    def __init__(
        self,
        region: RegionProgram,
        dialect: ThreadDialect,
        scopes: Sequence[MemoryScope] = SCOPES,
        prefix: str = "",
        subgroup: int = 0,
    ) -> None:
        self.region = region
        self.threads = thread_region(region, scopes, subgroup)
        kernels = [replace(kernel, name=prefix + kernel.name) for kernel in self.threads.kernels]
        self.names = [kernel.name for kernel in kernels]
        self.texts = [print_thread_kernel(kernel, dialect) for kernel in kernels]
        self.reports = [text.reports for text in self.texts]
        self.launches = LaunchEvaluator(self.threads.plan)

    def dims(self, arrays: Sequence[np.ndarray]) -> list[int]:
        """Values of the signature's dimensions; 0 for computed ones."""
        specs = self.region.signature.dims
        return [0 if dim.input is None else arrays[dim.input].shape[dim.axis] for dim in specs]

    def checked_launches(
        self,
        arrays: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        dims: Sequence[int],
        read: Callable[[int, tuple[str, int, int]], int],
    ) -> Iterator[EvaluatedLaunch]:
        """Yield the launches of a run on arrays, checked as a runtime checks them."""
        constants = list(self.region.constants.values())
        sides = {"input": arrays, "output": outputs, "constant": constants}
        stores = {storage: [(None, 0, array.nbytes) for array in side] for storage, side in sides.items()}
        stores["arena"] = [(None, 0, self.arena_bytes(dims))]
        kernels = self.threads.plan.kernels
        checks = LaunchChecks("region", self.threads.plan, list(map(KernelFootprint, kernels)), stores)
        for launch in self.launches.evaluate(dims, read):
            checks.check(launch)
            yield launch

    def arena_bytes(self, dims: Sequence[int]) -> int:
        """Bytes of the workspace, at least one."""
        bounds = {SizeVar(dim.name): size for dim, size in zip(self.region.signature.dims, dims, strict=True)}
        return max(arith.evaluate(arith.wrap(self.threads.workspace), bounds), 1)


class Compiled(Protocol):
    """A region compiled from its printed source."""

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Run the region on its inputs. Returns whether an index was out of range."""


class Check(Protocol):
    """Compares printed kernels with the interpreter on given inputs."""

    def __call__(
        self,
        programs: Sequence[ir.LoopProgram],
        arrays: Sequence[Sequence[np.ndarray]],
        scopes: Sequence[MemoryScope] = SCOPES,
    ) -> object: ...


def _has_signless_zero(program: ir.LoopProgram) -> bool:
    """Whether a program has minima or maxima of floats."""
    nodes = (node for stmt in ir.walk_stmts(program.body) for node in ir.walk_exprs(*ir.statement_operands(stmt)[0]))
    return any(isinstance(node, ir.Binary) and node.op in ("min", "max") and node.dtype.is_float for node in nodes)


def check_printed(
    compiled: Callable[[RegionProgram], Compiled], programs: Sequence[ir.LoopProgram], arrays: Sequence[Sequence[np.ndarray]]
) -> None:
    """Check that kernels agree with the interpreter bit for bit, up to the bits of NaNs and the sign of a minimum or maximum of 0
    and -0."""
    expected = [output for program, inputs in zip(programs, arrays, strict=True) for output in interp.run(program, inputs)]
    results = [np.zeros_like(array) for array in expected]
    assert not compiled(make_region(programs)).run([array for inputs in arrays for array in inputs], results)
    labels = [
        (f"{number}: {program.name}", _has_signless_zero(program))
        for number, program in enumerate(programs)
        for _ in program.outputs
    ]
    for (name, any_zero), output, expected_output in zip(labels, results, expected, strict=True):
        wide = output.dtype.itemsize >= 4 or output.dtype.kind in "iub"
        output, expected_output = (
            (output, expected_output) if wide else (output.astype(np.float32), expected_output.astype(np.float32))
        )
        np.testing.assert_array_equal(output, expected_output, err_msg=name, strict=True)
        if output.dtype.kind == "f" and not any_zero:
            np.testing.assert_array_equal(
                np.signbit(output[expected_output == 0]), np.signbit(expected_output[expected_output == 0]), err_msg=name
            )
