"""Choose the register tile of a matrix product by an analytic model of a core."""

from __future__ import annotations

from functools import lru_cache

from inlaid.plugins.contract import Capabilities, Core
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class Tile:
    """Register tile: lanes per vector, vectors of columns, and rows."""

    lanes: int
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        """Columns per tile."""
        return self.lanes * self.vectors


def fits(rows: int, vectors: int, registers: int) -> bool:
    """Test whether a tile's accumulators, the column vectors of one step and a broadcast element fit in registers."""
    return rows * vectors + vectors + 1 <= registers


def steps(rows: int, vectors: int, lanes: int, depth: int, again: bool, crowded: bool, core: Core) -> float:
    """Predict the cycles of a tile per step of the inner dimension, including the step's share of the tile's fixed cost. `again`:
    the panel was read for previous rows, so it is in L2 if it fits; `crowded`: rows map to the same cache sets."""
    fits_in_l2 = 4 * depth * vectors * lanes <= core.costs.panel_share * core.l2_bytes
    load = core.l3_load if again and not fits_in_l2 else core.l2_load
    work = max(rows * vectors / core.units, core.latency, (rows + vectors) / core.units, load * vectors)
    work += core.load_stall * (vectors + rows / lanes) + (core.alias_cycles * rows if crowded else 0)
    return work + (core.loop_entry + rows * vectors) / depth


def cycles(rows: int, columns: int, depth: int, tile: Tile, core: Core, threads: int = 1) -> float:
    """Predict the cycles of a product per step of its inner dimension of extent `depth`, including the less efficient remainder
    tiles. Full panels are distributed over threads."""
    panels, rest = divmod(-(-columns // tile.lanes), tile.vectors)
    full, edge = divmod(rows, tile.rows)
    again, crowded = rows > tile.rows, 4 * depth % core.alias_bytes == 0 or 4 * columns % core.alias_bytes == 0

    def column(vectors: int) -> float:
        last = steps(edge, vectors, tile.lanes, depth, again, crowded, core) if edge else 0
        return full * steps(tile.rows, vectors, tile.lanes, depth, again, crowded, core) + last

    return -(-panels // threads) * column(tile.vectors) + (column(rest) if rest else 0)


def seconds(cycles: float, capabilities: Capabilities) -> float:
    """Convert cycles of one core to seconds on all cores."""
    return cycles * 2 * capabilities.core.units * capabilities.vector_bits / 32 / capabilities.peak


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def list_tiles(rows: int, columns: int, lanes: int, registers: int, core: Core, unpacked: bool = False) -> tuple[Tile, ...]:
    """Enumerate the tiles that fit in registers for a product of at most `rows` rows, with at most as many rows as the
    cache has ways, widest first. `unpacked`: the right operand is read as it lies."""
    vectors = -(-columns // lanes)
    widest = min(core.costs.row_vectors, vectors)
    if rows == 1:
        if unpacked:
            widest = max(widest, min(core.costs.unpacked_row_vectors, registers - 2, vectors))
        return tuple(Tile(lanes, v, 1) for v in range(widest, 0, -1))
    max_rows = min(rows, core.l1_ways)
    return tuple(Tile(lanes, v, r) for v in range(widest, 0, -1) for r in range(1, max_rows + 1) if fits(r, v, registers))


def likely_counts(rows: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the likely row counts of a product: one, or several."""
    return (rows,) if isinstance(rows, int) else rows


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def choose_tile(
    rows: int | tuple[int, ...],
    columns: int,
    depth: int,
    lanes: int,
    registers: int,
    core: Core,
    threads: int = 1,
    whole_panels: bool = False,
    unpacked: bool = False,
) -> Tile:
    """Choose the tile of a product that minimizes cycles; on ties, the wider tile. `rows` is the number of rows, or several equally
    likely numbers, over which cycles per row are averaged. `columns` and `depth` are size hints if symbolic. With `whole_panels`, a
    partial panel of columns costs as much as a full one. `unpacked`: see `list_tiles`."""
    counts = likely_counts(rows)
    tiles = list_tiles(max(counts), columns, lanes, registers, core, unpacked)
    if whole_panels and max(counts) == 1:
        # Panels are read at memory speed; starting a panel costs about as much as one vector.
        return min(tiles, key=lambda tile: -(-columns // tile.width) * (tile.vectors + 1))

    def cost(tile: Tile) -> float:
        width = -(-columns // tile.width) * tile.width if whole_panels else columns
        return sum(cycles(count, width, depth, tile, core, threads) / count for count in counts)

    return min(tiles, key=cost)
