"""Hand-written streams for the default configuration: what a core must do, one idea each, with overlap where tokens allow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Flags, Gemm, Instruction, Load, Store, Uop

from .image import Image

PUSH_NEXT, POP_PREV, POP_NEXT = Flags(push_next=True), Flags(pop_prev=True), Flags(pop_next=True)
STORE_FLAGS = Flags(pop_prev=True, push_prev=True)
SYNC = Load(Memory.UOP, flags=POP_NEXT)
"""Waits for the store before it."""

StreamOf = Callable[[Image], list[Instruction]]


def random_values(shape: tuple[int, ...], dtype: str, seed: int = 7) -> npt.NDArray[np.signedinteger]:
    """All values of a dtype, extremes included."""
    info = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    values.reshape(-1)[:2] = info.min, info.max
    return values


def output(image: Image, elements: int) -> int:
    """A dram_base for results; bytes of 0x5a before the run."""
    return image.base(Memory.OUT, np.full((elements, 16), 0x5A, np.int8))


def store_accumulators(image: Image, count: int, start: int = 0) -> list[Instruction]:
    """Store accumulators as four byte planes: STORE, SHR 8, STORE, ..."""
    output_base = output(image, 4 * count)
    uops = image.uops(Uop(start, start))
    instructions: list[Instruction] = [Load(Memory.UOP, 2047, uops, 1, 1, 1)]
    for plane in range(4):
        shift = Alu(AluOp.SHR, 2047, 2048, 1, count, (0, 1), (0, 1), 8 if plane else 0, PUSH_NEXT)
        instructions += [shift, Store(start, output_base + plane * count, 1, count, count, STORE_FLAGS), SYNC]
    return instructions


def pads_of_acc(image: Image) -> list[Instruction]:
    """Zero rows and columns around rows with a stride; bursts of 8 beats per element, across a 2 KiB block."""
    acc = image.base(Memory.ACC, random_values((120, 16), "int32"))
    loads: list[Instruction] = [
        Load(Memory.ACC, 3, acc + 27, 4, 5, 9, 2, 1, 1, 2),
        Load(Memory.ACC, 59, acc, 2, 33, 50),
        Load(Memory.ACC, 125, acc, 1, 1, 1, 15, 15, 15, 15),
        Load(Memory.ACC, 1086, acc, 3, 1, 1, 0, 0, 0, 3),
        Load(Memory.ACC, 1098, acc, 3, 2, 0, 0, 0, 3, 0),
    ]
    return [*loads, *store_accumulators(image, 1110, 3)]


def pads_of_inp(image: Image) -> list[Instruction]:
    """INP is read back by a product with the identity."""
    inp = image.base(Memory.INP, random_values((300, 16), "int8"))
    wgt = image.base(Memory.WGT, np.eye(16, dtype=np.int8))
    uops = image.uops(Uop(0, 0, 0))
    return [
        Load(Memory.WGT, 1023, wgt, 1, 1, 1),
        Load(Memory.INP, 0, inp + 1, 6, 14, 16, 1, 1, 1, 1),
        Load(Memory.INP, 128, inp, 1, 300, 300, flags=PUSH_NEXT),
        Load(Memory.UOP, 0, image.uops(Uop(0, 0, 1023)), 1, 1, 1, flags=POP_PREV),
        Gemm(0, 1, 1, 428, (0, 1), (0, 1), reset=True),
        Load(Memory.UOP, 1, uops, 1, 1, 1),
        Gemm(0, 1, 4, 107, (107, 1), (107, 1)),
        *store_accumulators(image, 428),
    ]


def pads_of_wgt(image: Image) -> list[Instruction]:
    """WGT is read back by products with unit vectors."""
    wgt = image.base(Memory.WGT, random_values((20, 16, 16), "int8"))
    inp = image.base(Memory.INP, np.eye(16, dtype=np.int8))
    return [
        Load(Memory.INP, 2032, inp, 1, 16, 16),
        Load(Memory.WGT, 1000, wgt + 1, 3, 2, 4, 1, 1, 1, 1, flags=PUSH_NEXT),
        Load(Memory.UOP, 5, image.uops(Uop(0, 2032, 1000)), 1, 1, 1, flags=POP_PREV),
        Gemm(5, 6, 20, 16, (16, 1), (0, 1), (1, 0), reset=True),
        Gemm(5, 6, 20, 16, (16, 1), (0, 1), (1, 0)),
        *store_accumulators(image, 320),
    ]


def loops_of_gemm(image: Image) -> list[Instruction]:
    """Three levels of loops with factors of all indices; accumulators that return; a reset of a part; int32 that wraps."""
    inp = image.base(Memory.INP, random_values((64, 16), "int8", 1))
    wgt = image.base(Memory.WGT, random_values((64, 16, 16), "int8", 2))
    acc = image.base(Memory.ACC, random_values((64, 16), "int32", 3))
    uops = image.uops(*(Uop(4 * number, 7 * number % 8, 9 * number % 16) for number in range(5)))
    return [
        Load(Memory.INP, 0, inp, 1, 64, 64),
        Load(Memory.WGT, 0, wgt, 8, 8, 8, flags=PUSH_NEXT),
        Load(Memory.ACC, 0, acc, 1, 64, 64),
        Load(Memory.UOP, 101, uops, 1, 5, 5, flags=POP_PREV),
        Gemm(101, 106, 7, 3, (3, 1), (4, 13), (1, 16)),
        Gemm(102, 105, 2, 5, (11, 1), (0, 0), (2, 3), reset=True),
        Gemm(101, 105, 40, 2, (0, 20), (1, 2), (0, 3)),
        *store_accumulators(image, 64),
    ]


def odd_uops(image: Image) -> list[Instruction]:
    """Micro-ops at odd DRAM and SRAM indices, of odd number, across a 2 KiB block: both halves of a beat go to both banks."""
    acc = image.base(Memory.ACC, random_values((64, 16), "int32"))
    words = image.uops(*(Uop(number * 5 % 64, number * 3 % 64) for number in range(600)))
    loads = [(0, 0, 4), (5, 1, 1), (7, 2, 3), (10, 3, 2), (12, 5, 5), (18, 7, 4), (23, 11, 560), (583, 2, 2)]
    return [
        Load(Memory.ACC, 0, acc, 1, 64, 64),
        *(Load(Memory.UOP, sram, words + dram, 1, size, size) for sram, dram, size in loads),
        *(Alu(AluOp.ADD, sram, sram + size) for sram, _, size in loads),
        *store_accumulators(image, 64),
    ]


def alu(op: AluOp, imm: int | None) -> StreamOf:
    """One operation over all pairs of 16 elements. Shifts by a tensor have operands of 0 to 15."""

    def stream(image: Image) -> list[Instruction]:
        values = random_values((16, 16), "int32")
        values[1:3] = [[0], [-1]]
        other = random_values((16, 16), "int32", 9)
        acc = image.base(Memory.ACC, np.concatenate([values, other & 15 if op is AluOp.SHR else other]))
        return [
            Load(Memory.ACC, 0, acc, 1, 32, 32),
            Load(Memory.ACC, 32, acc, 1, 16, 16),
            Load(Memory.UOP, 0, image.uops(Uop(0, 16), Uop(32, 17)), 1, 2, 2),
            Alu(op, 0, 2, 4, 4, (4, 1), (1, 4) if op is not AluOp.SHR else (2, 2), imm),
            *store_accumulators(image, 48),
        ]

    return stream


def dependent_alu(image: Image) -> list[Instruction]:
    """Each micro-op reads what the one before wrote, in both forms."""
    acc = image.base(Memory.ACC, random_values((16, 16), "int32"))
    return [
        Load(Memory.ACC, 0, acc, 1, 16, 16),
        Load(Memory.UOP, 0, image.uops(Uop(1, 0), Uop(2, 1), Uop(2, 2), Uop(3, 2)), 1, 4, 4),
        Alu(AluOp.ADD, 0, 4, 3, 4, (4, 1), (4, 1)),
        Alu(AluOp.ADD, 0, 4, 1, 5, imm=-77),
        Alu(AluOp.SHR, 0, 1, 1, 7, imm=1),
        *store_accumulators(image, 16),
    ]


def strided_stores(image: Image) -> list[Instruction]:
    """Rows with a stride, rows that overlap, and rows beyond a burst of 128 elements that start inside of a 2 KiB block."""
    acc = image.base(Memory.ACC, random_values((512, 16), "int32"))
    output_base = output(image, 2500)
    return [
        Load(Memory.ACC, 0, acc, 1, 512, 512),
        Load(Memory.UOP, 0, image.uops(Uop(0, 0)), 1, 1, 1),
        Alu(AluOp.ADD, 0, 1, 32, 16, (16, 1), (16, 1), 1, PUSH_NEXT),
        Store(0, output_base + 3, 5, 7, 11, POP_PREV),
        Store(35, output_base + 101, 1, 400, 0),
        Store(64, output_base + 600, 3, 6, 2),
        Store(100, output_base + 700, 2, 200, 300),
        Store(9, output_base + 2000, 4, 1, 127),
        Store(0, output_base, 0, 0, 0, Flags(push_prev=True)),
        SYNC,
    ]


def double_buffered(tiles: int = 9, rows: int = 24, depth: int = 2) -> StreamOf:
    """Tiles in two threads: each loads, multiplies, shifts and stores in its own half of the buffers."""

    def stream(image: Image) -> list[Instruction]:
        inp = image.base(Memory.INP, random_values((tiles * depth * rows, 16), "int8"))
        wgt = image.base(Memory.WGT, random_values((tiles * depth, 16, 16), "int8"))
        output_base = output(image, tiles * rows)
        instructions: list[Instruction] = [Load(Memory.UOP, 0, image.uops(Uop(0, 0, 0), Uop(rows, depth * rows, depth)), 1, 2, 2)]
        for tile in range(tiles):
            half, old = tile % 2, tile >= 2
            instructions += [
                Load(Memory.INP, half * depth * rows, inp + tile * depth * rows, depth, rows, rows, flags=Flags(pop_next=old)),
                Load(Memory.WGT, half * depth, wgt + tile * depth, 1, depth, depth, flags=PUSH_NEXT),
                Gemm(half, half + 1, 1, rows, (0, 1), reset=True, flags=Flags(pop_prev=True, pop_next=old)),
                Gemm(half, half + 1, depth, rows, (0, 1), (rows, 1), (1, 0), flags=Flags(push_prev=tile < tiles - 2)),
                Alu(AluOp.SHR, half, half + 1, 1, rows, (0, 1), (0, 1), 8),
                Alu(AluOp.MAX, half, half + 1, 1, rows, (0, 1), (0, 1), -100),
                Alu(AluOp.MIN, half, half + 1, 1, rows, (0, 1), (0, 1), 100, PUSH_NEXT),
                Store(half * rows, output_base + tile * rows, 1, rows, rows, STORE_FLAGS),
            ]
        return [*instructions, *[SYNC] * min(2, tiles)]

    return stream


def token_bursts(image: Image) -> list[Instruction]:
    """255 tokens wait in each queue, by no-ops of each module; more instructions than a command queue holds."""
    instructions: list[Instruction] = []
    for _ in range(3):
        instructions += [
            *[Load(Memory.INP, flags=PUSH_NEXT)] * 255,
            *[Load(Memory.UOP, flags=Flags(True, False, True, True))] * 255,
        ]
        instructions += [*[Load(Memory.INP, flags=POP_NEXT)] * 255, *[Store(flags=STORE_FLAGS)] * 255]
        instructions += [*[SYNC] * 255]
    return [*instructions, *dependent_alu(image)]


STREAMS: dict[str, StreamOf] = {
    stream.__name__: stream
    for stream in (
        pads_of_acc, pads_of_inp, pads_of_wgt, loops_of_gemm, odd_uops, dependent_alu, strided_stores, token_bursts,
    )
} | {
    "double_buffered": double_buffered(),
    "double_buffered_deep": double_buffered(5, 100, 7),
    **{f"{op.name.lower()}_{imm}": alu(op, imm) for op in (AluOp.MIN, AluOp.MAX, AluOp.ADD) for imm in (None, -0x8000, 0, 0x7FFF)},
    **{f"shr_{imm}": alu(AluOp.SHR, imm) for imm in (None, -16, -1, 0, 1, 8, 15)},
}  # fmt: skip
