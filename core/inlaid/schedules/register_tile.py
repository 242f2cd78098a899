"""Which tile of rows and columns a matrix product accumulates in registers: an analytic model of a core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inlaid.plugins.contract import Capabilities

LATENCY = 4
"""Cycles of a fused multiply-add on the cores of the last ten years (Skylake to Golden Cove, Zen 3 to Zen 5; uops.info)."""
UNITS = 2
"""Vector multiply-adds, and vector loads, that a core starts in one cycle."""
FAR_LOAD = 2
"""Cycles for a vector of a panel from the second-level cache: 32 bytes a cycle for vectors of 64 bytes."""
FARTHER_LOAD = 2.75
"""Cycles for a vector of a panel that the second-level cache does not hold: measured, 3072 rows of 96 columns."""
SHARED_LOAD = 0.2
"""Cycles that a vector from the second-level cache takes from the additions, over all tiles of 24 and 25 sums (12 x 2 to 4 x 6, 768
rows): such a vector takes the place of another in the first-level cache, and arrives late at times."""
SAME_SETS = 2048
"""Bytes between rows of which a multiple puts them all into the same few sets of the first-level cache."""
CROWDING = 0.1
"""Cycles that a row costs each step where rows lie so, in the left operand or the result: 12 rows of 512 to 3072 columns are 2 to
4 % slower than 6, elsewhere 2 % faster."""
PANEL_BYTES = 900 << 10
"""Bytes of a panel that stay in the second-level cache from one tile of rows to the next: cores have 1 MiB of it or more."""
MOST_ROWS = 12
"""Rows of a tile: with a power of two between rows all of them read the same set of the first-level cache, which has 12 ways (1024
to 2048 rows: 14 are 5 % slower)."""
ENTRY = 30
"""Cycles to start and to leave a tile: filling and draining the pipeline, addresses, and the branch that ends the sum."""
LONGEST_ROW = 8
"""Vectors of columns of a tile that has a single row: long runs of memory, and additions in flight to hide their latency."""


@dataclass(frozen=True)
class Tile:
    """Lanes of a vector, vectors of columns, and rows."""

    lanes: int
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.lanes * self.vectors


def fits(rows: int, vectors: int, registers: int) -> bool:
    """Whether a tile's sums, the vectors of columns of one step and an element of the left operand fit into registers."""
    return rows * vectors + vectors + 1 <= registers


def steps(rows: int, vectors: int, lanes: int, depth: int, again: bool, crowded: bool) -> float:
    """Cycles of one step of a tile along the inner dimension, with its share of what a tile costs at all. `again`: other rows have
    read the panel before, which lies in the second-level cache if it fits there; `crowded`: rows lie in the same sets."""
    load = FARTHER_LOAD if again and 4 * depth * vectors * lanes > PANEL_BYTES else FAR_LOAD
    work = max(rows * vectors / UNITS, LATENCY, (rows + vectors) / UNITS, load * vectors)
    work += SHARED_LOAD * (vectors + rows / lanes) + (CROWDING * rows if crowded else 0)
    return work + (ENTRY + rows * vectors) / depth


def cycles(rows: int, columns: int, depth: int, tile: Tile, threads: int = 1) -> float:
    """Cycles of a product per step along its inner dimension, `depth`: tiles at the edges are smaller, and less busy. Threads share
    the panels, but for a last one that is narrower."""
    panels, rest = divmod(-(-columns // tile.lanes), tile.vectors)
    full, edge = divmod(rows, tile.rows)
    again, crowded = rows > tile.rows, 4 * depth % SAME_SETS == 0 or 4 * columns % SAME_SETS == 0

    def column(vectors: int) -> float:
        last = steps(edge, vectors, tile.lanes, depth, again, crowded) if edge else 0
        return full * steps(tile.rows, vectors, tile.lanes, depth, again, crowded) + last

    return -(-panels // threads) * column(tile.vectors) + (column(rest) if rest else 0)


def seconds(cycles: float, capabilities: Capabilities) -> float:
    """The time of so many cycles, all cores together."""
    return cycles * 2 * UNITS * capabilities.vector_bits / 32 / capabilities.peak


@cache
def tiles_of(rows: int, columns: int, lanes: int, registers: int) -> tuple[Tile, ...]:
    """The tiles for a product of at most so many rows whose sums fit into registers, the wider ones first."""
    widest = min(LONGEST_ROW, -(-columns // lanes))
    if rows == 1:
        return tuple(Tile(lanes, v, 1) for v in range(widest, 0, -1))
    most = min(rows, MOST_ROWS)
    return tuple(Tile(lanes, v, r) for v in range(widest, 0, -1) for r in range(1, most + 1) if fits(r, v, registers))


@cache
def choose_tile(rows: int | tuple[int, ...], columns: int, depth: int, lanes: int, registers: int, threads: int = 1) -> Tile:
    """The tile for a product with the least cycles; the wider one of equals. `rows`: how many, or several numbers that are equally
    likely, of which the cycles for a row are then least on average. Of other symbolic extents these are representative sizes."""
    counts = (rows,) if isinstance(rows, int) else rows
    tiles = tiles_of(max(counts), columns, lanes, registers)
    return min(tiles, key=lambda tile: sum(cycles(count, columns, depth, tile, threads) / count for count in counts))
