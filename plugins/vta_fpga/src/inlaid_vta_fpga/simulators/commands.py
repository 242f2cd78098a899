"""Decoding of a stream into the command queues of its modules and the token queues between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from inlaid_runtime.errors import KernelFault
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding, EncodingError
from inlaid_vta_fpga.isa.instructions import Alu, Finish, Gemm, Instruction, Load, Module, Store
from inlaid_vta_fpga.simulators.device import Dram, Report, fault, stream_bytes
from inlaid_vta_fpga.simulators.loops import micro_ops


class TokenQueue(Enum):
    """The four token queues. Each leads from one module to a neighbor; the value names both modules."""

    L2G = "load to compute"
    G2L = "compute to load"
    G2S = "compute to store"
    S2G = "store to compute"


_POPS = {
    Module.LOAD: (None, TokenQueue.G2L),
    Module.COMPUTE: (TokenQueue.L2G, TokenQueue.S2G),
    Module.STORE: (TokenQueue.G2S, None),
}
"""For each module, the queues from which `pop_prev` and `pop_next` pop."""
_PUSHES = {
    Module.LOAD: (None, TokenQueue.L2G),
    Module.COMPUTE: (TokenQueue.G2L, TokenQueue.G2S),
    Module.STORE: (TokenQueue.S2G, None),
}
"""For each module, the queues to which `push_prev` and `push_next` push."""

Queues = tuple[TokenQueue, ...]


@dataclass(frozen=True)
class Commands:
    """A decoded stream. All flags refer to existing queues, and the last instruction is the only FINISH.

    pops, pushes: token queues of each instruction. queues: instruction numbers of each module, in order.
    """

    instructions: Sequence[Instruction]
    pops: Sequence[Queues]
    pushes: Sequence[Queues]
    queues: dict[Module, list[int]]

    @staticmethod
    def read(dram: Dram, instructions: int, count: int, encoding: Encoding) -> Commands:
        """Decode `count` instructions at byte address `instructions`. Raises `KernelFault` for an illegal stream."""
        try:
            decoded = encoding.decode_program(stream_bytes(dram, instructions, count))
        except EncodingError as error:
            raise KernelFault(f"VTA {error}", plugin="vta_fpga") from error
        return Commands.split(decoded)

    @staticmethod
    def split(instructions: Sequence[Instruction]) -> Commands:
        """Split a stream into queues. Raises `KernelFault` for a flag without a neighbor and for a missing or early FINISH."""
        queues: dict[Module, list[int]] = {module: [] for module in Module}
        pops, pushes = [], []
        for number, instruction in enumerate(instructions):
            module, flags = instruction.module, instruction.flags
            pops.append(_queues(number, _POPS[module], flags.pop_prev, flags.pop_next))
            pushes.append(_queues(number, _PUSHES[module], flags.push_prev, flags.push_next))
            queues[module].append(number)
            if isinstance(instruction, Finish) != (number == len(instructions) - 1):
                raise fault(number, f"expected FINISH as the last instruction and only as the last, found {instruction}")
        return Commands(instructions, pops, pushes, queues)

    def report(self, config: Config) -> Report:
        """Count the work of a run, in which each instruction runs once. The report has no cycles."""
        uops: Counter[str] = Counter()
        loaded: Counter[Memory] = Counter()
        stored = 0
        for instruction in self.instructions:
            match instruction:
                case Load() if instruction.x_size:
                    elements = instruction.y_size * instruction.x_size
                    loaded[instruction.memory] += elements * config.element_bytes(instruction.memory)
                case Store():
                    stored += instruction.sram_size * config.element_bytes(Memory.OUT)
                case Gemm():
                    uops["reset" if instruction.reset else "gemm"] += micro_ops(instruction)
                case Alu():
                    uops["alu"] += micro_ops(instruction)
        return Report(None, uops["gemm"], uops["reset"], uops["alu"], dict(loaded), stored)


def _queues(number: int, queues: tuple[TokenQueue | None, TokenQueue | None], prev: bool, following: bool) -> Queues:
    if (prev and queues[0] is None) or (following and queues[1] is None):
        raise fault(number, "expected a flag of a neighboring module, found a *_prev flag of load or a *_next flag of store")
    return tuple(queue for queue, flag in zip(queues, (prev, following), strict=True) if flag and queue is not None)
