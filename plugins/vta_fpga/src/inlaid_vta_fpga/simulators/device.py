"""Device interface shared by simulators, the RTL core and boards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlaid_runtime.errors import KernelFault
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, PAGE_BYTES, Memory

Dram = npt.NDArray[np.uint8]
"""Physical memory from address 0, as a one-dimensional array. Page 0 is invalid: buffers start at `PAGE_BYTES` or above."""


@dataclass(frozen=True)
class Report:
    """Counters of one run of a stream.

    cycles: clock cycles from launch to FINISH; None for a device without a clock. gemm_uops, reset_uops, alu_uops: micro-op
    executions of GEMM, of GEMM with `reset`, and of ALU. loaded: bytes read from DRAM per loaded memory, without padding. stored:
    bytes written to DRAM. ACC_8BIT counts one byte per lane; the functional simulator of apache/tvm-vta counts four.
    """

    cycles: int | None = None
    gemm_uops: int = 0
    reset_uops: int = 0
    alu_uops: int = 0
    loaded: Mapping[Memory, int] = field(default_factory=dict)
    stored: int = 0


class Device(Protocol):
    """Runs instruction streams on DRAM shared with the host."""

    def run(self, dram: Dram, instructions: int, count: int) -> Report:
        """Run `count` instructions from byte address `instructions` of `dram`, starting with empty token queues.

        The last instruction must be FINISH. SRAM contents before the run are unspecified. After the run, results are in `dram`.
        Raises `KernelFault` for an illegal stream (undecodable bytes, an index beyond a buffer, an address beyond DRAM or in page
        0, a deadlock, no FINISH); `dram` may then hold part of the results.
        """
        ...


def fault(number: int | None, rule: str, remedy: str = "locate the cause with inlaid_vta_fpga.checker.check") -> KernelFault:
    """Create the error for instruction `number`, or for the whole stream if `number` is None. `rule`: text "expected ..., found
    ..."."""
    subject = "VTA stream" if number is None else f"VTA instruction {number}"
    return KernelFault(f"{subject}: {rule}", plugin="vta_fpga", remedy=remedy)


def stream_bytes(dram: Dram, instructions: int, count: int) -> bytes:
    """Return the bytes of a stream. Raises `KernelFault` if the stream exceeds `dram` or is not aligned to an instruction."""
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
