"""Rules that can be checked on a single instruction."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid_vta_fpga.checker.footprints import EXECUTIONS
from inlaid_vta_fpga.checker.violations import Rule
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding, EncodingError
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Gemm, Instruction, Load, Store

_SHIFTS = range(-16, 16)
Broken = Iterator[tuple[Rule, str]]
"""Violated rules, each with a message that states what was expected, what was found, and a remedy."""


class InstructionRules:
    """Checks single instructions for a device. `dram_bytes`: size of DRAM. `acc_8bit`, `mul`: the device has these operations."""

    def __init__(self, config: Config, dram_bytes: int, acc_8bit: bool, mul: bool) -> None:
        self._config = config
        self._encoding = Encoding(config)
        self._dram_bytes = dram_bytes
        self._acc_8bit = acc_8bit
        self._mul = mul

    def broken(self, instruction: Instruction) -> Broken:
        """Yield the rules that an instruction breaks. If it breaks none, its accesses are in range, except for micro-op indices."""
        try:
            self._encoding.encode(instruction)
        except EncodingError as error:
            yield Rule.FIELDS, str(error)
            return
        match instruction:
            case Load(memory=memory):
                pads = instruction.y_pad_0, instruction.y_pad_1, instruction.x_pad_0, instruction.x_pad_1
                if memory is Memory.ACC_8BIT and not self._acc_8bit:
                    yield Rule.PORTABLE, "expected no ACC_8BIT on this device, found LOAD ACC_8BIT; load int32 into ACC"
                if memory in (Memory.WGT, Memory.UOP) and any(pads):
                    yield Rule.PORTABLE, f"expected no padding of {memory.name}, found {pads}; store the zeros in DRAM"
                if memory is Memory.UOP and instruction.y_size > 1:
                    yield Rule.PORTABLE, f"expected one row of UOP, found {instruction.y_size}; use a LOAD for each row"
                yield from self._transfer(instruction, memory)
            case Store():
                yield from self._transfer(instruction, Memory.OUT)
            case Alu(op=AluOp.MUL) if not self._mul:
                yield Rule.PORTABLE, "expected no MUL on this device, found ALU MUL; use GEMM or shifts"
            case Alu(op=AluOp.SHR, imm=int(shift)) if shift not in _SHIFTS:
                yield Rule.SHIFT, f"expected a shift of {_SHIFTS[0]} to {_SHIFTS[-1]}, found {shift}; use two instructions"
            case Gemm() | Alu() | Finish():
                pass
        if isinstance(instruction, Gemm | Alu):
            yield from self._loops(instruction)

    def _transfer(self, transfer: Load | Store, memory: Memory) -> Broken:
        if not transfer.x_size:
            return
        if not transfer.y_size:
            yield Rule.LOOP_COUNT, f"expected y_size >= 1 for x_size {transfer.x_size}, found 0; set x_size 0 for a no-op"
        end, depth = transfer.sram_base + transfer.sram_size, self._config.depth(memory)
        if end > depth:
            yield Rule.SRAM_RANGE, f"expected {memory.name} indices below {depth}, found {end - 1}; choose a smaller tile"
        size = self._config.element_bytes(memory)
        first = transfer.dram_base * size
        last = first + (max(0, transfer.y_size - 1) * transfer.x_stride + transfer.x_size) * size
        if first < PAGE_BYTES or last > self._dram_bytes:
            text = f"expected DRAM bytes from {PAGE_BYTES:#x} to {self._dram_bytes:#x}, found {first:#x} to {last:#x}"
            yield Rule.DRAM_RANGE, f"{text}; allocate the buffer there"

    def _loops(self, compute: Gemm | Alu) -> Broken:
        end, uop_depth = compute.uop_end, self._config.depth(Memory.UOP)
        loops = compute.iter_out, compute.iter_in, end - compute.uop_begin
        if min(loops) < 1 or (executions := loops[0] * loops[1] * loops[2]) > EXECUTIONS:
            actual = f"{loops}" if min(loops) < 1 else f"{executions} executions"
            text = f"expected counts >= 1 of outer and inner iterations and micro-ops, at most {EXECUTIONS} in all, found {actual}"
            yield Rule.LOOP_COUNT, f"{text}; split or remove the instruction"
        if end > uop_depth:
            yield Rule.SRAM_RANGE, f"expected UOP indices below {uop_depth}, found {end - 1}; load fewer micro-ops"
