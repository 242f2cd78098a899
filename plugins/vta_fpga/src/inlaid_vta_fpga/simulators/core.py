"""SRAM of a simulated core, and the effect of each instruction on SRAM and DRAM."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import PAGE_BYTES, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Gemm, Instruction, Load, Store
from inlaid_vta_fpga.simulators.device import Dram, fault
from inlaid_vta_fpga.simulators.elementwise import apply, batches
from inlaid_vta_fpga.simulators.loops import Indices, check_range, expand, micro_ops, pieces
from inlaid_vta_fpga.simulators.products import Plans, accumulate

STEP = 1 << 8
"""Fixed work of an instruction, and of each batch of ALU micro-ops, in addition to the number of micro-ops and elements."""
BATCH_LANES = 1 << 20
"""Maximum lanes that one batch of micro-ops gathers: 4 MiB of float32."""
SHIFTS = range(-16, 16)
"""Immediate shift amounts for which all implementations of VTA give equal results. Shift amounts in a tensor must also be >= 0."""


class Core:
    """SRAM during one run. INP and WGT hold int8 values as float32 for BLAS products; WGT is transposed to [in][out].

    strict: raise `KernelFault` for reads of unwritten elements and for accumulators that repeat at distance 1 or 2. limit: maximum
    work of the run.
    """

    def __init__(self, encoding: Encoding, plans: Plans, dram: Dram, strict: bool, limit: int) -> None:
        self.encoding, self.plans, self.dram, self.strict, self.limit = encoding, plans, dram, strict, limit
        self.config = config = encoding.config
        self.work = 0
        shapes = {memory: (config.depth(memory), *config.shape(memory)) for memory in Memory}
        self.uop = np.zeros(shapes[Memory.UOP], np.uint32)
        self.inp = np.zeros(shapes[Memory.INP], np.float32)
        self.wgt = np.zeros(shapes[Memory.WGT], np.float32)
        self.acc = np.zeros(shapes[Memory.ACC], np.int32)
        self.out = np.zeros(shapes[Memory.OUT], np.int8)
        self.written: dict[Memory, npt.NDArray[np.bool_]] = {memory: np.zeros(config.depth(memory), np.bool_) for memory in Memory}
        self.piece = max(1, BATCH_LANES // (config.batch * config.block))

    def execute(self, number: int, instruction: Instruction) -> None:
        """Apply an instruction to SRAM and DRAM. Raises `KernelFault` for an illegal instruction and beyond the work limit."""
        self._spend(number, STEP + _work(instruction))
        match instruction:
            case Load() if instruction.x_size:
                self._load(number, instruction)
            case Store() if instruction.x_size:
                self._store(number, instruction)
            case Gemm():
                self._gemm(number, instruction)
            case Alu():
                self._alu(number, instruction)

    def _spend(self, number: int, work: int) -> None:
        self.work += work
        if self.work > self.limit:
            raise fault(
                number,
                f"expected a stream of at most {self.limit} micro-op executions and elements, found more",
                "split the stream, or raise `limit` of the simulator",
            )

    def _rows(self, number: int, instruction: Load | Store, memory: Memory) -> Dram:
        """Check the ranges of a transfer and return its rows [y_size, bytes of a row] as a view of DRAM."""
        depth, size = self.config.depth(memory), self.config.element_bytes(memory)
        if not instruction.y_size:
            raise fault(number, f"expected y_size >= 1 for x_size > 0, found 0 in {instruction}")
        if instruction.sram_base + instruction.sram_size > depth:
            end = instruction.sram_base + instruction.sram_size
            raise fault(number, f"expected elements of {memory.name} below {depth}, found a range up to {end} in {instruction}")
        start, stride, row = instruction.dram_base * size, instruction.x_stride * size, instruction.x_size * size
        end = start + (instruction.y_size - 1) * stride + row
        if not PAGE_BYTES <= start < end <= len(self.dram):
            raise fault(number, f"expected bytes {PAGE_BYTES} to {len(self.dram)} of DRAM, found {start} to {end} in {instruction}")
        return np.lib.stride_tricks.as_strided(self.dram[start:end], (instruction.y_size, row), (stride, 1))

    def _load(self, number: int, load: Load) -> None:
        rows = self._rows(number, load, load.memory)
        types = {Memory.UOP: np.dtype("<u4"), Memory.ACC: np.dtype("<i4")}
        shape = self.config.shape(load.memory)
        values = np.ascontiguousarray(rows).view(types.get(load.memory, np.dtype("i1")))
        values = values.reshape(load.y_size, load.x_size, *shape)
        pads = ((load.y_pad_0, load.y_pad_1), (load.x_pad_0, load.x_pad_1), *((0, 0) for _ in shape))
        if any(map(any, pads)):
            values = np.pad(values, pads)
        values = values.reshape(-1, *shape)
        memory = Memory.ACC if load.memory is Memory.ACC_8BIT else load.memory
        sram_range = slice(load.sram_base, load.sram_base + load.sram_size)
        target = {Memory.UOP: self.uop, Memory.INP: self.inp, Memory.WGT: self.wgt, Memory.ACC: self.acc}[memory]
        target[sram_range] = values.swapaxes(-1, -2) if memory is Memory.WGT else values
        self.written[memory][sram_range] = True
        if memory is Memory.ACC:
            self.written[Memory.OUT][sram_range] = False

    def _store(self, number: int, store: Store) -> None:
        rows = self._rows(number, store, Memory.OUT)
        sram_range = slice(store.sram_base, store.sram_base + store.sram_size)
        if self.strict and not self.written[Memory.OUT][sram_range].all():
            raise fault(
                number,
                f"expected results of GEMM or ALU in OUT, found elements only loaded or reset in {store}",
                "copy loaded accumulators with SHR by 0",
            )
        values = self.out[sram_range].view(np.uint8).reshape(rows.shape)
        for row, value in zip(rows, values, strict=True):  # row by row, since rows may overlap
            row[:] = value

    def _indices(self, number: int, instruction: Gemm | Alu) -> tuple[Indices, Indices, Indices]:
        """Check the loops and return the micro-op columns dst, src and wgt."""
        if not (instruction.uop_begin < instruction.uop_end and instruction.iter_out and instruction.iter_in):
            raise fault(number, f"expected micro-ops and loop counts >= 1, found none in {instruction}")
        if instruction.uop_end > len(self.uop):
            raise fault(number, f"expected micro-op indices below {len(self.uop)}, found {instruction.uop_end} in {instruction}")
        uop_range = slice(instruction.uop_begin, instruction.uop_end)
        self._check_written(number, Memory.UOP, np.arange(instruction.uop_begin, instruction.uop_end))
        dst, src, wgt = self.encoding.decode_uops(self.uop[uop_range])
        check_range(number, instruction, Memory.ACC, dst, instruction.dst_factors, len(self.acc))
        return dst, src, wgt

    def _check_written(self, number: int, memory: Memory, indices: Indices) -> None:
        if self.strict and not (written := self.written[memory].take(indices)).all():
            first = int(indices.reshape(-1)[np.argmin(written)])
            raise fault(number, f"expected initialized elements of {memory.name}, found {memory.name}[{first}] never written")

    def _gemm(self, number: int, gemm: Gemm) -> None:
        dst, src, wgt = self._indices(number, gemm)
        if gemm.reset:
            for outer, inner in pieces(gemm, self.piece):
                start = dst + _offset(gemm.dst_factors, outer, inner)
                acc_indices = expand(start, gemm.dst_factors, outer[1] - outer[0], inner[1] - inner[0])
                self.acc[acc_indices] = 0
                self.written[Memory.ACC][acc_indices] = True
                self.written[Memory.OUT][acc_indices] = False
            return
        check_range(number, gemm, Memory.INP, src, gemm.src_factors, len(self.inp))
        check_range(number, gemm, Memory.WGT, wgt, gemm.wgt_factors, len(self.wgt))
        first = int(dst[0]), int(src[0]), int(wgt[0])
        columns = dst - first[0], src - first[1], wgt - first[2]
        factors = gemm.dst_factors, gemm.src_factors, gemm.wgt_factors
        for outer, inner in pieces(gemm, self.piece):
            offset = [_offset(factor, outer, inner) for factor in factors]
            base = first[0] + offset[0], first[1] + offset[1], first[2] + offset[2]
            plan = self.plans.get(columns, factors, (outer[1] - outer[0], inner[1] - inner[0]))
            if plan.repeats_closely and self.strict:
                raise fault(
                    number,
                    f"expected no accumulator to repeat within 3 micro-ops, found a repeat in {gemm}",
                    "make the innermost loop move dst",
                )
            for memory, indices, begin in zip((Memory.ACC, Memory.INP, Memory.WGT), plan.touched, base, strict=True):
                self._check_written(number, memory, indices + begin)
            for product in plan.products:
                accumulate(product, base, self.acc, self.inp, self.wgt)
            self._to_out(plan.touched[0] + base[0])

    def _alu(self, number: int, alu: Alu) -> None:
        dst, src, _ = self._indices(number, alu)
        if alu.imm is None:
            check_range(number, alu, Memory.ACC, src, alu.src_factors, len(self.acc))
        elif alu.op is AluOp.SHR and alu.imm not in SHIFTS:
            raise fault(number, f"expected a shift of {SHIFTS[0]} to {SHIFTS[-1]}, found {alu.imm} in {alu}", "use two shifts")
        for outer, inner in pieces(alu, self.piece):
            loops = outer[1] - outer[0], inner[1] - inner[0]
            indices = expand(dst + _offset(alu.dst_factors, outer, inner), alu.dst_factors, *loops)
            self._check_written(number, Memory.ACC, indices)
            if alu.imm is None:
                operand = expand(src + _offset(alu.src_factors, outer, inner), alu.src_factors, *loops)
                self._check_written(number, Memory.ACC, operand)
            for batch in batches(indices, operand if alu.imm is None else None):
                self._spend(number, STEP)
                other = self.acc[operand[batch]] if alu.imm is None else alu.imm
                if alu.op is AluOp.SHR and isinstance(other, np.ndarray) and not 0 <= other.min() <= other.max() < SHIFTS.stop:
                    actual = f"{other.min()} to {other.max()}"
                    raise fault(number, f"expected shifts by a tensor of 0 to {SHIFTS[-1]}, found {actual} in {alu}")
                self.acc[indices[batch]] = apply(alu.op, self.acc[indices[batch]], other)
            self._to_out(indices)

    def _to_out(self, indices: Indices) -> None:
        """Copy accumulators to OUT, truncated to int8."""
        self.out[indices] = self.acc[indices].astype(np.int8)
        self.written[Memory.OUT][indices] = True


def _offset(factors: tuple[int, int], outer: tuple[int, int], inner: tuple[int, int]) -> int:
    """Return the index offset of the first iteration of a piece of the loops."""
    return outer[0] * factors[0] + inner[0] * factors[1]


def _work(instruction: Instruction) -> int:
    match instruction:
        case Load() | Store():
            return instruction.sram_size
        case Gemm() | Alu():
            return micro_ops(instruction)
    return 0
