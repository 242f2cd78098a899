"""Data types of lowering: tasks in program order, the SRAM tiles that they use, and the steps that they expand to."""

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
"""Memory of each buffer scope. OUT has no scope: a STORE from "vta.acc" reads it."""


@dataclass(slots=True, eq=False)
class Tile:
    """A buffer in one iteration of the loops around its allocation: `size` elements of a memory, live from task `first` to task
    `last`. `base` is -1 until `sram.allocate` sets it."""

    buffer: ir.Buffer
    memory: Memory
    size: int
    first: int = -1
    last: int = -1
    base: int = -1


@dataclass(frozen=True, slots=True)
class Access:
    """Elements that a step accesses: `rows` runs of `length` elements, `stride` apart, or arbitrary `indices`, all relative to
    `start`. memory None: DRAM, in units of an INP element."""

    memory: Memory | None
    write: bool
    start: int
    length: int
    rows: int = 1
    stride: int = 0
    indices: Indices | None = None

    @property
    def parts(self) -> list[slice] | list[Indices]:
        """Return the elements as array indices."""
        if self.indices is not None:
            return [self.indices + self.start]
        starts = (self.start + row * self.stride for row in range(self.rows))
        return [slice(start, start + self.length) for start in starts]


@dataclass(slots=True, eq=False)
class Step:
    """An instruction before flags are set. accesses: elements of memories shared between modules, which order the step. kernel:
    micro-ops of a GEMM or ALU instruction, before they have an address."""

    instruction: Instruction
    source: str
    accesses: tuple[Access, ...] = ()
    kernel: Uops | None = None


class Plan(Protocol):
    """Translation of a statement and its loop nest to instructions. `buffers`: the buffers of its tiles."""

    @property
    def buffers(self) -> tuple[ir.Buffer, ...]: ...

    def bind(self, env: Env) -> tuple[int, ...] | None:
        """Evaluate what varies between tasks, for the values of the outer loops; None if the task is empty."""
        ...

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterable[Step]:
        """Yield the steps of a task whose tiles are allocated."""
        ...


@dataclass(slots=True, eq=False)
class Task:
    """A plan with its bound numbers and tiles for one iteration of the outer loops."""

    plan: Plan
    numbers: tuple[int, ...]
    tiles: tuple[Tile, ...]
    source: str
