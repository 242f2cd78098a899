"""Tasks of a region in program order, the SRAM tiles that they use, and the steps that they become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlaid.tensor import ir
from inlaid_vta_fpga.isa.config import Memory
from inlaid_vta_fpga.isa.instructions import Instruction, Uops

Indices = npt.NDArray[np.intp]

SCOPES = {"vta.inp": Memory.INP, "vta.wgt": Memory.WGT, "vta.acc": Memory.ACC}
"""Memory scopes of loop programs. OUT is implied: it is what a STORE reads of "vta.acc"."""


@dataclass(slots=True, eq=False)
class Tile:
    """A buffer of one iteration of the loops around its allocation: `size` elements of a memory, at `base` once allocated, in use
    from task `first` to task `last`."""

    buffer: ir.Buffer
    memory: Memory
    size: int
    first: int = -1
    last: int = -1
    base: int = -1


@dataclass(frozen=True, slots=True)
class Access:
    """Elements that a step touches: `rows` runs of `length` elements, `stride` apart, or any `indices`. `memory` None: DRAM in
    units of an INP element."""

    memory: Memory | None
    write: bool
    start: int = 0
    length: int = 0
    rows: int = 1
    stride: int = 0
    indices: Indices | None = None


@dataclass(slots=True, eq=False)
class Step:
    """An instruction without flags, and what orders it: `accesses` of memories that modules share. `kernel`: the micro-ops of a
    GEMM or ALU instruction, whose place is not known yet."""

    instruction: Instruction
    source: str
    accesses: tuple[Access, ...] = ()
    kernel: Uops | None = None


class Plan(Protocol):
    """How a statement under its nest of loops becomes instructions."""

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterable[Step]:
        """The steps of one task, whose tiles have places."""
        ...


@dataclass(slots=True, eq=False)
class Task:
    """A plan with what varies between its tasks: `numbers`, and the tiles."""

    plan: Plan
    numbers: tuple[int, ...]
    tiles: tuple[Tile, ...]
    source: str


def footprint(memory: Memory, write: bool, indices: Indices) -> Access:
    """The access of a set of elements, given in any order and number."""
    found = np.unique(indices)
    start, length = int(found[0]), len(found)
    if int(found[-1]) - start + 1 == length:
        return Access(memory, write, start, length)
    return Access(memory, write, start, indices=found - start)
