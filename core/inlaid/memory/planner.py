"""Places buffers in one arena so that buffers that live at the same time do not overlap.

Each buffer is written at one step of a sequence and last used at another. Sizes are bytes, integers or expressions over symbolic
dimensions; offsets are of the same kind, so that an arena with symbolic sizes is laid out once and costs a few multiplications at
run time.

Placing rectangles of fixed width (dynamic storage allocation) is NP-hard. The planner places greedily, in several orders, takes
the best result, and stops at the first that reaches the lower bound, which on real models is nearly always the first or second.
The orders by size and by breadth are those of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.artifact import ALIGNMENT
from inlaid.memory.stacks import stacked

_PROMOTIONS = 40
"""How often the planner tries again with the buffer at the top placed first; chosen so that random graphs gain nothing more."""

_MANY = 2000
"""Number of buffers from which on only the first two orders are tried: each costs a fraction of a second there."""

_Ints = np.ndarray[Any, np.dtype[np.int64]]

HeadStarts = Mapping[tuple[int, int], int]
"""By how many bytes one buffer must begin before another that the two may share memory at a step at which both live, by their
numbers: what is written there, and what is read there for the last time."""


@dataclass(frozen=True)
class Lifetime:
    """A buffer that wants a place: `size` in bytes, written at step `first` and last used at step `last` (inclusive)."""

    size: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Where buffers lie: byte offsets in the order of the buffers, and the size of the arena, in bytes."""

    offsets: tuple[Dim, ...]
    size: Dim


def aligned(size: Dim, alignment: int = ALIGNMENT) -> Dim:
    """The size rounded up to a multiple of the alignment."""
    return arith.unwrap(arith.mul(arith.ceildiv(size, alignment), alignment))


def plan(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT, head_starts: HeadStarts | None = None) -> Arena:
    """Places for all buffers, each aligned. Two buffers whose steps overlap never share a byte, but for those that have a head
    start, which must be of known sizes: of these the first begins so far before the second, or they lie apart.

    Symbolic sizes `c * f` with the same symbolic factor `f` are planned by their coefficients `c`, and the result is scaled by `f`.
    Where factors differ, `inlaid.memory.stacks` finds places; head starts then are not made use of.
    """
    offsets: list[Dim] = [0] * len(buffers)
    end: Dim = 0
    groups = list(_groups(buffers, alignment))
    if len(groups) > 1:
        return Arena(*_stacked(buffers, alignment))
    for unit, members in groups:
        sizes = np.array([size for _, size in members], np.int64)
        first = np.array([buffers[index].first for index, _ in members], np.int64)
        last = np.array([buffers[index].last for index, _ in members], np.int64)
        shared = _shared(members, unit, head_starts) if head_starts else {}
        places, peak = _pack(_Buffers(sizes, first, last, shared))
        for (index, _), place in zip(members, places.tolist(), strict=True):
            offsets[index] = arith.unwrap(arith.mul(unit, place))
        end = arith.unwrap(arith.mul(unit, peak))
    return Arena(tuple(offsets), end)


def _stacked(buffers: Sequence[Lifetime], alignment: int) -> tuple[tuple[Dim, ...], Dim]:
    """Offsets and the size of the arena, where sizes have several symbolic factors."""
    first = np.array([buffer.first for buffer in buffers], np.int64)
    last = np.array([buffer.last for buffer in buffers], np.int64)
    conflicts = [
        frozenset(np.flatnonzero((first <= buffer.last) & (last >= buffer.first)).tolist()) - {number}
        for number, buffer in enumerate(buffers)
    ]

    def packed(sizes: Sequence[int]) -> Sequence[int]:
        found: Sequence[int] = _pack(_Buffers(np.array(sizes, np.int64), first, last, {}))[0].tolist()
        return found

    return stacked([_terms(buffer.size, alignment) for buffer in buffers], conflicts, packed)


