"""Running values along rows: by a thread for each row, by a block for each, or by many blocks in three kernels.

A block scans as many elements as it has threads at a time, in a logarithmic number of phases (W. D. Hillis and G. L. Steele, 1986),
and carries the last value on. The sums of floats are reassociated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim
from inlaid.ops.threads.grid import BLOCKS, MORE_BLOCKS, THREADS, Grid, Memory, Part, each, either, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.types import DType

PIECES = 16
"""Times the threads of a block: elements that one block scans alone; more are for many blocks."""
FEW = 16
"""Elements of a row that a thread scans sooner than a block does."""


@dataclass(frozen=True)
class Running:
    """A scan of `rows` of `extent` elements each.

    `read(row, place)` is an element, of the type `of`; `write(b, row, place, before, value)` stores what was before it and what is
    from it on; `op` combines two, `start` is before the first. `beside` says whether neighbouring rows are neighbours in memory, so
    that threads had better have a row each.
    """

    rows: Dim
    extent: Dim
    of: DType
    op: str
    start: ir.Const
    read: Callable[[Dim, Dim], ir.Expr]
    write: Callable[[Builder, Dim, Dim, ir.Expr, ir.Expr], None]
    beside: bool = False

    def combine(self, a: ir.Operand, b: ir.Operand) -> ir.Expr:
        """The value of two."""
        return ir.binary(self.op, a, b)


def scan(b: Builder, grid: Grid, what: Running) -> None:
    """Scan rows in the way that suits their number and length."""
    alone = arith.compare("<=", what.extent, FEW)
    if what.beside:
        alone = arith.logical_or(alone, arith.compare("<=", grid.resident, what.rows))
    short = arith.compare("<=", what.extent, grid.block * PIECES)
    either(
        b,
        alone,
        lambda: _by_threads(b, grid, what),
        lambda: either(b, short, lambda: _by_blocks(b, grid, what), lambda: _in_three(b, grid, what)),
    )


def _by_threads(b: Builder, grid: Grid, what: Running) -> None:
    """A thread for each row."""
    with each(b, grid, what.rows) as row:
        total = b.alloc((), what.of, "total")
        b.store(total, (), what.start)
        with b.loop(what.extent, "k") as k:
            before = total[()]
            value = what.combine(before, what.read(row, k))
            what.write(b, row, k, before, value)
            b.store(total, (), value)


def _by_blocks(b: Builder, grid: Grid, what: Running) -> None:
    """A block for each row."""
    made = [Memory(b, grid, (what.rows,), (size,), what.of, name) for name, size in _memory(grid)]
    with b.loop(what.rows, "row", thread=BLOCKS) as row:
        one, other, carry = (memory.open(row) for memory in made)
        carry.store(b, 0, what.start)
        _segment(b, grid, what, (row, 0, what.extent), (one, other, carry))


def _in_three(b: Builder, grid: Grid, what: Running) -> None:
    """Blocks for parts of rows: their totals, what runs over these, and the parts from there on."""
    size = grid.block * PIECES
    parts = arith.unwrap(arith.ceildiv(what.extent, size))
    totals = b.alloc((what.rows, parts), what.of, "totals")
    memory = Memory(b, grid, (what.rows, parts), (grid.block,), what.of, "sums")
    with b.loop(what.rows, "row", thread=BLOCKS) as row, b.loop(parts, "part", thread=MORE_BLOCKS) as part:
        sums = memory.open(row, part)
        with b.loop(grid.block, "t", thread=THREADS) as t:
            total = b.alloc((), what.of, "total")
            b.store(total, (), what.start)
            with b.loop(PIECES, "piece") as piece:
                place = part * size + piece * grid.block + t
                with b.if_(truth(arith.compare("<", place, what.extent))):
                    b.store(total, (), what.combine(total[()], what.read(row, place)))
            sums.store(b, t, total[()])
        half = grid.block
        while half > 1:
            half, odd = half // 2, half % 2
            with b.loop(half, "t", thread=THREADS) as t:
                sums.store(b, t, what.combine(sums[t], sums[t + half + odd]))
            half += odd
        b.store(totals, (row, part), sums[0])
    first = b.alloc((what.rows, parts), what.of, "first")

    def keep(b: Builder, row: Dim, part: Dim, before: ir.Expr, value: ir.Expr) -> None:
        b.store(first, (row, part), before)

    _by_blocks(b, grid, Running(what.rows, parts, what.of, what.op, what.start, lambda row, part: totals[row, part], keep))
    made = [Memory(b, grid, (what.rows, parts), (extent,), what.of, name) for name, extent in _memory(grid)]
    with b.loop(what.rows, "row", thread=BLOCKS) as row, b.loop(parts, "part", thread=MORE_BLOCKS) as part:
        one, other, carry = (memory.open(row, part) for memory in made)
        carry.store(b, 0, first[row, part])
        end = arith.minimum(part * size + size, what.extent)
        _segment(b, grid, what, (row, part * size, end), (one, other, carry))


def _memory(grid: Grid) -> tuple[tuple[str, int], ...]:
    return (("one", grid.block), ("other", grid.block), ("carry", 1))


def _segment(b: Builder, grid: Grid, what: Running, of: tuple[Dim, Dim, Dim], memory: tuple[Part, Part, Part]) -> None:
    """The elements of a row from one place to another, by the threads of a block. `memory` are two buffers of an element for each
    thread, and one of what is before the first element."""
    row, begin, end = of
    one, other, carry = memory
    with b.loop(arith.ceildiv(end - begin, grid.block), "piece") as piece:
        start = begin + piece * grid.block
        with b.loop(grid.block, "t", thread=THREADS) as t:
            value = te.select(arith.compare("<", start + t, end), what.read(row, start + t), what.start)
            one.store(b, t, value)
        done = scan_block(b, grid.block, one, other, what.combine)
        with b.loop(grid.block, "t", thread=THREADS) as t, b.if_(truth(arith.compare("<", start + t, end))):
            inside = te.select(arith.compare("<", 0, t), done[arith.maximum(t - 1, 0)], what.start)
            what.write(b, row, start + t, what.combine(carry[0], inside), what.combine(carry[0], done[t]))
        carry.store(b, 0, what.combine(carry[0], done[grid.block - 1]))


def scan_block(b: Builder, count: int, one: Part, other: Part, combine: Callable[[ir.Expr, ir.Expr], ir.Expr]) -> Part:
    """Phases that make running values of the `count` elements of a buffer, with the help of another. The one that has them."""
    distance = 1
    while distance < count:
        with b.loop(count, "t", thread=THREADS) as t:
            before = one[arith.maximum(t - distance, 0)]
            other.store(b, t, te.select(arith.compare("<=", distance, t), combine(before, one[t]), one[t]))
        one, other, distance = other, one, distance * 2
    return one
