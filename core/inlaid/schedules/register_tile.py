"""Which tile of rows and columns a matrix product accumulates in registers: an analytic model of a core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inlaid.plugins.contract import Capabilities, Core

PANEL_SHARE = 900 / 1024
"""Of the second-level cache: panels that stay there from one tile of rows to the next."""
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


def steps(rows: int, vectors: int, lanes: int, depth: int, again: bool, crowded: bool, core: Core) -> float:
    """Cycles of one step of a tile along the inner dimension, with its share of what a tile costs at all. `again`: other rows have
    read the panel before, which lies in the second-level cache if it fits there; `crowded`: rows lie in the same sets."""
    held = 4 * depth * vectors * lanes <= PANEL_SHARE * core.l2_bytes
    load = core.l3_load if again and not held else core.l2_load
    work = max(rows * vectors / core.units, core.latency, (rows + vectors) / core.units, load * vectors)
    work += core.load_stall * (vectors + rows / lanes) + (core.alias_cycles * rows if crowded else 0)
    return work + (core.loop_entry + rows * vectors) / depth


def cycles(rows: int, columns: int, depth: int, tile: Tile, core: Core, threads: int = 1) -> float:
    """Cycles of a product per step along its inner dimension, `depth`: tiles at the edges are smaller, and less busy. Threads share
    the panels, but for a last one that is narrower."""
    panels, rest = divmod(-(-columns // tile.lanes), tile.vectors)
    full, edge = divmod(rows, tile.rows)
    again, crowded = rows > tile.rows, 4 * depth % core.alias_bytes == 0 or 4 * columns % core.alias_bytes == 0

    def column(vectors: int) -> float:
        last = steps(edge, vectors, tile.lanes, depth, again, crowded, core) if edge else 0
        return full * steps(tile.rows, vectors, tile.lanes, depth, again, crowded, core) + last

    return -(-panels // threads) * column(tile.vectors) + (column(rest) if rest else 0)


def seconds(cycles: float, capabilities: Capabilities) -> float:
    """The time of so many cycles, all cores together."""
    return cycles * 2 * capabilities.core.units * capabilities.vector_bits / 32 / capabilities.peak


@cache
def tiles_of(rows: int, columns: int, lanes: int, registers: int, ways: int) -> tuple[Tile, ...]:
    """The tiles for a product of at most so many rows whose sums fit into registers, of at most as many rows as a cache has `ways`,
    the wider ones first."""
    widest = min(LONGEST_ROW, -(-columns // lanes))
    if rows == 1:
        return tuple(Tile(lanes, v, 1) for v in range(widest, 0, -1))
    most = min(rows, ways)
    return tuple(Tile(lanes, v, r) for v in range(widest, 0, -1) for r in range(1, most + 1) if fits(r, v, registers))


@cache
def choose_tile(
    rows: int | tuple[int, ...], columns: int, depth: int, lanes: int, registers: int, core: Core, threads: int = 1
) -> Tile:
    """The tile for a product with the least cycles; the wider one of equals. `rows`: how many, or several numbers that are equally
    likely, of which the cycles for a row are then least on average. Of other symbolic extents these are representative sizes."""
    counts = (rows,) if isinstance(rows, int) else rows
    tiles = tiles_of(max(counts), columns, lanes, registers, core.l1_ways)
    return min(tiles, key=lambda tile: sum(cycles(count, columns, depth, tile, core, threads) / count for count in counts))
