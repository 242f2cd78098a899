"""Folding of a loop nest into the two loop registers of an instruction and a list of micro-ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import NamedTuple

MAX_ITERATIONS = (1 << 14) - 1
_DISTANCE = 2
"""Pipeline depth: after a micro-op, the next `_DISTANCE` micro-ops must not write the same accumulator."""


class Dim(NamedTuple):
    """A loop. `steps`: how far an iteration moves each micro-op index; the index of the destination is first."""

    extent: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Folded:
    """Loop registers and micro-ops of instructions. `out`, `inner`: the loops in the registers. `offsets`: indices of each
    micro-op. `starts`: the first indices of each instruction. There is more than one instruction if one does not suffice."""

    out: Dim
    inner: Dim
    offsets: tuple[tuple[int, ...], ...]
    starts: tuple[tuple[int, ...], ...]


def fold(dims: Sequence[Dim], limits: tuple[int, ...], max_uops: int) -> Folded:
    """Fold a nest, whose iterations may run in any order, into the fewest instructions. Among these, choose the fewest micro-ops.

    limits: largest step of each index that fits the registers. max_uops: maximum number of micro-ops of an instruction. In the
    result, no destination repeats within `_DISTANCE` micro-ops.
    """
    unit = Dim(1, (0,) * len(limits))
    dims = _merged([dim for dim in dims if dim.extent > 1])
    for peeled in sorted(range(1 << len(dims)), key=lambda mask: prod(dim.extent for n, dim in enumerate(dims) if mask >> n & 1)):
        outer_dims = [dim for n, dim in enumerate(dims) if peeled >> n & 1]
        inner_dims = [dim for n, dim in enumerate(dims) if not peeled >> n & 1]
        starts = tuple(_offsets(outer_dims, len(limits)))
        fitting = [unit, unit, *(dim for dim in inner_dims if _fits(dim, limits))]
        pairs = sorted(permutations(range(len(fitting)), 2), key=lambda pair: -fitting[pair[0]].extent * fitting[pair[1]].extent)
        for a, b in pairs:
            remaining_dims = [dim for dim in inner_dims if dim is not fitting[a] and dim is not fitting[b]]
            if prod(dim.extent for dim in remaining_dims) > max_uops:
                break
            for order in _orders(remaining_dims):
                offsets = tuple(_offsets(order, len(limits)))
                if _spaced([offset[0] for offset in offsets], fitting[a], fitting[b]):
                    return Folded(fitting[a], fitting[b], offsets, starts)
    raise AssertionError("instructions of one micro-op each are always possible")


def _merged(dims: list[Dim]) -> list[Dim]:
    """Merge dimensions whose indices are contiguous."""
    for outer, inner in permutations(range(len(dims)), 2):
        a, b = dims[outer], dims[inner]
        if a.steps == tuple(step * b.extent for step in b.steps) and a.extent * b.extent <= MAX_ITERATIONS:
            rest = [dim for number, dim in enumerate(dims) if number not in (outer, inner)]
            return _merged([*rest, Dim(a.extent * b.extent, b.steps)])
    return dims


def _fits(dim: Dim, limits: tuple[int, ...]) -> bool:
    return dim.extent <= MAX_ITERATIONS and all(0 <= step <= limit for step, limit in zip(dim.steps, limits, strict=True))


def _offsets(dims: Sequence[Dim], width: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of all iterations, the last dimension innermost."""
    for steps in product(*(range(dim.extent) for dim in dims)):
        yield tuple(sum(dim.steps[n] * step for dim, step in zip(dims, steps, strict=True)) for n in range(width))


def _orders(dims: list[Dim]) -> Iterator[Sequence[Dim]]:
    """Yield loop orders to try. In the first order, the longest loop that moves the destination is innermost."""
    best = sorted(dims, key=lambda dim: (dim.steps[0] != 0, dim.extent))
    yield best
    if len(dims) <= 4:
        yield from permutations(best)


def _spaced(offsets: Sequence[int], out: Dim, inner: Dim) -> bool:
    """Test that no destination repeats within `_DISTANCE`, also across iterations of the registers. The test checks only the first
    and last iterations, since the iterations between repeat the same pattern."""
    ends = sorted({n for n in (0, 1, inner.extent - 2, inner.extent - 1) if 0 <= n < inner.extent})
    starts = [i * out.steps[0] + j * inner.steps[0] for i in range(min(out.extent, 3)) for j in ends]
    destinations = [start + offset for start in starts for offset in offsets]
    return all(
        destinations[n] != destinations[n - distance]
        for distance in range(1, _DISTANCE + 1)
        for n in range(distance, len(destinations))
    )
