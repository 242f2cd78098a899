"""Matrix products and resets as GEMM instructions: loop registers and micro-ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from inlaid.errors import ScheduleError
from inlaid_vta_fpga.compiler.affine import Affine, Env, Loop
from inlaid_vta_fpga.compiler.fold import Dim, Folded, fold
from inlaid_vta_fpga.compiler.tasks import Access, Step, Tile, footprint
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Gemm, Uops

OPERANDS = (Memory.ACC, Memory.INP, Memory.WGT)


class Nest:
    """A nest of loops over micro-ops of indices in `memories`: its micro-ops and footprints relative to a task's first elements."""

    def __init__(self, config: Config, loops: Sequence[Loop], places: Sequence[Affine], memories: Sequence[Memory]) -> None:
        self.places = tuple(places)
        self.memories = tuple(memories)
        self._bits = [config.index_bits(memory) for memory in OPERANDS]
        # The source of the ALU is an accumulator in a field as wide as INP's indices.
        self._depths = [min(config.depth(memory), config.depth(field)) for memory, field in zip(memories, OPERANDS, strict=False)]
        dims = [Dim(loop.extent, tuple(place.inner[n] for place in places)) for n, loop in enumerate(loops)]
        self.folded: Folded = fold(dims, tuple(depth - 1 for depth in self._depths))
        columns = [np.array(column, np.int64) for column in zip(*self.folded.offsets, strict=True)]
        self._relative = self._words(columns)
        self._sets = [self._spread(number, column) for number, column in enumerate(columns)]
        self._ends = [(s.start, s.start + (s.length - 1 if s.indices is None else int(s.indices[-1]))) for s in self._sets]
        self._kernels: dict[tuple[int, ...], Uops] = {}
        self.repeats = prod(dim.extent for dim in dims) != len(self.folded.starts) * self._sets[0].length
        """Whether destinations are written more than once."""

    def bind(self, env: Env) -> tuple[int, ...]:
        """The first element of each operand within its tile."""
        return tuple(place.at(env) for place in self.places)

    def tasks(self, numbers: tuple[int, ...], tiles: Sequence[Tile]) -> Iterator[tuple[Uops, tuple[int, ...]]]:
        """The micro-ops of each instruction, and the first element of each of its operands."""
        for start in self.folded.starts:
            first = tuple(number + tile.base + at for number, tile, at in zip(numbers, tiles, start, strict=True))
            kernel = self._kernels.get(first)
            if kernel is None:
                for at, (low, high), depth, tile in zip(first, self._ends, self._depths, tiles, strict=True):
                    if at + low < 0 or at + high >= depth:
                        raise ScheduleError(
                            f"buffer {tile.buffer}: expected elements within its memory of {depth}, found {at + low} to {at + high}"
                        )
                base = self._words([np.array([at], np.int64) for at in first])
                kernel = self._kernels[first] = self._relative + base
            yield kernel, first

    def access(self, number: int, first: int, write: bool) -> Access:
        """What an instruction touches of an operand."""
        found = self._sets[number]
        return Access(found.memory, write, found.start + first, found.length, indices=found.indices)

    def _words(self, columns: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> Uops:
        """Micro-ops as words; sums of indices are sums of words."""
        found = np.zeros(len(columns[0]), np.int64)
        for column, low in zip(columns, (0, self._bits[0], self._bits[0] + self._bits[1]), strict=False):
            found += column << low
        return (found & 0xFFFFFFFF).astype(np.uint32)

    def _spread(self, number: int, column: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Access:
        out, inner = self.folded.out, self.folded.inner
        found = column[None, None, :] + (np.arange(out.extent) * out.steps[number])[:, None, None]
        found = found + (np.arange(inner.extent) * inner.steps[number])[None, :, None]
        return footprint(self.memories[number], False, found.reshape(-1))


@dataclass(frozen=True, eq=False)
class Product:
    """A nest of matrix products, or of resets where the nest has one operand."""

    nest: Nest

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterator[Step]:
        """GEMM instructions."""
        nest = self.nest
        out, inner = nest.folded.out, nest.folded.inner
        reset = len(nest.places) == 1
        dst, src, wgt = [*zip(out.steps, inner.steps, strict=True), *[(0, 0)] * 2 * reset]
        instruction = Gemm(0, len(nest.folded.offsets), out.extent, inner.extent, dst, src, wgt, reset)
        for kernel, first in nest.tasks(numbers, tiles):
            accesses = tuple(nest.access(number, at, number == 0) for number, at in enumerate(first))
            yield Step(instruction, source, accesses, kernel)
