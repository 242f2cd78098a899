"""Copies between DRAM and SRAM as 2-D LOAD and STORE instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from inlaid.tensor import ir
from inlaid_runtime.errors import ScheduleError
from inlaid_vta_fpga.compiler.affine import Affine, Env, Guard, Loops
from inlaid_vta_fpga.compiler.tasks import Access, Step, Tile
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Load, Store

MAX_FIELD = (1 << 16) - 1
"""Largest size and stride in the fields of an instruction."""
MAX_PAD = 15


class _Dim(NamedTuple):
    """A dimension of a copy. sram, dram: strides in elements. Elements outside [`low`, `high`) are zero padding."""

    extent: int
    sram: int
    dram: int
    low: int
    high: int

    @property
    def pads(self) -> tuple[int, int]:
        return self.low, self.extent - self.high


_UNIT = _Dim(1, 1, 1, 0, 1)


class _Part(NamedTuple):
    """The fields of one instruction, with addresses relative to the first elements of the copy."""

    sram: int
    dram: int
    y_size: int
    x_size: int
    x_stride: int
    pads: tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Transfer:
    """A loop nest that copies elements between DRAM and a memory; implements `Plan`. `sram`, `dram`: element indices; DRAM indices
    are relative to `base`. The numbers of a task are its first SRAM and DRAM elements and the loop ranges without padding."""

    what: str
    config: Config
    memory: Memory
    loops: Loops
    sram: Affine
    dram: Affine
    base: int
    guards: tuple[Guard, ...]
    buffers: tuple[ir.Buffer, ...]
    _cached_parts: dict[tuple[int, ...], list[_Part]] = field(default_factory=dict)

    def bind(self, env: Env) -> tuple[int, ...] | None:
        """Return the numbers of a task; None if it copies no elements."""
        ranges = [(0, extent) for _, extent in self.loops]
        if not all(guard.narrow(env, ranges) for guard in self.guards):
            if self.memory is Memory.OUT:
                return None
            raise self._error("at least one element that is not padding in each copy", "a copy of padding alone")
        return self.sram.at(env), self.base + self.dram.at(env), *(end for item in ranges for end in item)

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterator[Step]:
        """Yield the LOAD or STORE instructions of a task."""
        sram, dram, *ranges = numbers
        key = tuple(ranges)
        if key not in self._cached_parts:
            self._cached_parts[key] = list(self._parts(list(zip(ranges[::2], ranges[1::2], strict=True))))
        for part in self._cached_parts[key]:
            operands = tiles[0].base + sram + part.sram, dram + part.dram, part.y_size, part.x_size, part.x_stride
            item = Store(*operands) if self.memory is Memory.OUT else Load(self.memory, *operands, *part.pads)
            yield transfer_step(self.config, item, source)

    def _parts(self, ranges: Sequence[tuple[int, int]]) -> Iterator[_Part]:
        steps = zip(self.loops, self.sram.inner, self.dram.inner, ranges, strict=True)
        dims = [_Dim(extent, sram, dram, *ends) for (_, extent), sram, dram, ends in steps]
        start = 0
        if self.memory is Memory.OUT:  # STORE cannot pad: drop the elements that the guards exclude
            start = sum(dim.sram * dim.low for dim in dims)
            dims = [_Dim(dim.high - dim.low, dim.sram, dim.dram, 0, dim.high - dim.low) for dim in dims]
        first = sum(dim.dram * low for dim, (low, _) in zip(dims, ranges, strict=True))
        dims = _merged(dims)
        row = dims.pop() if dims and (dims[-1].sram, dims[-1].dram) == (1, 1) else _UNIT
        by_rows = dims and dims[-1].sram == row.extent and 0 < dims[-1].dram <= MAX_FIELD
        column = dims.pop() if by_rows else _UNIT
        y, x, pads = column.high - column.low, row.high - row.low, (*column.pads, *row.pads)
        if any(any(dim.pads) for dim in dims) or (any(pads) and self.memory is Memory.WGT):
            raise self._error("padding in the two innermost dimensions of an activation", f"dimensions {[*dims, column, row]}")
        if max(pads) > MAX_PAD or max(y, x) > MAX_FIELD:
            raise self._error(
                f"padding of at most {MAX_PAD} a side, {MAX_FIELD} rows and columns", f"padding {pads}, {y} rows of {x}"
            )
        for position in product(*(range(dim.extent) for dim in dims)):
            sram, dram = (sum(dim[n] * step for dim, step in zip(dims, position, strict=True)) for n in (1, 2))
            yield _Part(start + sram, first + dram, y, x, column.dram if y > 1 else x, pads)

    def _error(self, expected: str, actual: str) -> ScheduleError:
        remedy = "tile in rows and columns that divide the image, with a halo within 15"
        return ScheduleError(f"{self.what}: expected {expected}, found {actual}", remedy=remedy)


def _merged(dims: list[_Dim]) -> list[_Dim]:
    """Sort dimensions from outermost to innermost in SRAM and merge contiguous dimensions."""
    merged: list[_Dim] = []
    for dim in sorted((dim for dim in dims if dim.extent > 1), key=lambda dim: -dim.sram):
        outer = merged[-1] if merged else _UNIT
        contiguous = bool(merged) and outer[1:3] == (dim.sram * dim.extent, dim.dram * dim.extent)
        if contiguous and not any(dim.pads) and max(outer.pads) * dim.extent <= MAX_PAD:
            merged.pop()
            dim = _Dim(outer.extent * dim.extent, dim.sram, dim.dram, outer.low * dim.extent, outer.high * dim.extent)
        merged.append(dim)
    return merged


def transfer_step(config: Config, item: Load | Store, source: str) -> Step:
    """Return the step of a LOAD or STORE."""
    memory = item.memory if isinstance(item, Load) else Memory.OUT
    load, unit = memory is not Memory.OUT, config.element_bytes(memory) // config.element_bytes(Memory.INP)
    rows, length = (1, item.y_size * item.x_size) if item.x_stride == item.x_size else (item.y_size, item.x_size)
    on_chip = Access(memory if load else Memory.ACC, load, item.sram_base, item.sram_size)
    return Step(item, source, (on_chip, Access(None, not load, item.dram_base * unit, length * unit, rows, item.x_stride * unit)))
