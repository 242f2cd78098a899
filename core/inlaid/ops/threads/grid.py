"""Building blocks of loop programs for grids: loops over blocks and threads, and scratch memory of blocks.

The phases of a block are sibling loops over its threads. Store indices are functions of the thread alone, never of data, so that
the race check can decide them. Data-dependent positions are only read: kernels gather by searches and never scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import DType, dtype

BLOCKS, BLOCKS_Y = "blockIdx.x", "blockIdx.y"
THREADS, THREADS_Y = "threadIdx.x", "threadIdx.y"
LONG = dtype("int64")
ONE = ir.const(1, LONG)


@dataclass(frozen=True)
class Grid:
    """The grid that a loop program is built for.

    block: threads per block. resident: threads that saturate the device. scope: scope of shared memory; "" places scratch in main
    memory. capacity: bytes of shared memory.
    """

    block: int
    resident: int
    scope: str = ""
    capacity: int = 0

    def fitting(self, thread_bytes: int, block_bytes: int) -> Grid:
        """Return the grid with `block` halved until scratch of `thread_bytes` per thread and `block_bytes` per block fits shared
        memory. If no two threads fit, return the grid with `block` unchanged and scratch in main memory."""
        block = self.block
        while self.scope and block > 1 and block * thread_bytes + block_bytes > self.capacity:
            block //= 2
        return Grid(self.block, self.resident) if block == 1 else replace(self, block=block)


@dataclass(frozen=True)
class BlockView:
    """A block's slice of a buffer, at the leading indices `prefix`."""

    buffer: ir.Buffer
    prefix: tuple[Dim, ...] = ()

    def __getitem__(self, indices: Dim | tuple[Dim, ...]) -> ir.Load:
        return self.buffer[(*self.prefix, *_as_tuple(indices))]

    def store(self, b: Builder, indices: Dim | tuple[Dim, ...], value: ir.Operand) -> None:
        """Store a value: self[indices] = value."""
        b.store(self.buffer, (*self.prefix, *_as_tuple(indices)), value)


def _as_tuple(indices: Dim | tuple[Dim, ...]) -> tuple[Dim, ...]:
    return indices if isinstance(indices, tuple) else (indices,)


class BlockScratch:
    """Scratch buffer of each block: in shared memory, or else in main memory with a leading dimension per block axis.

    Construct it outside the loops over blocks, and open it inside."""

    def __init__(
        self, b: Builder, grid: Grid, block_extents: Sequence[Dim], shape: tuple[Dim, ...], element_dtype: str | DType, name: str
    ) -> None:
        self._make: Callable[[], ir.Buffer] = lambda: b.alloc(shape, element_dtype, name, grid.scope)
        self._buffer = None if grid.scope else b.alloc((*block_extents, *shape), element_dtype, name)

    def open(self, *blocks: Dim) -> BlockView:
        """Return the slice of the block at these indices."""
        return BlockView(self._make()) if self._buffer is None else BlockView(self._buffer, blocks)


@contextmanager
def parallel_range(b: Builder, grid: Grid, extent: Dim) -> Iterator[arith.Expr]:
    """Launch one thread per index below an extent; yields the index."""
    count = max(min(grid.block, extent), 1) if isinstance(extent, int) else grid.block
    with (
        b.loop(arith.ceildiv(extent, count), "block", thread=BLOCKS) as block,
        b.loop(count, "thread", thread=THREADS) as thread,
        b.if_(truth(arith.compare("<", block * count + thread, extent))),
    ):
        yield block * count + thread


@contextmanager
def parallel_rows(b: Builder, grid: Grid, rows: Dim, extent: Dim) -> Iterator[tuple[arith.Var, arith.Expr]]:
    """Launch one thread per element of `rows` rows of `extent` elements; yields (row, position)."""
    count = max(min(grid.block, extent), 1) if isinstance(extent, int) else grid.block
    with (
        b.loop(rows, "row", thread=BLOCKS) as row,
        b.loop(arith.ceildiv(extent, count), "block", thread=BLOCKS_Y) as block,
        b.loop(count, "thread", thread=THREADS) as thread,
        b.if_(truth(arith.compare("<", block * count + thread, extent))),
    ):
        yield row, block * count + thread


def truth(condition: Dim) -> ir.Expr:
    """Convert an index condition to a bool value."""
    return ir.as_expr(arith.wrap(condition), dtype("bool"))


def branch(b: Builder, condition: Dim, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """Emit `then` if a condition on sizes is true at compile time, `otherwise` if it is false, else both under an `If`."""
    simplified = arith.simplify(condition)
    if simplified == arith.ONE:
        then()
    elif simplified == arith.ZERO:
        otherwise()
    else:
        with b.if_(truth(simplified)):
            then()
        with b.else_():
            otherwise()


def unflatten(number: Dim, shape: Sequence[Dim]) -> tuple[arith.Expr, ...]:
    """Unflatten a row-major element number into indices."""
    indices: list[arith.Expr] = []
    rest = arith.wrap(number)
    for axis, extent in reversed(list(enumerate(shape))):
        indices.append(rest % extent if axis else rest)
        rest = rest // extent
    return tuple(map(arith.simplify, reversed(indices)))


def first_where(b: Builder, ends: tuple[Dim, Dim], buffer_extent: Dim, holds: Callable[[arith.Var], ir.Expr]) -> ir.Buffer:
    """Binary search for the first index in [ends[0], ends[1]) at which a monotone predicate holds.

    Returns a 0-d int64 buffer, equal to ends[1] if the predicate holds nowhere. `holds` is evaluated at indices below
    `buffer_extent`."""
    low, high = b.alloc((), LONG, "low"), b.alloc((), LONG, "high")
    b.store(low, (), arith.wrap(ends[0]))
    b.store(high, (), arith.wrap(ends[1]))
    with b.while_(low[()] < high[()]):
        middle = b.let((low[()] + high[()]) >> ONE, "middle", (0, arith.wrap(buffer_extent) - 1))
        with b.if_(holds(middle)):
            b.store(high, (), middle)
        with b.else_():
            b.store(low, (), middle + 1)
    return low
