"""What runs an instruction stream: the interface that simulators, the RTL core and boards share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlaid.errors import KernelFault
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, PAGE_BYTES, Memory

Dram = npt.NDArray[np.uint8]
"""All of physical memory from address 0, one dimension. Page 0 is invalid: buffers start at `PAGE_BYTES` or above."""


@dataclass(frozen=True)
class Report:
    """Counters of one run of a stream.

    cycles: clock cycles from launch to FINISH; None for a device without a clock. gemm_uops, reset_uops, alu_uops: micro-op
    executions of GEMM, of GEMM with `reset`, and of ALU. loaded: bytes read from DRAM for each memory that was loaded, padding not
    counted. stored: bytes written to DRAM. ACC_8BIT counts the bytes that move (one for each lane), where the functional simulator
    of apache/tvm-vta counts four.
    """

    cycles: int | None = None
    gemm_uops: int = 0
    reset_uops: int = 0
    alu_uops: int = 0
    loaded: Mapping[Memory, int] = field(default_factory=dict)
    stored: int = 0


class Device(Protocol):
    """Runs instruction streams on DRAM that it shares with the host."""

    def run(self, dram: Dram, instructions: int, count: int) -> Report:
        """Run `count` instructions from byte address `instructions` of `dram`, the last of them FINISH, with empty token queues.

        SRAM contents before the run are unspecified. Results are in `dram` afterwards. Raises `KernelFault` for an illegal stream
        (undecodable bytes, an index beyond a buffer, an address beyond DRAM or in page 0, a deadlock, no FINISH); `dram` may then
        hold part of the results.
        """
        ...


def fault(number: int | None, rule: str, remedy: str | None = None) -> KernelFault:
    """The error for instruction `number` of a stream, or for the stream as a whole where it is None. `rule`: expected and found."""
    place = "VTA stream" if number is None else f"VTA instruction {number}"
    return KernelFault(f"{place}: {rule}", plugin="vta_fpga", remedy=remedy)


def stream_bytes(dram: Dram, instructions: int, count: int) -> bytes:
    """The bytes of the stream. Raises `KernelFault` for one outside of `dram` or not aligned to an instruction."""
    end = instructions + count * INSTRUCTION_BYTES
    if dram.dtype != np.uint8 or dram.ndim != 1:
        raise fault(None, f"expected DRAM as a vector of uint8, found {dram.dtype.name} of shape {dram.shape}")
    if count < 1 or instructions % INSTRUCTION_BYTES or not PAGE_BYTES <= instructions < end <= len(dram):
        raise fault(
            None,
            f"expected {INSTRUCTION_BYTES}-byte aligned instructions within bytes {PAGE_BYTES} to {len(dram)} of DRAM, "
            f"found {count} at {instructions}",
        )
    return dram[instructions:end].tobytes()
