"""What loop programs for grids of blocks of threads are made of: nests of blocks and threads, and memory of blocks.

The phases of a block are sibling loops over its threads. Indices that are written are the same function of the thread for any data,
so that races are decidable: what is found out from data is read, by searches, never the place of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid.types import DType, dtype

BLOCKS, MORE_BLOCKS = "blockIdx.x", "blockIdx.y"
THREADS, MORE_THREADS = "threadIdx.x", "threadIdx.y"
LONG = dtype("int64")
ONE = ir.const(1, LONG)


@dataclass(frozen=True)
class Grid:
    """The grid that a loop program is for.

    block: threads of a block. resident: threads from which on a device is busy. scope: the memory that the threads of a block
    share, "" where there is none: main memory then serves. capacity: its bytes.
    """

    block: int
    resident: int
    scope: str = ""
    capacity: int = 0


@dataclass(frozen=True)
class Part:
    """The part of a buffer that belongs to a block, at the indices `where`."""

    buffer: ir.Buffer
    where: tuple[Dim, ...] = ()

    def __getitem__(self, indices: Dim | tuple[Dim, ...]) -> ir.Load:
        return self.buffer[(*self.where, *_several(indices))]

    def store(self, b: Builder, indices: Dim | tuple[Dim, ...], value: ir.Operand) -> None:
        """self[indices] = value."""
        b.store(self.buffer, (*self.where, *_several(indices)), value)


def _several(indices: Dim | tuple[Dim, ...]) -> tuple[Dim, ...]:
    return indices if isinstance(indices, tuple) else (indices,)


class Memory:
    """A buffer that each block has: in the scope that its threads share, or in main memory, with a further dimension for each axis
    of blocks. It is declared around the loops over blocks, and opened inside of them."""

    def __init__(self, b: Builder, grid: Grid, around: Sequence[Dim], shape: tuple[Dim, ...], of: str | DType, name: str) -> None:
        self._make: Callable[[], ir.Buffer] = lambda: b.alloc(shape, of, name, grid.scope)
        self._buffer = None if grid.scope else b.alloc((*around, *shape), of, name)

    def open(self, *blocks: Dim) -> Part:
        """The part of the block at these indices."""
        return Part(self._make()) if self._buffer is None else Part(self._buffer, blocks)


@contextmanager
def each(b: Builder, grid: Grid, extent: Dim) -> Iterator[arith.Expr]:
    """A thread for each number below an extent."""
    count = max(min(grid.block, extent), 1) if isinstance(extent, int) else grid.block
    with (
        b.loop(arith.ceildiv(extent, count), "block", thread=BLOCKS) as block,
        b.loop(count, "thread", thread=THREADS) as thread,
        b.if_(truth(arith.compare("<", block * count + thread, extent))),
    ):
        yield block * count + thread


@contextmanager
def each_of_rows(b: Builder, grid: Grid, rows: Dim, extent: Dim) -> Iterator[tuple[arith.Var, arith.Expr]]:
    """A thread for each place below an extent in each row: (row, place)."""
    count = max(min(grid.block, extent), 1) if isinstance(extent, int) else grid.block
    with (
        b.loop(rows, "row", thread=BLOCKS) as row,
        b.loop(arith.ceildiv(extent, count), "block", thread=MORE_BLOCKS) as block,
        b.loop(count, "thread", thread=THREADS) as thread,
        b.if_(truth(arith.compare("<", block * count + thread, extent))),
    ):
        yield row, block * count + thread


def truth(condition: Dim) -> ir.Expr:
    """A condition on indices as a value."""
    return ir.as_expr(arith.wrap(condition), dtype("bool"))


def either(b: Builder, condition: Dim, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """Do the one or the other, by a condition on sizes."""
    decided = arith.simplify(condition)
    if decided == arith.ONE:
        then()
    elif decided == arith.ZERO:
        otherwise()
    else:
        with b.if_(truth(decided)):
            then()
        with b.else_():
            otherwise()


def unflatten(number: Dim, shape: Sequence[Dim]) -> tuple[arith.Expr, ...]:
    """The indices of an element of a shape, given its row-major number."""
    found: list[arith.Expr] = []
    rest = arith.wrap(number)
    for place, extent in reversed(list(enumerate(shape))):
        found.append(rest % extent if place else rest)
        rest = rest // extent
    return tuple(map(arith.simplify, reversed(found)))


def first_where(b: Builder, ends: tuple[Dim, Dim], room: Dim, holds: Callable[[arith.Var], ir.Expr]) -> ir.Buffer:
    """Search a sequence of truth values of which all before some place are false and all from there on true: a 0-d int64 buffer
    with that place, the second of the ends where all between them are false. `holds` is asked for indices below `room`."""
    low, high = b.alloc((), LONG, "low"), b.alloc((), LONG, "high")
    b.store(low, (), arith.wrap(ends[0]))
    b.store(high, (), arith.wrap(ends[1]))
    with b.while_(low[()] < high[()]):
        middle = b.let((low[()] + high[()]) >> ONE, "middle", (0, arith.wrap(room) - 1))
        with b.if_(holds(middle)):
            b.store(high, (), middle)
        with b.else_():
            b.store(low, (), middle + 1)
    return low
