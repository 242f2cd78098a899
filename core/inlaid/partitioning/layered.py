"""Layered graph drawing: every node below its operands, with short edges and few crossings.

The steps follow Sugiyama, Tagawa and Toda (1981): layers by longest path, long edges split at each layer, order within layers
by barycenters, then coordinates by least squares that keep the order (isotonic regression by pooling adjacent violators).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SWEEPS = 4
"""Number of sweeps, each down and up, that order the layers, and of further sweeps that place the nodes."""
LONGEST = 24
"""Edges across more layers than this are drawn straight, not routed around nodes."""


@dataclass(frozen=True)
class Drawing:
    """Positions of nodes: `columns` (fractional; neighbors are at least 1 apart) and `layers`, from 0. `edges` are pairs of node
    numbers, with the column of the edge in each layer between the two."""

    columns: tuple[float, ...]
    layers: tuple[int, ...]
    edges: tuple[tuple[int, int, tuple[float, ...]], ...]


def draw(reads: Sequence[Sequence[int]]) -> Drawing:
    """Lay out nodes. `reads` has, for each node, the earlier nodes that it reads."""
    layers = _layers(reads)
    upper_neighbors: list[list[int]] = [[] for _ in reads]
    node_layers = list(layers)
    chains: list[tuple[int, int, tuple[int, ...]]] = []
    for number, sources in enumerate(reads):
        for source in dict.fromkeys(sources):
            layers_between = range(layers[source] + 1, layers[number])
            pieces = (
                tuple(range(len(node_layers), len(node_layers) + len(layers_between))) if len(layers_between) <= LONGEST else ()
            )
            if pieces or not layers_between:
                for piece, layer in zip(pieces, layers_between, strict=False):
                    node_layers.append(layer)
                    upper_neighbors.append([piece - 1 if piece > pieces[0] else source])
                upper_neighbors[number].append(pieces[-1] if pieces else source)
            chains.append((source, number, pieces))
    columns = _columns(node_layers, upper_neighbors)
    edges = tuple((source, number, tuple(columns[piece] for piece in pieces)) for source, number, pieces in chains)
    return Drawing(tuple(columns[: len(reads)]), tuple(layers), edges)


def _layers(reads: Sequence[Sequence[int]]) -> list[int]:
    """Assign layers. A node is one layer below its lowest operand or, without operands, directly above its first reader."""
    layers: list[int] = []
    for sources in reads:
        layers.append(max((layers[source] + 1 for source in sources), default=0))
    first: dict[int, int] = {}
    for number, sources in enumerate(reads):
        for source in sources:
            first[source] = min(first.get(source, layers[number]), layers[number])
    for number, sources in enumerate(reads):
        if not sources and number in first:
            layers[number] = first[number] - 1
    return layers


def _columns(node_layers: Sequence[int], upper_neighbors: Sequence[Sequence[int]]) -> list[float]:
    """Compute the columns of nodes from their layers and from their neighbors in the layer above."""
    lower_neighbors: list[list[int]] = [[] for _ in node_layers]
    rows: list[list[int]] = [[] for _ in range(max(node_layers, default=-1) + 1)]
    for node, sources in enumerate(upper_neighbors):
        rows[node_layers[node]].append(node)
        for source in sources:
            lower_neighbors[source].append(node)
    columns = [0.0] * len(node_layers)
    for row in rows:
        for position, node in enumerate(row):
            columns[node] = float(position)
    for is_ordered in (False, True):
        for sweep in range(2 * SWEEPS):
            neighbors = lower_neighbors if sweep % 2 else upper_neighbors
            for row in reversed(rows) if sweep % 2 else rows:
                targets = [_mean(columns, neighbors[node], columns[node]) for node in row]
                if not is_ordered:
                    order = sorted(range(len(row)), key=targets.__getitem__)
                    row[:] = [row[position] for position in order]
                    targets = [targets[position] for position in order]
                for node, column in zip(row, _spread(targets), strict=True):
                    columns[node] = column
    least = min(columns, default=0.0)
    return [column - least for column in columns]


def _mean(columns: Sequence[float], nodes: Sequence[int], otherwise: float) -> float:
    return sum(columns[node] for node in nodes) / len(nodes) if nodes else otherwise


def _spread(targets: Sequence[float]) -> list[float]:
    """Return the columns closest to `targets`, by least squares, that keep the order and are at least 1 apart."""
    blocks: list[tuple[float, int]] = []  # sum and number of pooled values, with the minimum distances subtracted
    for position, value in enumerate(targets):
        total, count = value - position, 1
        while blocks and blocks[-1][0] * count > total * blocks[-1][1]:
            pooled_total, pooled_count = blocks.pop()
            total, count = total + pooled_total, count + pooled_count
        blocks.append((total, count))
    flat = [total / count for total, count in blocks for _ in range(count)]
    return [value + position for position, value in enumerate(flat)]
