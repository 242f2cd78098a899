"""A loop-level target whose kernels are grids of threads, run by the interpreter: the oracle for such devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.plugin_registry import registry_with
from tests.race_free import check_race_free

from inlaid.codegen.launch_plan import ThreadRegion, thread_region
from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import Capabilities, Codegen, Level, Loaded, MemoryScope, TargetSpec, Threads, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.interp.to_python import translate
from inlaid.tensor.region import size_vars
from inlaid_runtime import arith
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.execution.launches import EvaluatedLaunch, LaunchEvaluator
from inlaid_runtime.types import DTYPES

KIND, FORMAT = "grid", "grid-launches"
SHARED = MemoryScope("shared", "block", 16 << 10, 16)
_DTYPES = tuple(sorted(name for name in DTYPES if name != "string"))
CLASSES = {
    "vectors": Capabilities(_DTYPES, vector_bits=256, threads=Threads(1, 1), cores=0, stack_bytes=0),
    "shared": Capabilities(_DTYPES, (SHARED,), threads=Threads(16, 4, resident=256), cores=0, stack_bytes=0),
    "plain": Capabilities(_DTYPES, threads=Threads(16, 4, resident=256), cores=0, stack_bytes=0),
}
"""Devices of three classes: cores with vectors, threads with shared memory, and threads without. Blocks are small, so that
the interpreter has less to do."""


@dataclass
class Grid:
    """A target of a device class. `regions` are the compiled regions, `launched` the names of executed kernels."""

    able: Capabilities
    regions: dict[str, ThreadRegion] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)

    def registry(self) -> PluginRegistry:
        """A registry with the target and the reference."""

        @hookimpl
        def inlaid_targets():
            return [TargetSpec(KIND, "of a test", lambda options: self.able, Level.LOOP)]

        @hookimpl
        def inlaid_op_rules(target):
            return [loop_rule(KIND, capabilities=self.able)] if target.kind == KIND else ()

        @hookimpl
        def inlaid_codegen(target):
            return GridCodegen(self)

        @hookimpl
        def inlaid_runtime(target):
            return GridRuntime(self)

        return registry_with(KIND, inlaid_targets, inlaid_op_rules, inlaid_codegen, inlaid_runtime)


class GridCodegen(Codegen):
    """Lowers regions to launches, and checks every kernel for races."""

    def __init__(self, target: Grid) -> None:
        self.target = target

    def compile(self, unit, context):
        region = thread_region(unit, self.target.able.scopes)
        for item in region.kernels:
            check_race_free(item.kernel.program, item.kernel.offsets)
        self.target.regions[unit.name] = region
        code, workspace = unit.name.encode(), {"": region.workspace}
        return Artifact(unit.name, FORMAT, 1, code, unit.signature, unit.constants, workspace, unit.aliases)


class GridRuntime(HostRuntime):
    """Runs regions that this process compiled."""

    def __init__(self, target: Grid) -> None:
        super().__init__(FORMAT, 1)
        self.target = target

    def load(self, artifact, constants):
        return Loaded(GridKernel(self.target, artifact, list(constants.values())))


class GridKernel:
    """Interprets a region launch by launch."""

    def __init__(self, target: Grid, artifact: Artifact, constants: list[np.ndarray]) -> None:
        self.target, self.region, self.constants = target, target.regions[artifact.symbol], constants
        self.launches = LaunchEvaluator(self.region.plan)

    def invoke(self, inputs, outputs, workspace, dims):
        memory = {"input": inputs, "output": outputs, "constant": self.constants, "arena": [workspace]}
        parts = {name: [np.reshape(array, -1).view(np.uint8) for array in arrays] for name, arrays in memory.items()}

        def read(number: int, source: tuple[str, int, int]) -> int:
            storage, index, offset = source
            dims[number] = parts[storage][index][offset : offset + 8].view(np.int64)[0]
            return int(dims[number])

        for launch in self.launches.evaluate([int(dim) for dim in dims], read):
            self.launch(launch, parts)

    def launch(self, launch: EvaluatedLaunch, parts: dict[str, list[np.ndarray]]) -> None:
        item = self.region.kernels[launch.kernel]
        self.target.launched.append(item.name)
        program, scalars = item.kernel.program, list(launch.scalars)
        scalar_arrays = [np.array(scalar, np.int64) for scalar in scalars[: item.scalars]]
        sizes = dict(zip(size_vars(program), scalars[item.scalars :], strict=True))
        arrays: list[np.ndarray] = []
        bounds = dict(sizes)
        for size, _ in program.defines:
            bounds[size] = arith.evaluate(size.upper, bounds)
        for buffer, (storage, index, offset) in zip(self._buffers(item), launch.places, strict=True):
            shape = [arith.evaluate(dim, bounds) for dim in buffer.shape]
            length = int(np.prod(shape)) * buffer.dtype.bytes
            elements = parts[storage][index][offset : offset + length]
            assert len(elements) == length, f"{buffer} does not fit"
            arrays.append(elements.view(buffer.dtype.numpy).reshape(shape))
        inputs = [*arrays[: len(program.inputs) - item.scalars], *scalar_arrays]
        with np.errstate(all="ignore"):
            try:
                translate(program, sizes, {}, len(self.target.launched))(*inputs, *arrays[len(inputs) - len(scalar_arrays) :])
            except KernelFault as error:
                raise KernelFault(f"{error} (kernel {item.name})") from error

    @staticmethod
    def _buffers(item: Any) -> list[Any]:
        program = item.kernel.program
        return [*program.inputs[: len(program.inputs) - item.scalars], *program.outputs]
