"""Binary encoder and decoder for instructions (128 bits, little-endian) and micro-ops (32 bits)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from inlaid_runtime.errors import InlaidError
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Store, Uop, Uops

LOAD, STORE, GEMM, FINISH, ALU = range(5)
"""Opcodes, bits 0 to 2."""

Field = tuple[str, int, int]
"""Field of an encoding: name, lowest bit, width in bits."""


class EncodingError(InlaidError):
    """Raised for an instruction with a value that does not fit its field, and for bytes that do not encode an instruction."""


_DAMAGED = "the stream is damaged or has another encoding: compile it again"


class Encoding:
    """The binary encoding for one configuration. `fields`: fields of each opcode as (name, lowest bit, width). They do not
    overlap."""

    def __init__(self, config: Config) -> None:
        self.config = config
        uop, wgt, inp, acc = (config.index_bits(memory) for memory in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC))
        self.uop_fields: tuple[Field, ...] = (("dst", 0, acc), ("src", acc, inp), ("wgt", acc + inp, wgt))
        common: list[Field] = [("opcode", 0, 3), ("pop_prev", 3, 1), ("pop_next", 4, 1), ("push_prev", 5, 1), ("push_next", 6, 1)]
        memory: tuple[Field, ...] = (
            *common, ("memory", 7, 3), ("sram_base", 10, 16), ("dram_base", 26, 32), ("y_size", 64, 16), ("x_size", 80, 16),
            ("x_stride", 96, 16), ("y_pad_0", 112, 4), ("y_pad_1", 116, 4), ("x_pad_0", 120, 4), ("x_pad_1", 124, 4),
        )  # fmt: skip
        loops = (("reset", 1), ("uop_begin", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14))
        factors = (("dst_factor_out", acc), ("dst_factor_in", acc))
        gemm = (*factors, ("src_factor_out", inp), ("src_factor_in", inp), ("wgt_factor_out", wgt), ("wgt_factor_in", wgt))
        # The ALU's second operand is in ACC, but its factors have the width of INP's: the default has equal depths.
        alu = (*factors, ("src_factor_out", inp), ("src_factor_in", inp), ("op", 3), ("use_imm", 1), ("imm", 16))
        self.fields: dict[int, tuple[Field, ...]] = {
            LOAD: memory,
            STORE: memory,
            GEMM: (*common, *_packed(7, loops), *_packed(64, gemm)),
            FINISH: tuple(common),
            ALU: (*common, *_packed(7, loops), *_packed(64, alu)),
        }

    def mask(self, opcode: int) -> int:
        """Return a mask of the instruction bits that belong to fields of `opcode`."""
        return sum(((1 << width) - 1) << low for _, low, width in self.fields[opcode])

    def encode(self, instruction: Instruction) -> bytes:
        """Encode an instruction in 16 bytes; unused bits are 0. Raises `EncodingError` for a value that does not fit its field."""
        opcode, values = _values(instruction)
        word = 0
        for name, low, width in self.fields[opcode]:
            value = values[name]
            if not 0 <= value < 1 << width:
                raise EncodingError(
                    f"expected {name} of {width} bits, found {value} in {instruction}",
                    remedy="split the work into smaller instructions",
                )
            word |= value << low
        return word.to_bytes(INSTRUCTION_BYTES, "little")

    def decode(self, data: bytes) -> Instruction:
        """Decode 16 bytes to an instruction; unused bits are ignored. Raises `EncodingError` for an unknown opcode, memory or ALU
        operation."""
        if len(data) != INSTRUCTION_BYTES:
            raise EncodingError(f"expected {INSTRUCTION_BYTES} bytes per instruction, found {len(data)}", remedy=_DAMAGED)
        word = int.from_bytes(data, "little")
        opcode = word & 7
        if opcode not in self.fields:
            raise EncodingError(f"expected an opcode from 0 to 4, found {opcode}", remedy=_DAMAGED)
        value = {name: word >> low & (1 << width) - 1 for name, low, width in self.fields[opcode]}
        flags = Flags(*(bool(value[name]) for name in ("pop_prev", "pop_next", "push_prev", "push_next")))
        if opcode == FINISH:
            return Finish(flags)
        if opcode in (LOAD, STORE):
            return _transfer(opcode, value, flags)
        loops = value["uop_begin"], value["uop_end"], value["iter_out"], value["iter_in"]
        dst, src = ((value[f"{name}_factor_out"], value[f"{name}_factor_in"]) for name in ("dst", "src"))
        if opcode == GEMM:
            return Gemm(*loops, dst, src, (value["wgt_factor_out"], value["wgt_factor_in"]), bool(value["reset"]), flags)
        if value["op"] not in AluOp.__members__.values():
            raise EncodingError(f"expected an ALU operation from 0 to {max(AluOp)}, found {value['op']}", remedy=_DAMAGED)
        imm = (value["imm"] ^ 0x8000) - 0x8000 if value["use_imm"] else None
        return Alu(AluOp(value["op"]), *loops, dst, src, imm, flags)

    def encode_program(self, instructions: Iterable[Instruction]) -> bytes:
        """Encode and concatenate instructions."""
        return b"".join(map(self.encode, instructions))

    def decode_program(self, data: bytes) -> list[Instruction]:
        """Decode a program; the inverse of `encode_program`. Raises `EncodingError` with the instruction number."""
        instructions = []
        for start in range(0, len(data), INSTRUCTION_BYTES):
            try:
                instructions.append(self.decode(data[start : start + INSTRUCTION_BYTES]))
            except EncodingError as error:
                raise EncodingError(f"instruction {start // INSTRUCTION_BYTES}: {error.message}", remedy=error.remedy) from error
        return instructions

    def encode_uops(self, uops: Sequence[Uop]) -> Uops:
        """Encode micro-ops as words. Raises `EncodingError` for an index that exceeds its field."""
        words = np.zeros(len(uops), np.uint32)
        for name, low, width in self.uop_fields:
            column = np.array([getattr(uop, name) for uop in uops], np.int64)
            if len(column) and not 0 <= column.min() <= column.max() < 1 << width:
                raise EncodingError(
                    f"expected {name} of micro-ops of {width} bits, found {column.min()} to {column.max()}",
                    remedy="choose a smaller tile",
                )
            words |= (column << low).astype(np.uint32)
        return words

    def decode_uops(self, words: Uops) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
        """Decode micro-ops to the columns (dst, src, wgt), int64."""
        wide = words.astype(np.int64)
        return tuple(wide >> low & (1 << width) - 1 for _, low, width in self.uop_fields)


def _packed(start: int, sizes: Iterable[tuple[str, int]]) -> list[Field]:
    fields = []
    for name, width in sizes:
        fields.append((name, start, width))
        start += width
    return fields


def _values(instruction: Instruction) -> tuple[int, dict[str, int]]:
    """Return the opcode and the value of every field."""
    flags = instruction.flags
    value: dict[str, int] = {name: int(getattr(flags, name)) for name in ("pop_prev", "pop_next", "push_prev", "push_next")}
    match instruction:
        case Finish():
            opcode = FINISH
        case Load() | Store():
            opcode = LOAD if isinstance(instruction, Load) else STORE
            value["memory"] = int(getattr(instruction, "memory", Memory.OUT))
            if opcode == LOAD and value["memory"] == Memory.OUT:
                raise EncodingError(f"expected a LOAD to a memory other than OUT, found {instruction}", remedy="load into ACC")
            value |= {name: getattr(instruction, name) for name in ("sram_base", "dram_base", "y_size", "x_size", "x_stride")}
            value |= {name: getattr(instruction, name, 0) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
        case Gemm() | Alu():
            opcode = GEMM if isinstance(instruction, Gemm) else ALU
            value |= {name: getattr(instruction, name) for name in ("uop_begin", "uop_end", "iter_out", "iter_in")}
            value["reset"] = int(getattr(instruction, "reset", False))
            factors = (("dst", instruction.dst_factors), ("src", instruction.src_factors))
            for name, (out, inner) in (*factors, ("wgt", getattr(instruction, "wgt_factors", (0, 0)))):
                value |= {f"{name}_factor_out": out, f"{name}_factor_in": inner}
            if isinstance(instruction, Alu):
                imm = instruction.imm
                if imm is not None and not -0x8000 <= imm < 0x8000:
                    raise EncodingError(
                        f"expected an immediate of 16 bits, found {imm} in {instruction}", remedy="use two instructions"
                    )
                value |= {"op": int(instruction.op), "use_imm": int(imm is not None), "imm": (imm or 0) & 0xFFFF}
    value["opcode"] = opcode
    return opcode, value


def _transfer(opcode: int, value: dict[str, int], flags: Flags) -> Instruction:
    if value["memory"] not in Memory.__members__.values():
        raise EncodingError(f"expected a memory from 0 to {max(Memory)}, found {value['memory']}", remedy=_DAMAGED)
    memory = Memory(value["memory"])
    operands = value["sram_base"], value["dram_base"], value["y_size"], value["x_size"], value["x_stride"]
    pads = value["y_pad_0"], value["y_pad_1"], value["x_pad_0"], value["x_pad_1"]
    if opcode == LOAD and memory is not Memory.OUT:
        return Load(memory, *operands, *pads, flags)
    if opcode == STORE and memory is Memory.OUT and not any(pads):
        return Store(*operands, flags)
    raise EncodingError(
        f"expected a LOAD to a memory other than OUT, or a STORE of OUT without padding, found {memory.name}, {pads}",
        remedy=_DAMAGED,
    )
