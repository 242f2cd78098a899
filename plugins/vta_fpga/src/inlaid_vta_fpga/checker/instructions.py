"""Rules that an instruction keeps or breaks by itself."""

from __future__ import annotations

from inlaid_vta_fpga.checker.violations import Report, Rule
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding, EncodingError
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Gemm, Instruction, Load, Store

_SHIFTS = range(-16, 16)


class InstructionRules:
    """Checks single instructions for a device: DRAM of `dram_bytes`, with ACC_8BIT and MUL or without."""

    def __init__(self, config: Config, dram_bytes: int, acc_8bit: bool, mul: bool, report: Report) -> None:
        self._config = config
        self._encoding = Encoding(config)
        self._dram_bytes = dram_bytes
        self._acc_8bit = acc_8bit
        self._mul = mul
        self._report = report

    def check(self, number: int, instruction: Instruction) -> bool:
        """Report violations; whether the elements that the instruction accesses are defined in spite of them."""
        try:
            self._encoding.encode(instruction)
        except EncodingError as error:
            self._report(number, Rule.FIELDS, str(error))
            return False
        match instruction:
            case Load():
                return self._load(number, instruction)
            case Store():
                return self._transfer(number, instruction, Memory.OUT)
            case Gemm() | Alu():
                return self._compute(number, instruction)
            case Finish():
                return True

    def _load(self, number: int, load: Load) -> bool:
        pads = load.y_pad_0, load.y_pad_1, load.x_pad_0, load.x_pad_1
        if load.memory is Memory.ACC_8BIT and not self._acc_8bit:
            self._report(number, Rule.PORTABLE, "expected no ACC_8BIT on this device, found LOAD ACC_8BIT; load int32 into ACC")
        if load.memory in (Memory.WGT, Memory.UOP) and any(pads):
            text = f"expected no padding of {load.memory.name}, found {pads}; store the zeros in DRAM"
            self._report(number, Rule.PORTABLE, text)
        if load.memory is Memory.UOP and load.x_size and load.y_size > 1:
            self._report(number, Rule.PORTABLE, f"expected one row of UOP, found {load.y_size}; use a LOAD for each row")
            return False
        return self._transfer(number, load, load.memory)

    def _transfer(self, number: int, transfer: Load | Store, memory: Memory) -> bool:
        if not transfer.x_size:
            return True
        if not transfer.y_size:
            self._report(
                number, Rule.LOOP_COUNT, f"expected y_size >= 1 for x_size {transfer.x_size}, found 0; set x_size 0 for a no-op"
            )
            return False
        end, depth = transfer.sram_base + transfer.sram_size, self._config.depth(memory)
        if end > depth:
            self._report(
                number, Rule.SRAM_RANGE, f"expected {memory.name} indices below {depth}, found {end - 1}; choose a smaller tile"
            )
        size = self._config.element_bytes(memory)
        first = transfer.dram_base * size
        last = first + ((transfer.y_size - 1) * transfer.x_stride + transfer.x_size) * size
        inside = first >= PAGE_BYTES and last <= self._dram_bytes
        if not inside:
            text = f"expected DRAM bytes from {PAGE_BYTES:#x} to {self._dram_bytes:#x}, found {first:#x} to {last:#x}"
            self._report(number, Rule.DRAM_RANGE, f"{text}; allocate the buffer there")
        return end <= depth and inside

    def _compute(self, number: int, compute: Gemm | Alu) -> bool:
        begin, end, depth = compute.uop_begin, compute.uop_end, self._config.depth(Memory.UOP)
        counts = {"iter_out": compute.iter_out, "iter_in": compute.iter_in, "micro-ops": end - begin}
        if isinstance(compute, Alu):
            if compute.op is AluOp.MUL and not self._mul:
                self._report(number, Rule.PORTABLE, "expected no MUL on this device, found ALU MUL; use GEMM or shifts")
            if compute.op is AluOp.SHR and compute.imm is not None and compute.imm not in _SHIFTS:
                text = f"expected a shift of {_SHIFTS.start} to {_SHIFTS.stop - 1}, found {compute.imm}; use two instructions"
                self._report(number, Rule.SHIFT, text)
        for name, count in counts.items():
            if count < 1:
                self._report(number, Rule.LOOP_COUNT, f"expected {name} >= 1, found {count}; remove the instruction")
                return False
        if end > depth:
            self._report(number, Rule.SRAM_RANGE, f"expected UOP indices below {depth}, found {end - 1}; load fewer micro-ops")
        return end <= depth
