"""Copies between DRAM and SRAM as 2-D LOAD and STORE instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from inlaid.errors import ScheduleError
from inlaid.tensor import ir
from inlaid_vta_fpga.compiler.affine import Affine, Env, Guard, Loop
from inlaid_vta_fpga.compiler.tasks import Access, Step, Tile
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Load, Store

MOST = (1 << 16) - 1
"""Largest size and stride."""
MOST_PAD = 15


class _Dim(NamedTuple):
    """A dimension of a copy: steps in elements of SRAM and DRAM; elements outside `low` to `high` (exclusive) are zeros."""

    extent: int
    sram: int
    dram: int
    low: int
    high: int

    @property
    def padded(self) -> bool:
        return (self.low, self.high) != (0, self.extent)


class _Part(NamedTuple):
    """One instruction, relative to the first elements of the copy."""

    sram: int
    dram: int
    y_size: int
    x_size: int
    x_stride: int
    pads: tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Transfer:
    """A nest of loops that copies elements: `sram` and `dram` number them. `address` is the byte address of the DRAM buffer, `unit`
    the number of INP elements in one of `memory`. Numbers of a task: its first elements, and the ranges of loops that are not
    padding."""

    what: str
    config: Config
    memory: Memory
    loops: tuple[Loop, ...]
    sram: Affine
    dram: Affine
    address: int
    guards: tuple[Guard, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", {})

    def bind(self, env: Env) -> tuple[int, ...] | None:
        """The numbers of a task; None where nothing is copied."""
        ranges = [(0, loop.extent) for loop in self.loops]
        inside = all(guard.narrow(env, ranges) for guard in self.guards)
        if not inside:
            if self.memory is Memory.OUT:
                return None
            raise self._error("at least one element that is not padding in each copy", "a copy of padding alone")
        return self.sram.at(env), self.dram.at(env), *(end for item in ranges for end in item)

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterator[Step]:
        """LOAD or STORE instructions."""
        sram, dram, *ranges = numbers
        known: dict[tuple[int, ...], list[_Part]] = self.__dict__["_known"]
        parts = known.get(tuple(ranges))
        if parts is None:
            parts = known[tuple(ranges)] = list(self._parts(list(zip(ranges[::2], ranges[1::2], strict=True))))
        base = self.address // self.config.element_bytes(self.memory) + dram
        (tile,) = tiles
        for part in parts:
            place = tile.base + sram + part.sram, base + part.dram, part.y_size, part.x_size, part.x_stride
            yield moved(self.config, Store(*place) if self.memory is Memory.OUT else Load(self.memory, *place, *part.pads), source)

    def _parts(self, ranges: Sequence[tuple[int, int]]) -> Iterator[_Part]:
        dims = [
            _Dim(loop.extent, sram, dram, *ends)
            for loop, sram, dram, ends in zip(self.loops, self.sram.inner, self.dram.inner, ranges, strict=True)
            if loop.extent > 1
        ]
        start = (0, 0)
        if self.memory is Memory.OUT:
            start = sum(dim.sram * dim.low for dim in dims), sum(dim.dram * dim.low for dim in dims)
            dims = [_Dim(dim.high - dim.low, dim.sram, dim.dram, 0, dim.high - dim.low) for dim in dims]
        dims = merged(dims)
        row = _Dim(1, 1, 1, 0, 1)
        if dims and dims[-1].sram == 1 and dims[-1].dram == 1:
            row = dims.pop()
        column = _Dim(1, row.extent, row.extent, 0, 1)
        if dims and dims[-1].sram == row.extent and 0 < dims[-1].dram <= MOST:
            column = dims.pop()
        pads = column.low, column.extent - column.high, row.low, row.extent - row.high
        if any(dim.padded for dim in dims) or (any(pads) and self.memory is Memory.WGT):
            raise self._error("padding of the two innermost dimensions of an activation", f"dimensions {[*dims, column, row]}")
        y, x = column.high - column.low, row.high - row.low
        if max(pads) > MOST_PAD or max(y, x) > MOST:
            raise self._error(
                f"at most {MOST_PAD} elements of padding a side, and {MOST} rows and columns", f"pads {pads}, {y} rows of {x}"
            )
        inside = column.dram * column.low + row.dram * row.low
        for steps in product(*(range(dim.extent) for dim in dims)):
            yield _Part(
                start[0] + sum(dim.sram * step for dim, step in zip(dims, steps, strict=True)),
                start[1] + inside + sum(dim.dram * step for dim, step in zip(dims, steps, strict=True)),
                y,
                x,
                column.dram if y > 1 else x,
                pads,
            )

    def _error(self, expected: str, found: str) -> ScheduleError:
        return ScheduleError(
            f"{self.what}: expected {expected}, found {found}",
            remedy="tile in rows and columns that divide the image, with a halo within 15",
        )


def moved(config: Config, item: Load | Store, source: str) -> Step:
    """The step of a LOAD or STORE."""
    load = isinstance(item, Load)
    memory = item.memory if isinstance(item, Load) else Memory.OUT
    unit = config.element_bytes(memory) // config.element_bytes(Memory.INP)
    rows, length = (1, item.y_size * item.x_size) if item.x_stride == item.x_size else (item.y_size, item.x_size)
    on_chip = Access(Memory.ACC if memory is Memory.OUT else memory, load, item.sram_base, item.sram_size)
    return Step(item, source, (on_chip, Access(None, not load, item.dram_base * unit, length * unit, rows, item.x_stride * unit)))


def merged(dims: list[_Dim]) -> list[_Dim]:
    """Dimensions from outermost to innermost in SRAM, contiguous ones merged."""
    found: list[_Dim] = []
    for dim in sorted((dim for dim in dims if dim.extent > 1 or dim.padded), key=lambda dim: -dim.sram):
        if found and not dim.padded and found[-1].sram == dim.sram * dim.extent and found[-1].dram == dim.dram * dim.extent:
            outer = found.pop()
            ends = outer.low * dim.extent, outer.high * dim.extent
            dim = _Dim(outer.extent * dim.extent, dim.sram, dim.dram, *ends)
        found.append(dim)
    return found


def without_lanes(
    what: str, loops: tuple[Loop, ...], places: Sequence[Affine], lanes: int
) -> tuple[tuple[Loop, ...], tuple[Affine, ...]]:
    """Loops and places in elements of `lanes` scalars, from those in scalars. Raises `ScheduleError` where the copy of an element
    is not contiguous."""
    size = 1
    taken: set[int] = set()
    while size < lanes:
        number = next((n for n, step in enumerate(places[0].inner) if step == size and loops[n].extent > 1), None)
        if number is None or any(place.inner[number] != size for place in places):
            break
        taken.add(number)
        size *= loops[number].extent
    kept = [number for number in range(len(loops)) if number not in taken]
    found = []
    for place in places:
        inner = [place.inner[number] for number in kept]
        factors = [place.constant, *(factor for _, factor in place.outer), *inner]
        if size != lanes or any(factor % lanes for factor in factors):
            raise ScheduleError(
                f"{what}: expected whole elements of {lanes} contiguous scalars, found steps {place.inner} of {place.constant}",
                remedy="keep the blocks of channels innermost and whole",
            )
        outer = tuple((term, factor // lanes) for term, factor in place.outer)
        found.append(Affine(place.constant // lanes, outer, tuple(factor // lanes for factor in inner)))
    return tuple(loops[number] for number in kept), tuple(found)


def copied(value: ir.Expr) -> tuple[ir.Load, ir.Expr | None] | None:
    """The element that a value is a copy of, and the condition under which, else 0. None for any other value."""
    match value:
        case ir.Load():
            return value, None
        case ir.Cast(a=ir.Load() as load):
            return load, None
        case ir.Select(condition=condition, then=ir.Load() as load, otherwise=ir.Const(value=0)):
            return load, condition
    return None
