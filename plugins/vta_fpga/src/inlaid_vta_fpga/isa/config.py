"""Configuration of a VTA core. Every size is a power of two, given as its base-2 logarithm.

Source of fields, defaults and formulas: apache/tvm-vta, `config/pynq_sample.json` and `hardware/xilinx/src/vta.h` (2022-01). The
default is the configuration shipped for pynq, ultra96, zcu104, de10nano and both simulators.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from inlaid_runtime.errors import TargetError


class Memory(IntEnum):
    """Memory ids of LOAD and STORE. `ACC_8BIT` reads int8 from DRAM and writes sign-extended int32 to ACC."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


INSTRUCTION_BYTES = 16
UOP_BYTES = 4
PAGE_BYTES = 4096
"""Page size in bytes. DRAM buffers start on page boundaries. Physical page 0 is invalid."""
_INSTRUCTION_HALF = 64
_ADDRESS_BITS = 16
_GREATEST = {"log_batch": 12, "log_block": 12, "bus_bytes": 128, "burst_beats": 256}
"""Greatest values of fields: elements have at most a page, and AXI4 has buses of at most 1024 bits and bursts of 256 beats."""
_GREATEST_LOG_BUFFER = _ADDRESS_BITS + 12
"""Greatest log2 of the bytes of a buffer: 2^16 elements of a page."""


@dataclass(frozen=True)
class Config:
    """Sizes of a VTA core.

    log_inp_width, log_wgt_width, log_acc_width: log2 of the bits of an activation, a weight, an accumulator. log_batch, log_block:
    log2 of the rows and of the channels of a GEMM block. log_uop_buff, log_inp_buff, log_wgt_buff, log_acc_buff: log2 of the bytes
    of the SRAM buffers. bus_bytes: width of the DRAM port, bytes per cycle. burst_beats: longest burst, in beats. Raises
    `TargetError` for an illegal configuration.
    """

    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff: int = 15
    log_inp_buff: int = 15
    log_wgt_buff: int = 18
    log_acc_buff: int = 17
    bus_bytes: int = 8
    burst_beats: int = 256

    def __post_init__(self) -> None:
        if (self.log_inp_width, self.log_wgt_width, self.log_acc_width) != (3, 3, 5):
            self._illegal("int8 operands and int32 accumulators (log widths 3, 3, 5)", "other widths")
        for field in fields(self):
            least, greatest = int(not field.name.startswith("log_")), _GREATEST.get(field.name, _GREATEST_LOG_BUFFER)
            value = getattr(self, field.name)
            if not least <= value <= greatest:
                actual = str(value) if abs(value) < 1 << 64 else f"a number of {value.bit_length()} bits"
                self._illegal(f"{field.name} from {least} to {greatest}", actual)
        if self.bus_bytes & (self.bus_bytes - 1) or self.burst_beats & (self.burst_beats - 1):
            self._illegal("bus_bytes and burst_beats that are powers of two", f"{self.bus_bytes} and {self.burst_beats}")
        for memory in (Memory.INP, Memory.WGT, Memory.ACC, Memory.UOP):
            if self.index_bits(memory) < 1:
                self._illegal(f"a {memory.name} buffer of two elements or more", f"{self.depth(memory)}")
            if self.index_bits(memory) > _ADDRESS_BITS:
                self._illegal(f"a {memory.name} buffer of at most 2^{_ADDRESS_BITS} elements", f"{self.depth(memory)}")
            if self.element_bytes(memory) > PAGE_BYTES:
                self._illegal(f"{memory.name} elements of at most a page", f"{self.element_bytes(memory)} bytes")
        inp, wgt, acc = (self.index_bits(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC))
        if inp + wgt + acc > 8 * UOP_BYTES:
            self._illegal("micro-op index fields of 32 bits in all", f"{acc} + {inp} + {wgt}")
        if 2 * (acc + inp + wgt) > _INSTRUCTION_HALF or 2 * (acc + inp) + 20 > _INSTRUCTION_HALF:
            self._illegal("factors that fit the second half of GEMM and ALU", f"index bits {acc}, {inp}, {wgt}")
        if self.index_bits(Memory.UOP) * 2 + 1 + 28 + 8 > _INSTRUCTION_HALF:
            self._illegal("micro-op ranges that fit the first half of GEMM", f"index bits {self.index_bits(Memory.UOP)}")

    @staticmethod
    def _illegal(expected: str, actual: str) -> None:
        raise TargetError(f"VTA configuration: expected {expected}, found {actual}", remedy="change the configuration's log2 sizes")

    @property
    def batch(self) -> int:
        """Number of rows of an INP, ACC or OUT element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Number of channels of an element: columns of an INP or ACC element, rows and columns of a WGT element."""
        return 1 << self.log_block

    def shape(self, memory: Memory) -> tuple[int, ...]:
        """Return the shape of an element: (block, block) as [out][in] for WGT, () for UOP, else (batch, block)."""
        if memory is Memory.UOP:
            return ()
        return (self.block, self.block) if memory is Memory.WGT else (self.batch, self.block)

    def element_bytes(self, memory: Memory) -> int:
        """Return the bytes of one element in DRAM. `dram_base` and `x_stride` count elements."""
        if memory is Memory.UOP:
            return UOP_BYTES
        rows = self.block if memory is Memory.WGT else self.batch
        return rows * self.block * (4 if memory is Memory.ACC else 1)

    def depth(self, memory: Memory) -> int:
        """Return the number of elements of an SRAM buffer. The depth of OUT and of ACC_8BIT is the depth of ACC."""
        logs = {
            Memory.UOP: self.log_uop_buff - 2,
            Memory.WGT: self.log_wgt_buff - 2 * self.log_block,
            Memory.INP: self.log_inp_buff - self.log_batch - self.log_block,
        }
        log = logs.get(memory, self.log_acc_buff - self.log_batch - self.log_block - 2)
        return 1 << max(0, log)

    def index_bits(self, memory: Memory) -> int:
        """Return the bits of an index into the SRAM buffer."""
        return self.depth(memory).bit_length() - 1
