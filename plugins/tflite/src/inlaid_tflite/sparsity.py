"""Dense arrays of sparse constants.

A sparse tensor is a tree: level by level, the coordinates along one dimension, in the order of traversal. A dense level has all
coordinates below each node, a compressed one those of a list (segments and indices). Dimensions that are divided into blocks have a
second, dense level for the position within the block. See `SparsityParameters` in TensorFlow Lite's schema.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlaid_runtime.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Level:
    """A level of the tree. `size` is that of a dense level. A compressed level has `segments`, the ends of the lists of all nodes,
    with a leading 0, and the `indices` in these lists."""

    size: int
    segments: Array | None = None
    indices: Array | None = None


def dense(values: Array, shape: tuple[int, ...], order: Sequence[int], blocked: Sequence[int], levels: Sequence[Level]) -> Array:
    """Return the dense array of the stored `values`; other elements are 0. `order` has the dimension of each level;
    rank + n stands for the position within a block of dimension `blocked[n]`. Raises ValueError for inconsistent data."""
    rank = len(shape)
    if 0 in shape:
        raise ValueError(f"a sparse tensor must have elements, got shape {shape}")
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order) or len(set(blocked)) != len(blocked):
        raise ValueError(f"a sparse tensor must traverse each of its {rank} dimensions and {len(blocked)} blocks once")
    if any(not 0 <= axis < rank for axis in blocked):
        raise ValueError(f"the blocks of a sparse tensor must be in its {rank} dimensions")
    sizes = dict(enumerate(shape))
    steps = {axis: math.prod(shape[axis + 1 :]) for axis in range(rank)}
    for number, axis in enumerate(blocked):
        block = levels[list(order).index(rank + number)]
        if block.segments is not None or block.size < 1 or shape[axis] % block.size:
            raise ValueError(f"a block of a sparse tensor must be dense and divide dimension {axis}, {shape[axis]}")
        sizes[axis], sizes[rank + number] = shape[axis] // block.size, block.size
        steps[axis], steps[rank + number] = steps[axis] * block.size, steps[axis]
    # Dense levels can have more nodes than a file has bytes, so nothing is allocated before the count is that of the values.
    nodes = 1
    for dimension, level in zip(order, levels, strict=True):
        nodes = _count_children(nodes, sizes[dimension], level)
    if nodes != values.size:
        raise ValueError(f"a sparse tensor must have a value for each of its {nodes} places, got {values.size}")
    positions = np.zeros(1, np.int64)
    for dimension, level in zip(order, levels, strict=True):
        parents, coordinates = _children(len(positions), level)
        positions = positions[parents] + coordinates * steps[dimension]
    result = np.zeros(shape, values.dtype)
    result.reshape(-1)[positions] = values
    return result


def _count_children(nodes: int, size: int, level: Level) -> int:
    """Return the number of nodes below `nodes` nodes, along `size` coordinates. Raises ValueError for an inconsistent level."""
    segments, indices = level.segments, level.indices
    if segments is None or indices is None:
        if level.size != size:
            raise ValueError(f"a dense level of a sparse tensor must have size {size}, got {level.size}")
        return nodes * size
    counts = np.diff(segments)
    if len(segments) != nodes + 1 or segments[0] or segments[-1] != len(indices) or np.any(counts < 0) or np.any(counts > size):
        raise ValueError(f"a compressed level of a sparse tensor must have {nodes + 1} ascending segments up to {len(indices)}")
    if np.any((indices < 0) | (indices >= size)):
        raise ValueError(f"the indices of a compressed level must be >= 0 and < {size}")
    return len(indices)


def _children(nodes: int, level: Level) -> tuple[Array, Array]:
    """Return the parents and coordinates of the nodes below `nodes` nodes."""
    if level.segments is None or level.indices is None:
        return np.repeat(np.arange(nodes), level.size), np.tile(np.arange(level.size), nodes)
    return np.repeat(np.arange(nodes), np.diff(level.segments)), level.indices


def element_count(shape: tuple[int, ...], limit: int) -> int:
    """Return the number of elements. Raises ValueError for more than `limit`."""
    count = math.prod(shape)
    if count > limit:
        raise ValueError(f"a sparse tensor must have at most {limit} elements for this size of its file, got {count}")
    return count
