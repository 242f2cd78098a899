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
"""Memory of each buffer scope. OUT has no scope, since a STORE from scope "vta.acc" reads OUT."""


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
    """Elements that a step accesses: `rows` runs of `length` elements with stride `stride`, or arbitrary `indices`. Both are
    relative to `start`. memory: None means DRAM, in units of an INP element."""

    memory: Memory | None
    write: bool
    start: int
    length: int
    rows: int = 1
    stride: int = 0
    indices: Indices | None = None

    @property
    def parts(self) -> list[slice] | list[Indices]:
        """The elements as indices of an array."""
        if self.indices is not None:
            return [self.indices + self.start]
        starts = (self.start + row * self.stride for row in range(self.rows))
        return [slice(start, start + self.length) for start in starts]


@dataclass(slots=True, eq=False)
class Step:
    """An instruction before its flags are set. accesses: accessed elements of memories that modules share; they determine which
    other steps must precede the step. kernel: micro-ops of a GEMM or ALU instruction before they have an address."""

    instruction: Instruction
    source: str
    accesses: tuple[Access, ...] = ()
    kernel: Uops | None = None


class Plan(Protocol):
    """Translation of a statement and its loop nest to instructions. `buffers`: buffers whose tiles the instructions access."""

    @property
    def buffers(self) -> tuple[ir.Buffer, ...]: ...

    def bind(self, env: Env) -> tuple[int, ...] | None:
        """Compute the numbers that vary between tasks, given values of the outer loops. Returns None if the task is empty."""
        ...

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterable[Step]:
        """Yield the steps of a task. Its tiles must be allocated."""
        ...


@dataclass(slots=True, eq=False)
class Task:
    """A plan for one iteration of the outer loops, with the numbers that `bind` returned and the tiles."""

    plan: Plan
    numbers: tuple[int, ...]
    tiles: tuple[Tile, ...]
    source: str
