"""Tasks of a region in program order, the SRAM tiles that they use, and the steps that they become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlaid.tensor import ir
from inlaid_vta_fpga.compiler.affine import Env
from inlaid_vta_fpga.compiler.intrinsics import ACC, INP, WGT
from inlaid_vta_fpga.isa.config import Memory
from inlaid_vta_fpga.isa.instructions import Instruction, Uops

Indices = npt.NDArray[np.intp]
SCOPES = {INP: Memory.INP, WGT: Memory.WGT, ACC: Memory.ACC}
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
    """Elements that a step touches: `rows` runs of `length`, `stride` apart, or any `indices`, from `start`. `memory` None: DRAM,
    in units of an INP element."""

    memory: Memory | None
    write: bool
    start: int
    length: int
    rows: int = 1
    stride: int = 0
    indices: Indices | None = None

    @property
    def parts(self) -> list[slice] | list[Indices]:
        """The elements, as indices of an array."""
        if self.indices is not None:
            return [self.indices + self.start]
        starts = (self.start + row * self.stride for row in range(self.rows))
        return [slice(start, start + self.length) for start in starts]


@dataclass(slots=True, eq=False)
class Step:
    """An instruction without flags, and what orders it: `accesses` of memories that modules share. `kernel`: the micro-ops of a
    GEMM or ALU instruction, whose place is not known yet."""

    instruction: Instruction
    source: str
    accesses: tuple[Access, ...] = ()
    kernel: Uops | None = None


class Plan(Protocol):
    """How a statement under its nest of loops becomes instructions. `buffers` are those of its tiles."""

    @property
    def buffers(self) -> tuple[ir.Buffer, ...]: ...

    def bind(self, env: Env) -> tuple[int, ...] | None:
        """What varies between tasks, under values of the loops around; None for nothing to do."""
        ...

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterable[Step]:
        """The steps of a task, whose tiles have places."""
        ...


@dataclass(slots=True, eq=False)
class Task:
    """A plan, with the numbers and the tiles of one iteration of the loops around."""

    plan: Plan
    numbers: tuple[int, ...]
    tiles: tuple[Tile, ...]
    source: str
