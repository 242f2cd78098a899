"""Exact sets of elements that GEMM and ALU instructions access, and pipeline hazards between their micro-ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, Gemm, Uops

Indices = npt.NDArray[np.int64]
DISTANCE = 3
"""Minimum number of micro-ops from a write of an accumulator to its next access, since the pipeline has no interlock."""
EXECUTIONS = 1 << 22
"""Maximum micro-op executions of a checked instruction, since the checker enumerates them."""


@dataclass(frozen=True)
class Footprint:
    """Elements that an instruction accesses, as ascending unique indices.

    written: indices in ACC. read: memory and indices of each operand. close: an accumulator is accessed fewer than `DISTANCE`
    micro-ops after its write. outside: a memory and an out-of-range index, or None if all indices are in range. If `outside` is
    set, the other fields are empty.
    """

    written: Indices
    read: tuple[tuple[Memory, Indices], ...] = ()
    close: bool = False
    outside: tuple[Memory, int] | None = None


_Operand = tuple[Memory, int, tuple[int, int]]
"""An operand of an instruction: memory, micro-op field (dst 0, src 1, wgt 2), and factors (outer, inner)."""


class Footprints:
    """Cache of footprints for one configuration, keyed by micro-ops, loops and factors."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._encoding = Encoding(config)
        self._footprints: dict[tuple[object, ...], Footprint] = {}

    def lookup(self, instruction: Gemm | Alu, uops: Uops) -> Footprint:
        """Return the footprint of an instruction that executes the encoded micro-ops `uops`."""
        written: _Operand = (Memory.ACC, 0, instruction.dst_factors)
        read: list[_Operand] = []
        if isinstance(instruction, Alu):
            read = [written] if instruction.imm is not None else [written, (Memory.ACC, 1, instruction.src_factors)]
        elif not instruction.reset:
            read = [written, (Memory.INP, 1, instruction.src_factors), (Memory.WGT, 2, instruction.wgt_factors)]
        loops = instruction.iter_out, instruction.iter_in
        key = (uops.tobytes(), loops, written, *read)
        if key not in self._footprints:
            self._footprints[key] = self._enumerate(self._encoding.decode_uops(uops), loops, written, read)
        return self._footprints[key]

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
