"""Memory images for streams under test, and streams without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Finish, Flags, Instruction, Load, Module, Uop
from inlaid_vta_fpga.simulators.device import Device, Report


class Image:
    """Builds DRAM from buffers on page boundaries."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.dram = np.zeros(PAGE_BYTES, np.uint8)

    def add(self, values: npt.NDArray[np.generic]) -> int:
        """The byte address of a copy of `values`."""
        address = len(self.dram)
        data = np.frombuffer(values.tobytes(), np.uint8)
        self.dram = np.concatenate([self.dram, data, np.zeros(-len(data) % PAGE_BYTES, np.uint8)])
        return address

    def base(self, memory: Memory, values: npt.NDArray[np.generic]) -> int:
        """As `add`, in elements of `memory`: a dram_base."""
        return self.add(values) // self.config.element_bytes(memory)

    def uops(self, *uops: Uop) -> int:
        """The dram_base of micro-ops."""
        return self.base(Memory.UOP, Encoding(self.config).encode_uops(uops))

    def run(self, device: Device, instructions: Sequence[Instruction]) -> Report:
        """Run a stream, to which FINISH is appended."""
        location = self.program(Encoding(self.config).encode_program([*instructions, Finish()]))
        return device.run(self.dram, *location)

    def program(self, data: bytes) -> tuple[int, int]:
        """Address and count of an encoded stream."""
        return self.add(np.frombuffer(data, np.uint8)), len(data) // 16

    def read(self, base: int, count: int) -> npt.NDArray[np.int8]:
        """`count` elements of OUT from a dram_base: int8 [count, batch, block]."""
        size = self.config.element_bytes(Memory.OUT)
        return self.dram[base * size : (base + count) * size].view(np.int8).reshape(count, *self.config.shape(Memory.OUT))


def serial(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The stream with a token at each change of module, and compute no-ops between load and store: nothing overlaps.

    All tokens are popped: the stream ends in the compute module.
    """
    relayed: list[Instruction] = []
    for instruction in [*instructions, Load(Memory.UOP)]:
        if relayed and abs(relayed[-1].module - instruction.module) == 2:
            relayed.append(Load(Memory.UOP))
        relayed.append(replace(instruction, flags=Flags()))
    for number in range(1, len(relayed)):
        first, second = relayed[number - 1], relayed[number]
        if first.module == second.module:
            continue
        forward = second.module > first.module
        push = replace(first.flags, push_next=True) if forward else replace(first.flags, push_prev=True)
        pop = Flags(pop_prev=True) if forward else Flags(pop_next=True)
        relayed[number - 1], relayed[number] = replace(first, flags=push), replace(second, flags=pop)
    assert relayed[-1].module is Module.COMPUTE
    return relayed
