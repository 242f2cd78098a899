"""Scans (prefix sums) of rows: one thread per row, one block per row, or reduce-then-scan over many blocks in three kernels.

A block scans one element per thread at a time, in a logarithmic number of phases (W. D. Hillis and G. L. Steele, 1986), and carries
the total to the next segment. Floating-point sums are reassociated.
"""

from __future__ import annotations

from collections.abc import Callable

from inlaid.ops.threads.grid import BLOCKS, BLOCKS_Y, THREADS, BlockScratch, BlockView, Grid, branch, parallel_range, truth
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType

PIECES = 16
"""Maximum number of elements per thread of a row that one block scans; longer rows are split over blocks."""
MAX_THREAD_EXTENT = 16
"""Maximum length of a row that one thread scans faster than a block."""
ALIGNMENT = 16
"""Maximum number of bytes of shared memory that are lost to the alignment of a buffer; no element is larger."""


@dataclass(frozen=True)
class RowScan:
    """A scan of `rows` rows of `extent` elements.

    `read(row, position)` is an element, of dtype `dtype`; `write(b, row, position, before, value)` gets the exclusive prefix
    `before` and the inclusive prefix `value` to store. `op` is an associative binary operation with the identity `identity`.
    `interleaved`: elements of adjacent rows are adjacent in memory, so that accesses of one thread per row are coalesced.
    """

    rows: Dim
    extent: Dim
    dtype: DType
    op: str
    identity: ir.Const
    read: Callable[[Dim, Dim], ir.Expr]
    write: Callable[[Builder, Dim, Dim, ir.Expr, ir.Expr], None]
    interleaved: bool = False

    def combine(self, a: ir.Operand, b: ir.Operand) -> ir.Expr:
        """Combine two values."""
        return ir.binary(self.op, a, b)


def emit_scan(b: Builder, grid: Grid, scan: RowScan) -> None:
    """Emit the scan, in the form that suits the number and length of rows."""
    grid = grid.fitting(2 * scan.dtype.bytes, len(_scratch_sizes(grid)) * ALIGNMENT)
    suits_one_thread = arith.compare("<=", scan.extent, MAX_THREAD_EXTENT)
    if scan.interleaved:
        suits_one_thread = arith.logical_or(suits_one_thread, arith.compare("<=", grid.resident, scan.rows))
    suits_one_block = arith.compare("<=", scan.extent, grid.block * PIECES)
    branch(
        b,
        suits_one_thread,
        lambda: _scan_by_threads(b, grid, scan),
        lambda: branch(b, suits_one_block, lambda: _scan_by_blocks(b, grid, scan), lambda: _reduce_then_scan(b, grid, scan)),
    )


def _scan_by_threads(b: Builder, grid: Grid, scan: RowScan) -> None:
    """Scan each row by one thread."""
    with parallel_range(b, grid, scan.rows) as row:
        total = b.alloc((), scan.dtype, "total")
        b.store(total, (), scan.identity)
        with b.loop(scan.extent, "k") as k:
            before = total[()]
            value = scan.combine(before, scan.read(row, k))
            scan.write(b, row, k, before, value)
            b.store(total, (), value)


def _scan_by_blocks(b: Builder, grid: Grid, scan: RowScan) -> None:
    """Scan each row by one block."""
    scratch = [BlockScratch(b, grid, (scan.rows,), (size,), scan.dtype, name) for name, size in _scratch_sizes(grid)]
    with b.loop(scan.rows, "row", thread=BLOCKS) as row:
        one, other, carry = (memory.open(row) for memory in scratch)
        carry.store(b, 0, scan.identity)
        _segment(b, grid, scan, (row, 0, scan.extent), (one, other, carry))


