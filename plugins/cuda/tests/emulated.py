"""Regions as CUDA kernels that the host runs, and that NVRTC compiles where it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
from tests.kernels.regions import SCOPES, compare, region_of

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.errors import TargetError
from inlaid.runtime.launches import Launches
from inlaid.tensor import ir
from inlaid.tensor.region import RegionProgram
from inlaid.types import MemoryScope
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.emulation.driver import HostContext, HostDriver, Order
from inlaid_cuda.nvrtc import compile_cached


class Compiled:
    """The kernels of a region, built for the host. Its threads run in an order."""

    def __init__(self, region: RegionProgram, scopes: Sequence[MemoryScope] = SCOPES, order: Order = Order.RANDOM) -> None:
        self.region = region
        self.threads = thread_region(region, scopes)
        texts = [print_thread_kernel(kernel, DIALECT) for kernel in self.threads.kernels]
        self.source = thread_source(texts, DIALECT)
        self.reports = [text.reports for text in texts]
        self.context: HostContext = HostDriver(order).open(0)
        self.stream = self.context.stream()
        module = self.context.load(self.source.encode())
        self.functions = [self.context.function(module, kernel.name) for kernel in self.threads.kernels]

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Run the region on its inputs; whether an index was out of range."""
        memory = {"input": list(map(self._upload, arrays)), "output": list(map(self._upload, outputs))}
        memory["constant"] = list(map(self._upload, self.region.constants.values()))
        specs = self.region.signature.dims
        dims = [0 if dim.input is None else arrays[dim.input].shape[dim.axis] for dim in specs]
        bounds = {SizeVar(dim.name): size for dim, size in zip(specs, dims, strict=True)}
        arena = self.context.allocate(max(arith.evaluate(arith.wrap(self.threads.workspace), bounds), 1))
        report = self._upload(np.zeros(1, np.int32))

        def read(number: int, place: tuple[str, int, int]) -> int:
            return int(self._download(arena + place[2], np.zeros(1, np.int64))[0])

        for ready in Launches(self.threads.plan).of(dims, read):
            given: list[int] = []
            for storage, index, offset in ready.places:
                given += [arena if storage == "arena" else memory[storage][index], offset]
            given += [*ready.scalars, *[report] * self.reports[ready.kernel]]
            launch = self.context.prepare(self.functions[ready.kernel], ready.grid, ready.threads, given)
            self.context.launch([launch], self.stream)
        self.context.synchronise(self.stream)
        for array, held in zip(outputs, memory["output"], strict=True):
            self._download(held, array)
        return bool(self._download(report, np.zeros(1, np.int32))[0])

    def _upload(self, array: np.ndarray) -> int:
        held = np.ascontiguousarray(array)
        address = self.context.allocate(max(held.nbytes, 1))
        self.context.upload(address, held.ctypes.data, held.nbytes, self.stream)
        return address

    def _download(self, address: int, array: np.ndarray) -> np.ndarray:
        self.context.download(array.ctypes.data, address, array.nbytes, self.stream)
        return array


def check(
    programs: Sequence[ir.LoopProgram],
    arrays: Sequence[Sequence[np.ndarray]],
    scopes: Sequence[MemoryScope] = SCOPES,
    arch: str | None = "sm_80",
) -> Compiled:
    """NVRTC compiles the kernels for an architecture, and the host gives what the interpreter gives, bit for bit but for NaNs."""
    compiled = Compiled(region_of(programs), scopes)
    if arch is not None:
        with contextlib.suppress(TargetError):  # the tests of NVRTC itself say what to install
            compile_cached(compiled.source, "region", arch)
    compare(programs, arrays, compiled.run)
    return compiled
