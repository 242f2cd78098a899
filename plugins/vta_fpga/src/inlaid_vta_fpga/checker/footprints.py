"""Elements that GEMM and ALU instructions access, exactly, and how close in the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, Gemm, Uops

Indices = npt.NDArray[np.int64]
Pair = tuple[int, int]
"""Of the outer and the inner loop."""
DISTANCE = 3
"""Micro-ops from a write of an accumulator to its next access, at least: the pipeline has no interlock."""


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


@dataclass(frozen=True)
class _Operand:
    """Indices of one operand: those in a field of the micro-ops (dst 0, src 1, wgt 2) plus iterations times `factors`."""

    memory: Memory
    field: int
    factors: Pair


class Footprints:
    """Footprints for one configuration. Instructions that agree in micro-ops, loops and factors share one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._encoding = Encoding(config)
        self._known: dict[tuple[object, ...], Footprint] = {}

    def of(self, instruction: Gemm | Alu, uops: Uops) -> Footprint:
        """The footprint of an instruction that executes the encoded micro-ops `uops`."""
        read = []
        if isinstance(instruction, Alu):
            if instruction.imm is None:
                read = [_Operand(Memory.ACC, 1, instruction.src_factors)]
        elif not instruction.reset:
            read = [_Operand(Memory.INP, 1, instruction.src_factors), _Operand(Memory.WGT, 2, instruction.wgt_factors)]
        written = _Operand(Memory.ACC, 0, instruction.dst_factors)
        if isinstance(instruction, Alu) or not instruction.reset:
            read = [written, *read]
        loops = instruction.iter_out, instruction.iter_in
        key = (uops.tobytes(), loops, written, *read)
        if key not in self._known:
            self._known[key] = self._expand(uops, loops, written, read)
        return self._known[key]

    def _expand(self, uops: Uops, loops: Pair, written: _Operand, read: list[_Operand]) -> Footprint:
        columns = self._encoding.decode_uops(uops)
        sets = {}
        for operand in (written, *read):
            base, depth = columns[operand.field], self._config.depth(operand.memory)
            highest = int(base.max()) + sum((count - 1) * factor for count, factor in zip(loops, operand.factors, strict=True))
            if highest >= depth:
                return Footprint(np.zeros(0, np.int64), outside=(operand.memory, highest))
            sets[operand] = _elements(base, loops, operand.factors, depth)
        accessed = [written, *(operand for operand in read if operand.memory is Memory.ACC and operand != written)]
        close = any(
            np.isin(sets[other], sets[written]).any()
            and _close(columns[written.field], columns[other.field], written.factors, other.factors, loops)
            for other in accessed
        )
        return Footprint(sets[written], tuple((operand.memory, sets[operand]) for operand in read), close)


def _elements(base: Indices, loops: Pair, factors: Pair, depth: int) -> Indices:
    marks = np.zeros(depth, np.bool_)
    marks[base] = True
    for count, factor in zip(loops, factors, strict=True):
        if factor and count > 1:
            marks[np.flatnonzero(marks)[:, None] + np.arange(count) * factor] = True
    return np.flatnonzero(marks)


def _close(written: Indices, accessed: Indices, written_factors: Pair, factors: Pair, loops: Pair) -> bool:
    """Whether an index of `accessed` equals that of `written` less than `DISTANCE` micro-ops before, over all iterations.

    A later micro-op is in the same iteration or a few on, so the indices' difference is that of the micro-ops' own, plus one of a
    small set of multiples of the factors.
    """
    outer, inner = (later - earlier for later, earlier in zip(factors, written_factors, strict=True))
    for distance in range(1, DISTANCE):
        iterations, later = np.divmod(np.arange(len(written)) + distance, len(written))
        missing = written - accessed[later]
        for carry in set(iterations[-distance:].tolist()) | {0}:
            of_carry = missing[iterations == carry]
            for steps, (outer_count, inner_range) in _advances(carry, loops):
                start = steps[0] * factors[0] + steps[1] * factors[1]
                outer_part = np.arange(outer_count if outer else 1) * outer
                inner_part = np.array(inner_range if inner else inner_range[:1]) * inner
                if np.isin(of_carry, start + np.add.outer(outer_part, inner_part)).any():
                    return True
    return False


def _advances(iterations: int, loops: Pair) -> Iterator[tuple[Pair, tuple[int, range]]]:
    """Ways in which the loops advance by some iterations: the steps of both, for a number of outer iterations and a
    range of inner ones."""
    outer, inner = loops
    if inner > iterations:
        yield (0, iterations), (outer, range(inner - iterations))
    for start in range(max(0, inner - iterations), inner):
        over, end = divmod(start + iterations, inner)
        if over < outer:
            yield (over, end - start), (outer - over, range(start, start + 1))