def _reduce_then_scan(b: Builder, grid: Grid, scan: RowScan) -> None:
    """Reduce, then scan over blocks: compute totals of parts of rows, scan them, then scan each part from its prefix."""
    size = grid.block * PIECES
    parts = arith.unwrap(arith.ceildiv(scan.extent, size))
    totals = b.alloc((scan.rows, parts), scan.dtype, "totals")
    memory = BlockScratch(b, grid, (scan.rows, parts), (grid.block,), scan.dtype, "sums")
    with b.loop(scan.rows, "row", thread=BLOCKS) as row, b.loop(parts, "part", thread=BLOCKS_Y) as part:
        sums = memory.open(row, part)
        with b.loop(grid.block, "t", thread=THREADS) as t:
            total = b.alloc((), scan.dtype, "total")
            b.store(total, (), scan.identity)
            with b.loop(PIECES, "piece") as piece:
                position = part * size + piece * grid.block + t
                with b.if_(truth(arith.compare("<", position, scan.extent))):
                    b.store(total, (), scan.combine(total[()], scan.read(row, position)))
            sums.store(b, t, total[()])
        half = grid.block
        while half > 1:
            half, odd = half // 2, half % 2
            with b.loop(half, "t", thread=THREADS) as t:
                sums.store(b, t, scan.combine(sums[t], sums[t + half + odd]))
            half += odd
        b.store(totals, (row, part), sums[0])
    part_prefixes = b.alloc((scan.rows, parts), scan.dtype, "first")

    def keep(b: Builder, row: Dim, part: Dim, before: ir.Expr, value: ir.Expr) -> None:
        b.store(part_prefixes, (row, part), before)

    _scan_by_blocks(
        b, grid, RowScan(scan.rows, parts, scan.dtype, scan.op, scan.identity, lambda row, part: totals[row, part], keep)
    )
    scratch = [BlockScratch(b, grid, (scan.rows, parts), (extent,), scan.dtype, name) for name, extent in _scratch_sizes(grid)]
    with b.loop(scan.rows, "row", thread=BLOCKS) as row, b.loop(parts, "part", thread=BLOCKS_Y) as part:
        one, other, carry = (memory.open(row, part) for memory in scratch)
        carry.store(b, 0, part_prefixes[row, part])
        end = arith.minimum(part * size + size, scan.extent)
        _segment(b, grid, scan, (row, part * size, end), (one, other, carry))


def _scratch_sizes(grid: Grid) -> tuple[tuple[str, int], ...]:
    return (("one", grid.block), ("other", grid.block), ("carry", 1))


def _segment(
    b: Builder, grid: Grid, scan: RowScan, segment: tuple[Dim, Dim, Dim], memory: tuple[BlockView, BlockView, BlockView]
) -> None:
    """Scan the range `segment` = (row, begin, end) by one block. `memory`: two buffers with an element per thread, and the
    carry-in."""
    row, begin, end = segment
    one, other, carry = memory
    with b.loop(arith.ceildiv(end - begin, grid.block), "piece") as piece:
        start = begin + piece * grid.block
        with b.loop(grid.block, "t", thread=THREADS) as t:
            value = te.select(arith.compare("<", start + t, end), scan.read(row, start + t), scan.identity)
            one.store(b, t, value)
        prefixes = scan_block(b, grid.block, one, other, scan.combine)
        with b.loop(grid.block, "t", thread=THREADS) as t, b.if_(truth(arith.compare("<", start + t, end))):
            segment_prefix = te.select(arith.compare("<", 0, t), prefixes[arith.maximum(t - 1, 0)], scan.identity)
            scan.write(b, row, start + t, scan.combine(carry[0], segment_prefix), scan.combine(carry[0], prefixes[t]))
        carry.store(b, 0, scan.combine(carry[0], prefixes[grid.block - 1]))


def scan_block(
    b: Builder, count: int, one: BlockView, other: BlockView, combine: Callable[[ir.Expr, ir.Expr], ir.Expr]
) -> BlockView:
    """Emit the phases that scan `count` elements, double-buffered; returns the buffer with the result."""
    distance = 1
    while distance < count:
        with b.loop(count, "t", thread=THREADS) as t:
            before = one[arith.maximum(t - distance, 0)]
            other.store(b, t, te.select(arith.compare("<=", distance, t), combine(before, one[t]), one[t]))
        one, other, distance = other, one, distance * 2
    return one
