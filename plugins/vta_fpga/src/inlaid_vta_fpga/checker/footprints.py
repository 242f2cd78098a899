"""Elements that GEMM and ALU instructions access, exactly, and how close in the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, Gemm, Uops

Indices = npt.NDArray[np.int64]
DISTANCE = 3
"""Micro-ops from a write of an accumulator to its next access, at least: the pipeline has no interlock."""
EXECUTIONS = 1 << 22
"""Micro-op executions of an instruction that is checked, at most: they are enumerated."""


@dataclass(frozen=True)
class Footprint:
    """Elements that an instruction accesses: ascending indices, each once.

    written: in ACC. read: memory and indices of each operand. close: an accumulator is accessed less than `DISTANCE` micro-ops
    after it was written. outside: a memory and an index beyond its depth; all else is empty then.
    """

    written: Indices
    read: tuple[tuple[Memory, Indices], ...] = ()
    close: bool = False
    outside: tuple[Memory, int] | None = None


_Operand = tuple[Memory, int, tuple[int, int]]
"""Memory, field of the micro-ops (dst 0, src 1, wgt 2), factors."""


class Footprints:
    """Footprints for one configuration. Instructions that agree in micro-ops, loops and factors share one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._encoding = Encoding(config)
        self._known: dict[tuple[object, ...], Footprint] = {}

    def of(self, instruction: Gemm | Alu, uops: Uops) -> Footprint:
        """The footprint of an instruction that executes the encoded micro-ops `uops`."""
        written: _Operand = (Memory.ACC, 0, instruction.dst_factors)
        read: list[_Operand] = []
        if isinstance(instruction, Alu):
            read = [written] if instruction.imm is not None else [written, (Memory.ACC, 1, instruction.src_factors)]
        elif not instruction.reset:
            read = [written, (Memory.INP, 1, instruction.src_factors), (Memory.WGT, 2, instruction.wgt_factors)]
        loops = instruction.iter_out, instruction.iter_in
        key = (uops.tobytes(), loops, written, *read)
        if key not in self._known:
            self._known[key] = self._enumerate(self._encoding.decode_uops(uops), loops, written, read)
        return self._known[key]

    def _enumerate(self, uops: tuple[Indices, ...], loops: tuple[int, int], written: _Operand, read: list[_Operand]) -> Footprint:
        outer, inner = np.arange(loops[0])[:, None, None], np.arange(loops[1])[:, None]
        executed, accessed = {}, {}
        for operand in (written, *read):
            memory, field, factors = operand
            indices = executed[operand] = (uops[field] + outer * factors[0] + inner * factors[1]).ravel()
            if (highest := int(indices.max())) >= self._config.depth(memory):
                return Footprint(np.zeros(0, np.int64), outside=(memory, highest))
            marks = np.zeros(highest + 1, np.bool_)
            marks[indices] = True
            accessed[operand] = np.flatnonzero(marks)
        accumulators = [indices for (memory, *_), indices in executed.items() if memory is Memory.ACC]
        earlier = executed[written]
        close = any((earlier[:-step] == later[step:]).any() for later in accumulators for step in range(1, DISTANCE))
        return Footprint(accessed[written], tuple((operand[0], accessed[operand]) for operand in read), close)
