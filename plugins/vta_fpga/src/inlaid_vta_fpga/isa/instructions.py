"""Data types for VTA instructions and micro-ops.

Semantics: apache/tvm-vta, `src/sim/sim_driver.cc` and `hardware/xilinx/src/vta.cc` (2022-01).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Memory


class Module(IntEnum):
    """Hardware modules that execute instructions, in pipeline order. Tokens flow only between neighbors in this order."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class AluOp(IntEnum):
    """ALU operations. SHR is arithmetic; a negative amount shifts left. The RTL does not implement MUL."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


@dataclass(frozen=True, slots=True)
class Flags:
    """Dependence tokens that an instruction pops before it starts and pushes after its last write.

    `prev` is the preceding module and `next` the following module in the order load, compute, store. LOAD has no `prev`, STORE has
    no `next`.
    """

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


NONE = Flags()


@dataclass(frozen=True, slots=True)
class Load:
    """Copies rows of DRAM elements to consecutive SRAM elements and adds zero padding around them.

    All counts are in elements of `memory`. The stride of rows in DRAM is `x_stride`. `y_pad_0` rows of zeros are added before the
    rows and `y_pad_1` after them. `x_pad_0` zeros are added before each row and `x_pad_1` after it. With x_size 0, the instruction
    is a no-op that still pops and pushes tokens.
    """

    memory: Memory
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0
    flags: Flags = NONE

    @property
    def module(self) -> Module:
        """The executing module: load for INP and WGT, compute for the other memories."""
        return Module.LOAD if self.memory in (Memory.INP, Memory.WGT) else Module.COMPUTE

    @property
    def row(self) -> int:
        """Number of SRAM elements of one row, padding included."""
        return self.x_pad_0 + self.x_size + self.x_pad_1

    @property
    def sram_size(self) -> int:
        """Number of SRAM elements written, padding included; 0 for a no-op."""
        return (self.y_pad_0 + self.y_size + self.y_pad_1) * self.row if self.x_size else 0


@dataclass(frozen=True, slots=True)
class Store:
    """Copies consecutive OUT elements to rows of DRAM elements with row stride `x_stride`. With x_size 0, it is a no-op."""

    module: ClassVar[Module] = Module.STORE
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    flags: Flags = NONE

    @property
    def sram_size(self) -> int:
        """Number of SRAM elements read."""
        return self.y_size * self.x_size


@dataclass(frozen=True, slots=True)
class Gemm:
    """acc[dst] += inp[src] @ wgt[wgt].T for iter_out * iter_in * (uop_end - uop_begin) micro-ops, or acc[dst] = 0 with `reset`.

    Each index is the micro-op's index plus outer iteration * factors[0] + inner iteration * factors[1].
    """

    module: ClassVar[Module] = Module.COMPUTE
    uop_begin: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factors: tuple[int, int] = (0, 0)
    src_factors: tuple[int, int] = (0, 0)
    wgt_factors: tuple[int, int] = (0, 0)
    reset: bool = False
    flags: Flags = NONE


@dataclass(frozen=True, slots=True)
class Alu:
    """acc[dst] = op(acc[dst], imm) or op(acc[dst], acc[src]), with the loops of `Gemm`. `imm`: a signed 16-bit number, or None if
    the second operand is acc[src]."""

    module: ClassVar[Module] = Module.COMPUTE
    op: AluOp
    uop_begin: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factors: tuple[int, int] = (0, 0)
    src_factors: tuple[int, int] = (0, 0)
    imm: int | None = None
    flags: Flags = NONE


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the program. The host may then read the results. FINISH waits for other modules only through tokens."""

    module: ClassVar[Module] = Module.COMPUTE
    flags: Flags = NONE


Instruction = Load | Store | Gemm | Alu | Finish

Uops = npt.NDArray[np.uint32]
"""Encoded micro-ops, one per 32-bit word."""


@dataclass(frozen=True, slots=True)
class Uop:
    """Indices of one micro-op: `dst` into ACC; `src` into INP for GEMM, ACC for ALU; `wgt` into WGT, 0 for ALU."""

    dst: int
    src: int = 0
    wgt: int = 0
