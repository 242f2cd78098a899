"""Run CUDA source and regions of printed kernels on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from tests.threads.printed import SCOPES, Printed, check_printed

from inlaid.codegen.threads.kernel import thread_source
from inlaid.tensor import ir
from inlaid.tensor.region import RegionProgram
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.driver import TensorMap
from inlaid_cuda.emulation.driver import HostContext, HostDriver, Order
from inlaid_runtime.types import MemoryScope

PRELUDE = "typedef int int32_t; typedef long int64_t; typedef unsigned char uint8_t;\n"


class Machine:
    """An open host context with a stream."""

    def __init__(self, order: Order = Order.FORWARD, seed: int = 0, memory: int = 1 << 28) -> None:
        self.context: HostContext = HostDriver(order, seed, memory).open(0)
        self.stream = self.context.stream()

    def upload(self, array: np.ndarray) -> int:
        """Copy an array to the device. Returns the address."""
        array = np.ascontiguousarray(array)
        address = self.context.allocate(max(array.nbytes, 1))
        self.context.upload(address, array.ctypes.data, array.nbytes, self.stream)
        return address

    def download(self, address: int, array: np.ndarray) -> np.ndarray:
        """Fill `array` from an address, and return it."""
        self.context.download(array.ctypes.data, address, array.nbytes, self.stream)
        return array

    def run(
        self, source: str, grid: Sequence[int], threads: Sequence[int], *arguments: np.ndarray | int, name: str = "k"
    ) -> list[np.ndarray]:
        """Launch kernel `name` once. Returns the contents of the array arguments after the launch."""
        context = self.context
        module = context.load((PRELUDE + source).encode())
        addresses = [argument if isinstance(argument, int) else self.upload(argument) for argument in arguments]
        sizes = ((*grid, 1, 1)[:3], (*threads, 1, 1)[:3])
        context.launch([context.prepare(context.function(module, name), *sizes, addresses)], self.stream)
        results = []
        for argument, address in zip(arguments, addresses, strict=True):
            if isinstance(argument, np.ndarray):
                results.append(self.download(address, np.empty_like(argument)))
                context.free(address)
        context.unload(module)
        return results


class Compiled:
    """Printed regions in one module."""

    def __init__(self, printed: Sequence[Printed]) -> None:
        texts = [text for item in printed for text in item.texts]
        self.printed, self.source = printed, thread_source(texts, DIALECT).encode()

    def on(self, machine: Machine) -> list[Callable[..., bool]]:
        """Load the regions on a machine. Returns a function per region, of inputs and optional sizes, which returns whether an
        index was out of range."""
        module = machine.context.load(self.source)
        return [partial(self._run, machine, module, item) for item in self.printed]

    @staticmethod
    def _run(
        machine: Machine,
        module: int,
        printed: Printed,
        arrays: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        sizes: Mapping[str, int] | None = None,
    ) -> bool:
        context = machine.context
        dims = printed.dims(arrays) if sizes is None else [sizes.get(dim.name, 0) for dim in printed.region.signature.dims]
        memory = {"input": list(map(machine.upload, arrays)), "output": list(map(machine.upload, outputs))}
        memory["constant"] = list(map(machine.upload, printed.region.constants.values()))
        memory["arena"] = [context.allocate(printed.arena_bytes(dims))]
        report = machine.upload(np.zeros(1, np.int32))

        def read(number: int, location: tuple[str, int, int]) -> int:
            return int(machine.download(memory["arena"][0] + location[2], np.zeros(1, np.int64))[0])

        for launch in printed.checked_launches(arrays, outputs, dims, read):
            arguments: list[int | bytes] = []
            for storage, index, offset in launch.places:
                arguments += [memory[storage][index], offset]
            maps = [(item.buffer, TensorMap.parse(item.text)) for item in printed.texts[launch.kernel].descriptors]
            arguments += launch.scalars
            arguments += [context.tensor_map(described, sum(arguments[2 * at : 2 * at + 2])) for at, described in maps]
            arguments += [*[report] * printed.reports[launch.kernel]]
            function = context.function(module, printed.names[launch.kernel], printed.texts[launch.kernel].shared)
            context.launch([context.prepare(function, launch.grid, launch.threads, arguments)], machine.stream)
        for array, address in zip(outputs, memory["output"], strict=True):
            machine.download(address, array)
        bad = bool(machine.download(report, np.zeros(1, np.int32))[0])
        for address in (*(address for addresses in memory.values() for address in addresses), report):
            context.free(address)
        return bad


class EveryOrder:
    """A region that runs in every order of threads; the results must agree."""

    def __init__(self, region: RegionProgram, scopes: Sequence[MemoryScope] = SCOPES, subgroup: int = 0) -> None:
        compiled = Compiled([Printed(region, DIALECT, scopes, subgroup=subgroup)])
        self.source = compiled.source.decode()
        self.runs = [run for order in Order for run in compiled.on(Machine(order, seed=1))]

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Run the region on its inputs. Returns whether an index was out of range."""
        results = []
        for run in self.runs:
            bad = run(arrays, outputs)
            results.append([array.tobytes() for array in outputs])
        assert all(result == results[0] for result in results)
        return bad


def check(
    programs: Sequence[ir.LoopProgram],
    arrays: Sequence[Sequence[np.ndarray]],
    scopes: Sequence[MemoryScope] = SCOPES,
) -> None:
    """Check that kernels agree with the interpreter in every order of threads."""
    check_printed(partial(EveryOrder, scopes=scopes), programs, arrays)
