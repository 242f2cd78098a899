"""Streams of whole convolution layers, scheduled by hand in two threads: single layers to compare simulators on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inlaid_vta_fpga.isa.config import Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Flags, Gemm, Instruction, Load, Store, Uop

from .core_streams import STORE_FLAGS, SYNC, output, random_values
from .image import Image


@dataclass(frozen=True)
class Convolution:
    """A convolution of stride 1 and odd kernel with padding that keeps the size; channels are blocks of 16.

    rows, columns: output rows and output channel blocks of a tile. Tiles alternate between two halves of the buffers.
    """

    height: int
    width: int
    inputs: int
    outputs: int
    kernel: int
    rows: int
    columns: int

    @property
    def tile(self) -> int:
        """Accumulators of a tile."""
        return self.rows * self.width * self.columns

    @property
    def micro_ops(self) -> int:
        """GEMM micro-ops of the layer."""
        return self.height * self.width * self.inputs * self.outputs * self.kernel**2

    def stream(self, image: Image) -> list[Instruction]:
        """The layer: products over blocks of input channels, SHR, MAX, MIN, STORE. INP and WGT of the next step load meanwhile."""
        taps, pad = self.kernel**2, self.kernel // 2
        line = self.width + 2 * pad
        inp_half, wgt_half = (self.rows + 2 * pad) * line, taps * self.columns
        inp = image.base(Memory.INP, random_values((self.inputs, self.height, self.width, 16), "int8"))
        wgt = image.base(Memory.WGT, random_values((self.outputs, self.inputs, taps, 16, 16), "int8"))
        output_base = output(image, self.outputs * self.height * self.width)
        # Kernels: each half of ACC with each half of INP and WGT, then each half of ACC for the ALU.
        count = taps * self.width
        uops = [
            Uop(acc * self.tile + x, half * inp_half + dy * line + dx + x, half * wgt_half + dy * self.kernel + dx)
            for acc in range(2)
            for half in range(2)
            for dy in range(self.kernel)
            for dx in range(self.kernel)
            for x in range(self.width)
        ]
        uops += [Uop(acc * self.tile, acc * self.tile) for acc in range(2)]
        instructions: list[Instruction] = [Load(Memory.UOP, 0, image.uops(*uops), 1, len(uops), len(uops))]
        step, steps = 0, self.inputs * self.outputs // self.columns * self.height // self.rows
        for tile, (block, row) in enumerate(self._tiles()):
            acc, tile_uop = tile % 2, 4 * count + tile % 2
            points, factors = (self.columns, self.rows * self.width), (self.rows * self.width, 1)
            instructions.append(Gemm(tile_uop, tile_uop + 1, *points, factors, reset=True, flags=Flags(pop_next=tile >= 2)))
            for channel in range(self.inputs):
                half, top, bottom = step % 2, max(0, row - pad), min(self.height, row + self.rows + pad)
                above, below = max(0, pad - row), max(0, row + self.rows + pad - self.height)
                first = inp + (channel * self.height + top) * self.width
                pads = above, below, pad, pad
                pop = Flags(pop_next=step >= 2)
                rows = (bottom - top, self.width, self.width)
                instructions.append(Load(Memory.INP, half * inp_half, first, *rows, *pads, pop))
                source = wgt + (block * self.inputs + channel) * taps
                rows = (self.columns, taps, self.inputs * taps)
                instructions.append(Load(Memory.WGT, half * wgt_half, source, *rows, flags=Flags(push_next=True)))
                kernel = (2 * acc + half) * count
                flags = Flags(pop_prev=True, push_prev=step < steps - 2)
                src, weights = (0, line), (taps, 0)
                loops = (self.columns, self.rows)
                instructions.append(Gemm(kernel, kernel + count, *loops, (factors[0], self.width), src, weights, flags=flags))
                step += 1
            for op, imm in ((AluOp.SHR, 7), (AluOp.MAX, -128), (AluOp.MIN, 127)):
                last = Flags(push_next=op is AluOp.MIN)
                instructions.append(Alu(op, tile_uop, tile_uop + 1, *points, factors, factors, imm, last))
            target = output_base + (block * self.height + row) * self.width
            size = (self.columns, self.rows * self.width, self.height * self.width)
            instructions.append(Store(acc * self.tile, target, *size, STORE_FLAGS))
        return [*instructions, *[SYNC] * min(2, tile + 1)]

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """First output channel block and first row of each tile."""
        for block in range(0, self.outputs, self.columns):
            for row in range(0, self.height, self.rows):
                yield block, row


SMALL_LAYERS = {
    "3x3 8x8 32-32": Convolution(8, 8, 2, 2, 3, 8, 2),
    "3x3 14x14 48-64": Convolution(14, 14, 3, 4, 3, 7, 2),
    "1x1 14x14 128-64": Convolution(14, 14, 8, 4, 1, 14, 2),
    "3x3 7x7 64-128": Convolution(7, 7, 4, 8, 3, 7, 8),
    "5x5 12x10 16-16": Convolution(12, 10, 1, 1, 5, 4, 1),
}
"""Kernel, size, input and output channels."""
RESNET_LAYERS = {
    "C2": Convolution(56, 56, 4, 4, 3, 4, 4),
    "C5": Convolution(28, 28, 8, 8, 3, 7, 4),
    "C8": Convolution(14, 14, 16, 16, 3, 7, 8),
    "C11": Convolution(7, 7, 32, 32, 3, 7, 16),
}
"""Layers of ResNet-18 with stride 1."""
