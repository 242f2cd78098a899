"""Random streams: legal ones that exercise every semantic, and hostile ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Gemm, Instruction, Load, Store, Uop

from .image import Image

SMALL = Config(log_batch=1, log_block=2, log_uop_buff=6, log_inp_buff=8, log_wgt_buff=7, log_acc_buff=9)
"""Depths: UOP 16, INP 32, WGT 8, ACC 16. Two rows of four channels."""
OUTPUT = 64
"""Elements of the output buffer."""


@dataclass
class StreamCase:
    """A stream and its memory: all of SRAM is loaded first, then `body` runs."""

    image: Image
    prologue: list[Instruction]
    body: list[Instruction]
    output: int


@st.composite
def legal(draw: st.DrawFn, config: Config = SMALL, max_length: int = 6, uops: int = 0, portable: bool = False) -> StreamCase:
    """A stream that is legal but for hazards and stale OUT elements, in program order.

    max_length: instructions of the body. uops: micro-ops, 0 for a full UOP memory. portable: without MUL and ACC_8BIT.
    """
    image = Image(config)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extremes = draw(st.booleans())
    bases, prologue = {}, []
    for memory in (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT):
        size = config.depth(memory) * config.element_bytes(memory)
        data = random.choice(np.array([127, 128], np.uint8), size) if extremes else random.integers(0, 256, size, np.uint8)
        bases[memory] = image.base(memory, data)
    halves = [int(random.integers(1, 1 << config.index_bits(memory) - 1, endpoint=True)) for memory in _INDEXED]
    uops = uops or config.depth(Memory.UOP)
    bases[Memory.UOP] = image.uops(*(Uop(*(int(random.integers(0, half)) for half in halves)) for _ in range(uops)))
    for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC):
        depth = uops if memory is Memory.UOP else config.depth(memory)
        prologue.append(Load(memory, 0, bases[memory], 1, depth, depth))
    output = image.base(Memory.OUT, np.zeros(OUTPUT * config.element_bytes(Memory.OUT), np.uint8))
    kinds = st.sampled_from(("load", "store", "gemm", "alu"))
    body: list[Instruction] = []
    for kind in draw(st.lists(kinds, min_size=1, max_size=max_length)):
        match kind:
            case "load":
                body.append(draw(_loads(config, bases, portable)))
            case "store":
                body.append(draw(_stores(config, output)))
            case "gemm":
                body.append(draw(_gemms(config, halves, uops)))
            case "alu":
                body.append(draw(_alus(config, halves, uops, portable)))
    return StreamCase(image, list(prologue), body, output)


_INDEXED = (Memory.ACC, Memory.INP, Memory.WGT)


@st.composite
def _loads(draw: st.DrawFn, config: Config, bases: dict[Memory, int], portable: bool) -> Load:
    memory = draw(st.sampled_from((Memory.INP, Memory.WGT, Memory.ACC, *(() if portable else (Memory.ACC_8BIT,)))))
    depth = config.depth(memory)
    y0, y1, x0, x1 = (draw(st.integers(0, 1)) for _ in range(4))
    x = draw(st.integers(0, max(1, depth // 4 - 2)))
    row = x0 + x + x1
    y = draw(st.integers(1, max(1, min(3, depth // row - y0 - y1)))) if row else 1
    total = (y0 + y + y1) * row
    if total > depth:
        y0 = y1 = x0 = x1 = 0
        y, total = 1, x
    stride = draw(st.integers(0, (depth - x) // max(1, y - 1)))
    return Load(memory, draw(st.integers(0, depth - total)), bases[memory], y, x, stride, y0, y1, x0, x1)


@st.composite
def _stores(draw: st.DrawFn, config: Config, output: int) -> Store:
    x = draw(st.integers(0, 4))
    y = draw(st.integers(1, 3))
    stride = draw(st.integers(0, 10))
    return Store(draw(st.integers(0, config.depth(Memory.OUT) - x * y)), output + draw(st.integers(0, 20)), y, x, stride)


@st.composite
def _factors(draw: st.DrawFn, room: int, out: int, inner: int) -> tuple[int, int]:
    """Factors that move an index by at most `room`."""
    first = draw(st.integers(0, room // max(1, out - 1))) if out > 1 else 0
    left = room - first * (out - 1)
    return first, draw(st.integers(0, left // max(1, inner - 1))) if inner > 1 else 0


@st.composite
def _gemms(draw: st.DrawFn, config: Config, halves: list[int], uops: int) -> Gemm:
    begin = draw(st.integers(0, uops - 1))
    end = draw(st.integers(begin + 1, uops))
    loops = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dst, src, wgt = (draw(_factors(config.depth(memory) - half, *loops)) for memory, half in zip(_INDEXED, halves, strict=True))
    return Gemm(begin, end, *loops, dst, src, wgt, draw(st.integers(0, 5)) == 0)


@st.composite
def _alus(draw: st.DrawFn, config: Config, halves: list[int], uops: int, portable: bool) -> Alu:
    begin = draw(st.integers(0, uops - 1))
    end = draw(st.integers(begin + 1, uops))
    loops = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dst = draw(_factors(config.depth(Memory.ACC) - halves[0], *loops))
    src = draw(_factors(config.depth(Memory.ACC) - halves[1], *loops)) if halves[1] <= config.depth(Memory.ACC) else (0, 0)
    op = draw(st.sampled_from([op for op in AluOp if not portable or op is not AluOp.MUL]))
    imm = draw(st.integers(-16, 15) if op is AluOp.SHR else st.one_of(st.none(), st.integers(-0x8000, 0x7FFF)))
    return Alu(op, begin, end, *loops, dst, src, imm)


@st.composite
def hostile(draw: st.DrawFn, config: Config) -> tuple[npt.NDArray[np.uint8], bytes]:
    """Random DRAM and random instructions: half of the fields small, so that some get far."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dram = random.integers(0, draw(st.sampled_from((2, 16, 256))), draw(st.sampled_from((8192, 65536))), np.uint8)
    encoding = Encoding(config)
    words = []
    for _ in range(draw(st.integers(1, 24))):
        opcode = int(random.choice([0, 0, 0, 1, 2, 2, 4, 4, 3, 7], p=[0.14, 0.14, 0.14, 0.14, 0.14, 0.1, 0.1, 0.08, 0.01, 0.01]))
        word = opcode
        for name, low, width in encoding.fields.get(opcode, ()):
            if name != "opcode" and random.random() < (0.1 if name.startswith(("pop", "push")) else 0.8):
                high = 1 << (width if random.random() < 0.2 else min(width, 4))
                word |= (257 if name == "dram_base" and high == 16 else 0) + int(random.integers(0, high)) << low
        words.append(word % 2**128)
    if draw(st.booleans()):
        words.append(3)
    return dram, b"".join(word.to_bytes(16, "little") for word in words)
