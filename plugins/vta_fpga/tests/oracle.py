"""The semantics of VTA as plain loops over Python integers, in program order: what the simulators are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Gemm, Instruction, Load, Store


def wrap(value: int) -> int:
    """Two's complement of 32 bits."""
    return (value + 2**31) % 2**32 - 2**31


class Oracle:
    """SRAM as lists; elements of INP, WGT and ACC as nested lists of integers."""

    def __init__(self, config: Config, dram: npt.NDArray[np.uint8]) -> None:
        self.config, self.dram = config, dram
        self.sram = {
            memory: [np.zeros(config.shape(memory), np.int64).tolist() for _ in range(config.depth(memory))] for memory in Memory
        }

    def run(self, instructions: Sequence[Instruction]) -> None:
        """Execute in program order."""
        for instruction in instructions:
            match instruction:
                case Load():
                    self._load(instruction)
                case Store():
                    self._store(instruction)
                case Gemm() | Alu():
                    self._nest(instruction)

    def _load(self, load: Load) -> None:
        if not load.x_size:
            return
        size, shape = self.config.element_bytes(load.memory), self.config.shape(load.memory)
        dtype = {Memory.UOP: "<u4", Memory.ACC: "<i4"}.get(load.memory, "i1")
        target = self.sram[Memory.ACC if load.memory is Memory.ACC_8BIT else load.memory]
        index = load.sram_base
        for y in range(-load.y_pad_0, load.y_size + load.y_pad_1):
            for x in range(-load.x_pad_0, load.x_size + load.x_pad_1):
                inside = 0 <= y < load.y_size and 0 <= x < load.x_size
                start = (load.dram_base + y * load.x_stride + x) * size
                element = self.dram[start : start + size].view(dtype).reshape(shape) if inside else np.zeros(shape)
                target[index] = element.astype(np.int64).tolist()
                index += 1

    def _store(self, store: Store) -> None:
        size = self.config.element_bytes(Memory.OUT)
        for y in range(store.y_size):
            for x in range(store.x_size):
                lanes = np.array(self.sram[Memory.OUT][store.sram_base + y * store.x_size + x], np.int64).reshape(-1)
                start = (store.dram_base + y * store.x_stride + x) * size
                self.dram[start : start + size] = lanes % 256

    def _nest(self, instruction: Gemm | Alu) -> None:
        words = np.array(self.sram[Memory.UOP][instruction.uop_begin : instruction.uop_end], np.uint32)
        columns = [column.tolist() for column in Encoding(self.config).decode_uops(words)]
        wgt_factors = instruction.wgt_factors if isinstance(instruction, Gemm) else (0, 0)
        factors = instruction.dst_factors, instruction.src_factors, wgt_factors
        for i in range(instruction.iter_out):
            for j in range(instruction.iter_in):
                for uop in zip(*columns, strict=True):
                    dst, src, wgt = (index + i * out + j * inner for index, (out, inner) in zip(uop, factors, strict=True))
                    if isinstance(instruction, Alu):
                        self._alu(instruction, dst, src)
                    else:
                        self._gemm(instruction, dst, src, wgt)

    def _gemm(self, gemm: Gemm, dst: int, src: int, wgt: int) -> None:
        acc = self.sram[Memory.ACC][dst]
        block = range(self.config.block)
        for b in range(self.config.batch):
            for o in block:
                products = (
                    0 if gemm.reset else sum(self.sram[Memory.INP][src][b][k] * self.sram[Memory.WGT][wgt][o][k] for k in block)
                )
                acc[b][o] = 0 if gemm.reset else wrap(acc[b][o] + products)
        if not gemm.reset:
            self.sram[Memory.OUT][dst] = [list(row) for row in acc]

    def _alu(self, alu: Alu, dst: int, src: int) -> None:
        acc = self.sram[Memory.ACC][dst]
        for b in range(self.config.batch):
            for o in range(self.config.block):
                x, y = acc[b][o], self.sram[Memory.ACC][src][b][o] if alu.imm is None else alu.imm
                match alu.op:
                    case AluOp.MIN:
                        value = min(x, y)
                    case AluOp.MAX:
                        value = max(x, y)
                    case AluOp.ADD:
                        value = x + y
                    case AluOp.MUL:
                        value = x * y
                    case AluOp.SHR:
                        value = x >> y if y >= 0 else x << -y
                acc[b][o] = wrap(value)
        self.sram[Memory.OUT][dst] = [list(row) for row in acc]
