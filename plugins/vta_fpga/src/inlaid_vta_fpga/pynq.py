"""Device driver for a Pynq board. It has not been tested on a board.

Register map: apache/tvm-vta, `src/pynq/pynq_driver.cc` and `hardware/xilinx` (2022-01). The bitstream must be loaded. Memory comes
from the contiguous allocator of the board's image (`pynq.allocate`). The accelerator accesses it through the coherent port.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from dataclasses import replace

from inlaid_runtime.errors import TargetError
from inlaid_runtime.plugins import DeviceStatus
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Instruction, Load, Store
from inlaid_vta_fpga.simulators.commands import Commands
from inlaid_vta_fpga.simulators.device import Dram, Report, fault, stream_bytes

FETCH, LOAD, COMPUTE, STORE = 0x43C00000, 0x43C01000, 0x43C02000, 0x43C03000
"""Base addresses of the modules' registers."""
COUNT, ADDRESS, DONE = 0x10, 0x18, 0x18
"""Register offsets: instruction count and stream address in fetch, done flag in compute."""
START, RESTART = 0x1, 0x81
WAIT_SECONDS = 10.0


def status() -> DeviceStatus:
    """Report whether the board's Python package is installed."""
    if importlib.util.find_spec("pynq") is None:
        return DeviceStatus(False, "expected package pynq of a Pynq board's image, found none; run on a board with VTA's bitstream")
    return DeviceStatus(True, "Pynq board (untested)")


class Pynq:
    """Runs streams on the board; implements `Device`. Raises `TargetError` on other machines, and for a configuration that differs
    from the released bitstream."""

    def __init__(self, config: Config) -> None:
        device_status = status()
        if not device_status.available:
            raise TargetError(device_status.detail)
        if config != Config():
            raise TargetError(
                "expected the configuration of the bitstream, got another", remedy="leave the log_* options at default"
            )
        self._encoding = Encoding(config)

    def run(self, dram: Dram, instructions: int, count: int) -> Report:
        """Copy DRAM to memory of the board, run the stream, and copy DRAM back. Raises `KernelFault` on a timeout."""
        pynq = importlib.import_module("pynq")
        memory = pynq.allocate((len(dram),), "u1")
        try:
            stream = self._encoding.decode_program(stream_bytes(dram, instructions, count))
            relocated = self._encoding.encode_program(self._relocated(each, memory.physical_address) for each in stream)
            memory[:] = dram
            memory[instructions : instructions + count * INSTRUCTION_BYTES] = bytearray(relocated)
            memory.flush()
            fetch, load, compute, store = (pynq.MMIO(base, 0x1000) for base in (FETCH, LOAD, COMPUTE, STORE))
            fetch.write(COUNT, count)
            fetch.write(ADDRESS, memory.physical_address + instructions)
            for module in (load, compute, store):
                module.write(0, RESTART)
            fetch.write(0, START)
            deadline = time.monotonic() + WAIT_SECONDS
            while not compute.read(DONE) & 1:
                if time.monotonic() > deadline:
                    raise fault(
                        None, f"expected FINISH within {WAIT_SECONDS} s, found the core still running", "load its bitstream"
                    )
            memory.invalidate()
            dram[:] = memory
        finally:
            memory.freebuffer()
        return Commands.split(stream).report(self._encoding.config)

    def _relocated(self, instruction: Instruction, base: int) -> Instruction:
        """Relocate an instruction's DRAM address by a physical base address."""
        if not isinstance(instruction, (Load, Store)) or not instruction.x_size:
            return instruction
        memory = instruction.memory if isinstance(instruction, Load) else Memory.OUT
        return replace(instruction, dram_base=instruction.dram_base + base // self._encoding.config.element_bytes(memory))
