"""CUDA source on the host: modules, arrays, launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid_cuda.emulation.driver import HostContext, HostDriver, Order

PRELUDE = "typedef int int32_t; typedef long int64_t; typedef unsigned char uint8_t;\n"


class Machine:
    """An open host and a stream of it."""

    def __init__(self, order: Order = Order.FORWARD, seed: int = 0, memory: int = 1 << 28) -> None:
        self.context: HostContext = HostDriver(order, seed, memory).open(0)
        self.stream = self.context.stream()

    def upload(self, array: np.ndarray) -> int:
        """The address of a copy of an array."""
        array = np.ascontiguousarray(array)
        address = self.context.allocate(max(array.nbytes, 1))
        self.context.upload(address, array.ctypes.data, array.nbytes, self.stream)
        return address

    def download(self, address: int, array: np.ndarray) -> np.ndarray:
        """`array`, filled from an address."""
        self.context.download(array.ctypes.data, address, array.nbytes, self.stream)
        return array

    def run(
        self, source: str, grid: Sequence[int], threads: Sequence[int], *arguments: np.ndarray | int, name: str = "k"
    ) -> list[np.ndarray]:
        """Launch kernel `name` once. Returns what the arrays among the arguments are afterwards."""
        context = self.context
        module = context.load((PRELUDE + source).encode())
        given = [argument if isinstance(argument, int) else self.upload(argument) for argument in arguments]
        sizes = ((*grid, 1, 1)[:3], (*threads, 1, 1)[:3])
        context.launch([context.prepare(context.function(module, name), *sizes, given)], self.stream)
        found = []
        for argument, address in zip(arguments, given, strict=True):
            if isinstance(argument, np.ndarray):
                found.append(self.download(address, np.empty_like(argument)))
                context.free(address)
        context.unload(module)
        return found
