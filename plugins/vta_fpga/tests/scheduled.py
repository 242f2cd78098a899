"""Convolutions scheduled by core primitives, and regions of loop programs run as streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime import arith
from inlaid_vta_fpga.compiler.intrinsics import intrinsics
from inlaid_vta_fpga.compiler.schedule import accumulate_in_place
from inlaid_vta_fpga.compiler.stream import Scheduled, Stream, lower_region
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.simulators.functional import Functional

Array = npt.NDArray[np.generic]
GEMM = intrinsics(16)[0]


@dataclass(frozen=True)
class Shape:
    """A convolution: blocks of input and output channels, side of the image, of the kernel, stride, padding; lanes of a block."""

    ci: int = 2
    co: int = 2
    side: int = 6
    kernel: int = 3
    stride: int = 1
    pad: int = 1
    lanes: int = 16

    @property
    def out(self) -> int:
        """Side of the result."""
        return (self.side + 2 * self.pad - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Tiling:
    """Tiles of output blocks, rows and input blocks, and how many virtual threads share the output blocks."""

    co: int = 1
    rows: int = 1
    ci: int = 1
    threads: int = 1


def convolution(shape: Shape) -> ir.LoopProgram:
    """acc >> 5 between 0 and 127, as int8."""
    ci, co, side, kernel, stride, pad, lanes, out = *vars(shape).values(), shape.out
    x = te.placeholder((ci, side, side, lanes), "int8", "x")
    w = te.placeholder((co, ci, kernel, kernel, lanes, lanes), "int8", "w")
    wide = side + 2 * pad
    padded = x
    if pad:

        def element(c: arith.Var, i: arith.Var, j: arith.Var, lane: arith.Var) -> ir.Expr:
            inside = (i >= pad) & (i < side + pad) & (j >= pad) & (j < side + pad)
            return te.select(inside, x[c, i - pad, j - pad, lane], te.const(0, "int8"))

        padded = te.compute((ci, wide, wide, lanes), element, "padded")
    axes = rc, ky, kx, k = tuple(te.reduce_axis(n, name) for n, name in ((ci, "ci"), (kernel, "ky"), (kernel, "kx"), (lanes, "k")))

    def product(c: arith.Var, i: arith.Var, j: arith.Var, o: arith.Var) -> ir.Expr:
        read = padded[rc, i * stride + ky, j * stride + kx, k]
        return te.sum_(read.astype("int32") * w[c, rc, ky, kx, o, k].astype("int32"), axes)

    conv = te.compute((co, out, out, lanes), product, "conv")
    clip = te.compute((co, out, out, lanes), lambda *at: te.minimum(te.maximum(conv[at] >> 5, 0), 127), "clip")
    return lower([te.compute((co, out, out, lanes), lambda *at: clip[at].astype("int8"), "y")], [x, w], "convolution")


def scheduled(shape: Shape, tiling: Tiling) -> ir.LoopProgram:
    """Output tiles, in each a loop over tiles of input blocks: loads, then one product."""
    s = Schedule(convolution(shape), intrinsics(shape.lanes))
    for buffer in ("clip", "conv"):
        s.set_scope(buffer, "vta.acc")
    co, i, j, lane = s.loops("y")
    outer, inner = s.split(co, (None, tiling.co))
    thread = None
    if tiling.threads > 1:
        outer, thread = s.split(outer, (None, tiling.threads))
    rows, row = s.split(i, (None, tiling.rows))
    s.reorder(outer, rows, *([thread] if thread is not None else []), inner, row, j, lane)
    s.compute_at("clip", thread or rows)
    s.compute_at("conv", thread or rows)
    inside = s.loops("conv")[2 if thread is None else 3 :]
    start = next(n for n, loop in enumerate(inside) if loop.name == "ci")
    *spatial, o, ci = inside[: start + 1]
    *window, k = inside[start + 1 :]
    ci, part = s.split(ci, (None, tiling.ci))
    s.reorder(ci, part, *window, *spatial, o, k)
    s.decompose_reduction("conv", ci)
    if shape.pad:
        s.set_scope("padded", "vta.inp")
        s.compute_at("padded", ci)
    else:
        s.compute_at(s.cache_read("conv", "x", "vta.inp"), ci)
    s.compute_at(s.cache_read("conv", "w", "vta.wgt"), ci)
    s.tensorize(o, "vta.gemm")
    if thread is not None:
        s.vthread(thread, ci)
    program = accumulate_in_place(s.program, ("conv", "clip"))
    return lower_vthreads(compact_buffers(simplify_program(flatten_blocks(program))))


class Region:
    """Programs that read and write arrays by number: `calls` are pairs of a program and the numbers of its parameters."""

    def __init__(self, calls: Sequence[tuple[ir.LoopProgram, Sequence[int]]], config: Config | None = None) -> None:
        self.config = config or Config()
        self.calls = calls
        self.address: dict[int, int] = {}
        self.end = PAGE_BYTES
        for program, numbers in calls:
            for buffer, number in zip(program.params, numbers, strict=True):
                if number not in self.address:
                    self.address[number] = self.end
                    size = prod(static_shape(buffer)) * buffer.dtype.bytes
                    self.end += -(-size // PAGE_BYTES) * PAGE_BYTES

    def lower(self, **options: Any) -> Stream:
        """The region's stream."""
        layers = [
            Scheduled(f"layer{n}", program, tuple(self.address[number] for number in numbers))
            for n, (program, numbers) in enumerate(self.calls)
        ]
        return lower_region(layers, self.config, self.end, **options)

    def image(self, stream: Stream, arrays: dict[int, Array]) -> tuple[npt.NDArray[np.uint8], int]:
        """DRAM, and the address of the instructions in it."""
        uops = stream.uops.tobytes()
        program = Encoding(self.config).encode_program(stream.instructions)
        at = self.end + -(-len(uops) // PAGE_BYTES) * PAGE_BYTES
        dram = np.zeros(at + len(program), np.uint8)
        for address, data in [(self.end, uops), (at, program), *((self.address[n], a.tobytes()) for n, a in arrays.items())]:
            dram[address : address + len(data)] = np.frombuffer(data, np.uint8)
        return dram, at

    def run(self, stream: Stream, arrays: dict[int, Array]) -> dict[int, Array]:
        """All arrays after the stream ran on the functional simulator."""
        dram, at = self.image(stream, arrays)
        Functional(self.config).run(dram, at, len(stream.instructions))
        buffers = {n: buffer for program, numbers in self.calls for buffer, n in zip(program.params, numbers, strict=True)}
        return {
            n: dram[self.address[n] :][: prod(static_shape(b)) * b.dtype.bytes].view(str(b.dtype)).reshape(static_shape(b))
            for n, b in buffers.items()
        }

    def expected(self, arrays: dict[int, Array], semantics: Sequence[ir.LoopProgram]) -> dict[int, Array]:
        """All arrays after the interpreter ran programs that compute the same."""
        values = dict(arrays)
        for program, (_, numbers) in zip(semantics, self.calls, strict=True):
            results = interp.run(program, [values[n] for n in numbers[: len(program.inputs)]])
            values |= dict(zip(numbers[len(program.inputs) :], results, strict=True))
        return values


def static_shape(buffer: ir.Buffer) -> tuple[int, ...]:
    """A static shape."""
    return tuple(int(str(dim)) for dim in buffer.shape)
