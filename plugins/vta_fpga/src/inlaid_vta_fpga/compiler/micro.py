"""Translation of loop nests to GEMM and ALU instructions with loop registers and micro-ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from inlaid.tensor import ir
from inlaid_runtime.errors import ScheduleError
from inlaid_vta_fpga.compiler.affine import Affine, Env, Loops
from inlaid_vta_fpga.compiler.fold import Dim, fold
from inlaid_vta_fpga.compiler.tasks import Access, Indices, Step, Tile
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Gemm, Uops

OPERANDS = (Memory.ACC, Memory.INP, Memory.WGT)
"""Memories that the micro-op fields dst, src and wgt index. For the ALU, src indexes ACC."""


def resident_uops(config: Config) -> int:
    """Return the capacity of the UOP memory in micro-ops, at most 2048, the capacity of the Chisel core."""
    return min(2048, config.depth(Memory.UOP))


class Operation:
    """A loop nest of micro-ops over elements of tiles; implements `Plan`.

    places, buffers: element index and buffer of each operand, the destination first. op: operation of the ALU, None for GEMM. A
    GEMM with only a destination is a reset. imm: second operand of the ALU if it is an immediate.
    """

    def __init__(
        self,
        config: Config,
        loops: Loops,
        places: Sequence[Affine],
        buffers: Sequence[ir.Buffer],
        op: AluOp | None = None,
        imm: int | None = None,
    ) -> None:
        self.buffers, self._places = tuple(buffers), places
        self._memories = OPERANDS[: len(places)] if op is None else (Memory.ACC,) * len(places)
        self._depths = [
            min(config.depth(memory), config.depth(field)) for memory, field in zip(self._memories, OPERANDS, strict=False)
        ]
        bits = [config.index_bits(memory) for memory in OPERANDS]
        self._lows = (0, bits[0], bits[0] + bits[1])
        dims = [Dim(extent, tuple(index.inner[n] for index in places)) for n, (_, extent) in enumerate(loops)]
        self._folded = folded = fold(dims, tuple(depth - 1 for depth in self._depths), max(1, resident_uops(config) // 2))
        out, inner = folded.out, folded.inner
        columns = np.array(folded.offsets, np.int64).T
        self._relative = self._word(columns)
        counts = (np.arange(out.extent)[:, None, None], np.arange(inner.extent)[:, None])
        self._touched = [
            np.unique(column + counts[0] * a + counts[1] * b) for column, a, b in zip(columns, out.steps, inner.steps, strict=True)
        ]
        self._kernels: dict[tuple[int, ...], Uops] = {}
        dst, src, wgt = [*zip(out.steps, inner.steps, strict=True), (0, 0), (0, 0)][:3]
        template_loops = 0, len(folded.offsets), out.extent, inner.extent
        self._template: Gemm | Alu
        if op is None:
            self._template = Gemm(*template_loops, dst, src, wgt, reset=len(places) == 1)
        else:
            self._template = Alu(op, *template_loops, dst, dst if len(places) == 1 else src, imm)

    def bind(self, env: Env) -> tuple[int, ...]:
        """Return the first element of each operand, relative to its tile."""
        return tuple(index.at(env) for index in self._places)

    def steps(self, numbers: tuple[int, ...], tiles: Sequence[Tile], source: str) -> Iterator[Step]:
        """Yield GEMM or ALU instructions. Raises `ScheduleError` for an index outside its memory."""
        for start in self._folded.starts:
            first = tuple(number + tile.base + at for number, tile, at in zip(numbers, tiles, start, strict=True))
            if first not in self._kernels:
                for at, touched, depth, tile in zip(first, self._touched, self._depths, tiles, strict=True):
                    if at + touched[0] < 0 or at + touched[-1] >= depth:
                        actual = f"elements {at + touched[0]} to {at + touched[-1]}"
                        raise ScheduleError(f"buffer {tile.buffer}: expected elements below {depth}, found {actual}")
                self._kernels[first] = self._relative + self._word(first)
            operands = zip(self._memories, self._touched, first, strict=True)
            accesses = [_access(memory, n == 0, touched, at) for n, (memory, touched, at) in enumerate(operands)]
            yield Step(self._template, source, tuple(accesses), self._kernels[first])

    def _word(self, indices: Iterable[npt.ArrayLike]) -> Uops:
        """Encode micro-ops as words. The encoding is linear: the word of a sum of indices is the sum of their words."""
        shifted = [np.asarray(index, np.int64) << low for index, low in zip(indices, self._lows, strict=False)]
        total: npt.NDArray[np.int64] = np.sum(shifted, axis=0)
        return (total & 0xFFFFFFFF).astype(np.uint32)


def _access(memory: Memory, write: bool, touched: Indices, base: int) -> Access:
    start, length = int(touched[0]) + base, len(touched)
    contiguous = int(touched[-1]) + base - start + 1 == length
    return Access(memory, write, start if contiguous else base, length, indices=None if contiguous else touched)