def _terms(size: Dim, alignment: int) -> dict[arith.Expr, int]:
    """An aligned size as a multiple of a symbolic factor."""
    coefficient, factor = _split(size)
    if factor == arith.ONE:
        return {arith.ONE: -(-coefficient // alignment) * alignment} if coefficient else {}
    if coefficient % alignment == 0:
        return {factor: coefficient} if coefficient else {}
    return {arith.wrap(arith.unwrap(arith.ceildiv(size, alignment))): alignment}


def _shared(members: Sequence[tuple[int, int]], unit: Dim, head_starts: HeadStarts) -> dict[int, dict[int, int]]:
    """How many units of a group's buffer may lie beyond the beginning of another, both by place in the group."""
    places = {index: place for place, (index, _) in enumerate(members)}
    found: dict[int, dict[int, int]] = {}
    for (over, under), start in head_starts.items():
        if over in places and under in places:
            assert isinstance(unit, int)
            common = members[places[over]][1] - arith.evaluate(arith.ceildiv(start, unit), {})
            if common > 0:
                found.setdefault(places[over], {})[places[under]] = common
    return found


@dataclass(frozen=True)
class _Buffers:
    """A group of buffers: sizes in units, steps, and what may share memory: see `_shared`."""

    sizes: _Ints
    first: _Ints
    last: _Ints
    shared: Mapping[int, Mapping[int, int]]

    def common(self, over: int, under: int) -> int:
        return self.shared.get(over, {}).get(under, 0)


def lower_bound(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT, values: Mapping[arith.Expr, int] | None = None) -> int:
    """The largest sum of aligned sizes that live at one step: no arena can be smaller. `values` gives the symbolic dimensions."""
    steps: dict[int, int] = {}
    for buffer in buffers:
        size = arith.evaluate(aligned(buffer.size, alignment), values or {})
        steps[buffer.first] = steps.get(buffer.first, 0) + size
        steps[buffer.last + 1] = steps.get(buffer.last + 1, 0) - size
    live = peak = 0
    for step in sorted(steps):
        live += steps[step]
        peak = max(peak, live)
    return peak


def _groups(buffers: Sequence[Lifetime], alignment: int) -> Iterator[tuple[Dim, list[tuple[int, int]]]]:
    """Groups of buffers that can share memory: the unit in bytes, and for each member its number and its size in units.

    Coefficients that are no multiple of the alignment form groups of their own, counted in aligned multiples of what they have in
    common, since a buffer of few bytes a row would otherwise spoil the unit for all.
    """
    found: dict[tuple[arith.Expr, bool], list[tuple[int, int]]] = {}
    for index, buffer in enumerate(buffers):
        coefficient, factor = _split(buffer.size)
        if factor == arith.ONE:
            coefficient = -(-coefficient // alignment) * alignment
        found.setdefault((factor, coefficient % alignment == 0), []).append((index, coefficient))
    for (factor, is_aligned), members in found.items():
        step = alignment if is_aligned else math.gcd(*(size for _, size in members))
        unit = arith.unwrap(arith.mul(factor, step))
        yield unit if is_aligned else aligned(unit, alignment), [(index, size // step) for index, size in members]


def _split(size: Dim) -> tuple[int, arith.Expr]:
    """A size as an integer times a symbolic factor, which is 1 for a plain integer."""
    coefficient = 1
    factors: list[arith.Expr] = []
    stack = [arith.wrap(size)]
    while stack:
        node = stack.pop()
        if isinstance(node, arith.Const):
            coefficient *= node.value
        elif isinstance(node, arith.Mul):
            stack.extend(node.operands)
        else:
            factors.append(node)
    factor: arith.Expr = arith.ONE
    for item in sorted(factors, key=repr):
        factor = arith.mul(factor, item)
    return coefficient, factor


def _pack(buffers: _Buffers) -> tuple[_Ints, int]:
    """Offsets and peak, in units, for integer sizes."""
    bound = _least(buffers)
    best: tuple[_Ints, int] | None = None
    best_order: _Ints | None = None
    orders = _orders(buffers)
    many = len(buffers.sizes) > _MANY
    for order in orders[:2] if many else orders:
        for fit in _FITS:
            result = _place(order, buffers, fit, bound)
            if best is None or result[1] < best[1]:
                best, best_order = result, order
            if best[1] <= bound:
                return best
    assert best is not None and best_order is not None
    return best if many else _promote(best, best_order, bound, buffers)


def _least(buffers: _Buffers) -> int:
    """The greatest sum of sizes that live at a step, less what may lie twice."""
    live = _live_bytes(buffers.sizes, buffers.first, buffers.last)
    begin, _, _ = _steps(buffers.first, buffers.last)
    for over, others in buffers.shared.items():
        for under, common in others.items():
            live[begin[over]] -= min(common, int(buffers.sizes[under]))
    return int(max(live.max(initial=0), buffers.sizes.max(initial=0)))


def _promote(best: tuple[_Ints, int], order: _Ints, bound: int, buffers: _Buffers) -> tuple[_Ints, int]:
    """Try to lower the peak by placing first what lies highest."""
    result = best
    for _ in range(_PROMOTIONS):
        tops = result[0] + buffers.sizes
        highest = tops[order] == tops.max()
        order = np.concatenate([order[highest], order[~highest]])
        result = _place(order, buffers, "lowest", bound)
        if result[1] < best[1]:
            best = result
        if best[1] <= bound:
            break
    return best


Fit = Literal["lowest", "tightest", "ends"]
_FITS: tuple[Fit, ...] = ("lowest", "tightest", "ends")


def _place(order: _Ints, buffers: _Buffers, fit: Fit, bound: int) -> tuple[_Ints, int]:
    """Place buffers in an order, each in the lowest or in the tightest gap between those placed already that live with it. With
    "ends", what lies above all others counts as a gap up to the lower bound, whose upper end is filled first: so what comes later
    has one run of memory between the two ends, where chains of large buffers take turns."""
    sizes, first, last = buffers.sizes, buffers.first, buffers.last
    offsets = np.zeros(len(sizes), np.int64)
    starts, ends = first[order], last[order]
    low, high = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    peak = 0
    for count, index in enumerate(order.tolist()):
        size = int(sizes[index])
        conflict = (starts[:count] <= last[index]) & (ends[:count] >= first[index])
        floor, ceiling = low[:count][conflict], high[:count][conflict]
        if buffers.shared:
            # What may be shared keeps a buffer that lies over another from less of it, and this one from less of the former.
            others = order[:count][conflict].tolist()
            floor = floor + np.array([buffers.common(index, other) for other in others], np.int64)
            ceiling = ceiling - np.array([buffers.common(other, index) for other in others], np.int64)
        offset = _gap(floor, ceiling, size, fit, bound)
        offsets[index] = low[count] = offset
        high[count] = offset + size
        peak = max(peak, offset + size)
    return offsets, peak


def _gap(low: _Ints, high: _Ints, size: int, fit: Fit, bound: int) -> int:
    """An offset at which `size` units overlap none of the intervals [low, high)."""
    if size == 0 or not len(low):
        return 0
    by_low = np.argsort(low, kind="stable")
    floors = np.maximum.accumulate(np.concatenate([[0], high[by_low]]))
    room = low[by_low] - floors[:-1]
    if fit == "ends":
        room = np.append(room, bound - floors[-1])
    fitting = np.flatnonzero(room >= size)
    if not len(fitting):
        return int(floors[-1])
    chosen = fitting[0] if fit == "lowest" else fitting[np.argmin(room[fitting])]
    return bound - size if chosen == len(low) else int(floors[chosen])


def _orders(buffers: _Buffers) -> list[_Ints]:
    """Orders in which to place: by size, by breadth, by area, by first use, by number of steps. All are deterministic. Where memory
    is shared, the last comes first: a chain of buffers each of which begins a little before what it is computed from."""
    sizes, first, last = buffers.sizes, buffers.first, buffers.last
    live = _live_bytes(sizes, first, last)
    breadth = _window_max(live, first, last)
    length = last - first + 1
    keys: list[tuple[_Ints, ...]] = [
        (first, -sizes),
        (-sizes, -breadth),
        (-length * sizes,),
        (-sizes, first),
        (-sizes, -length),
    ]
    if buffers.shared:
        keys = [(-sizes, -first), (-sizes, -last), *keys]
    return [np.lexsort(key) for key in keys]


def _steps(first: _Ints, last: _Ints) -> tuple[_Ints, _Ints, int]:
    """The steps renumbered without gaps, and how many there are."""
    points, numbers = np.unique(np.concatenate([first, last]), return_inverse=True)
    return numbers[: len(first)], numbers[len(first) :], len(points)


def _live_bytes(sizes: _Ints, first: _Ints, last: _Ints) -> _Ints:
    """The sum of sizes that live at each step (renumbered)."""
    begin, end, count = _steps(first, last)
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, begin, sizes)
    np.add.at(change, end + 1, -sizes)
    return np.cumsum(change[:-1])


def _window_max(live: _Ints, first: _Ints, last: _Ints) -> _Ints:
    """For each buffer, the greatest live sum during its life."""
    begin, end, _ = _steps(first, last)
    return np.array([live[a : b + 1].max() for a, b in zip(begin.tolist(), end.tolist(), strict=True)], np.int64)
