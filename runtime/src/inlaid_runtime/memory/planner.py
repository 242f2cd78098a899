"""Memory planner: assigns offsets in one arena so that buffers with overlapping lifetimes do not overlap.

Each buffer has a lifetime: the step that first writes it and the step that last uses it. Sizes and offsets are in bytes, as
integers or expressions over symbolic dimensions. An arena with symbolic sizes is planned once; evaluating its offsets costs a few
multiplications at run time.

Dynamic storage allocation is NP-hard. The planner packs greedily in several orders, keeps the best result, and stops at the first
that reaches the lower bound; on real models, nearly always the first or second one. The orders by size and by breadth are from
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import CompileError
from inlaid_runtime.memory.stacks import stacked
from inlaid_runtime.records import dataclass

_PROMOTIONS = 40
"""Maximum number of retries with the topmost buffer placed first. More retries do not improve plans of random graphs."""

_LARGE_BUFFER_COUNT = 2000
"""Number of buffers above which only the first two orders are tried, since each order then takes a fraction of a second."""

_MAX_BITS = 60
"""Number of bits of the sum of all sizes that is planned in 64-bit integers."""

_Ints = np.ndarray[Any, np.dtype[np.int64]]

HeadStarts = Mapping[tuple[int, int], int]
"""Minimum head starts, in bytes, by buffer numbers (over, under). Two buffers that are live at the same step may share memory if
the step writes `over` and reads `under` for the last time, and `over` begins at least the head start before `under`."""


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a buffer of `size` bytes: first written at step `first`, last used at step `last` (inclusive)."""

    size: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """A memory plan: byte offsets in the order of the buffers, and the size of the arena in bytes."""

    offsets: tuple[Dim, ...]
    size: Dim


def aligned(size: Dim, alignment: int = ALIGNMENT) -> Dim:
    """Round a size up to a multiple of the alignment."""
    return arith.unwrap(arith.mul(arith.ceildiv(size, alignment), alignment))


def plan(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT, head_starts: HeadStarts | None = None) -> Arena:
    """Assign an aligned offset to each buffer. Buffers with overlapping lifetimes share no byte. Pairs in `head_starts` (static
    sizes only) may: `over` then begins at least the head start before `under`.

    Symbolic sizes `c * f` with a common symbolic factor `f` are planned by their coefficients `c`; the result is scaled by `f`. If
    factors differ, `inlaid_runtime.memory.stacks` plans the buffers, and head starts are ignored.

    Raises `CompileError` if the buffers together have 2^60 bytes or more for each unit of the symbolic factor.
    """
    offsets: list[Dim] = [0] * len(buffers)
    end: Dim = 0
    groups = list(_groups(buffers, alignment))
    if len(groups) > 1:
        return Arena(*_stacked(buffers, alignment))
    for unit, members in groups:
        if sum(size for _, size in members).bit_length() > _MAX_BITS:
            size = max(size for _, size in members)
            largest = arith.unwrap(arith.mul(unit, size))
            raise CompileError(f"expected buffers of less than 2^{_MAX_BITS} bytes in all, got one of {largest!r} bytes")
        sizes = np.array([size for _, size in members], np.int64)
        first = np.array([buffers[index].first for index, _ in members], np.int64)
        last = np.array([buffers[index].last for index, _ in members], np.int64)
        shared = _shared(members, unit, head_starts) if head_starts else {}
        unit_offsets, peak = _pack(_BufferGroup(sizes, first, last, shared))
        for (index, _), offset in zip(members, unit_offsets.tolist(), strict=True):
            offsets[index] = arith.unwrap(arith.mul(unit, offset))
        end = arith.unwrap(arith.mul(unit, peak))
    return Arena(tuple(offsets), end)


def _stacked(buffers: Sequence[Lifetime], alignment: int) -> tuple[tuple[Dim, ...], Dim]:
    """Plan sizes with several symbolic factors. Returns the offsets and the size of the arena."""
    first = np.array([buffer.first for buffer in buffers], np.int64)
    last = np.array([buffer.last for buffer in buffers], np.int64)
    conflicts = [
        frozenset(np.flatnonzero((first <= buffer.last) & (last >= buffer.first)).tolist()) - {number}
        for number, buffer in enumerate(buffers)
    ]

    def packed(sizes: Sequence[int]) -> Sequence[int]:
        # Only the order of the offsets is used: sizes too large for 64 bits are planned in larger units.
        excess = max(sum(sizes).bit_length() - _MAX_BITS, 0)
        units = np.array([-(-size >> excess) for size in sizes], np.int64)
        offsets: Sequence[int] = _pack(_BufferGroup(units, first, last, {}))[0].tolist()
        return offsets

    return stacked([_terms(buffer.size, alignment) for buffer in buffers], conflicts, packed)


def _terms(size: Dim, alignment: int) -> dict[arith.Expr, int]:
    """Split an aligned size into {symbolic factor: coefficient}."""
    coefficient, factor = _split(size)
    if factor == arith.ONE:
        return {arith.ONE: -(-coefficient // alignment) * alignment} if coefficient else {}
    if coefficient % alignment == 0:
        return {factor: coefficient} if coefficient else {}
    return {arith.wrap(arith.unwrap(arith.ceildiv(size, alignment))): alignment}


def _shared(members: Sequence[tuple[int, int]], unit: Dim, head_starts: HeadStarts) -> dict[int, dict[int, int]]:
    """Map pairs of group members (over, under) to the units of `over` that may extend past the beginning of `under`."""
    positions = {index: position for position, (index, _) in enumerate(members)}
    overlaps: dict[int, dict[int, int]] = {}
    for (over, under), start in head_starts.items():
        if over in positions and under in positions:
            assert isinstance(unit, int)
            common = members[positions[over]][1] - arith.evaluate(arith.ceildiv(start, unit), {})
            if common > 0:
                overlaps.setdefault(positions[over], {})[positions[under]] = common
    return overlaps


@dataclass(frozen=True)
class _BufferGroup:
    """A group of buffers: sizes in units, lifetimes in steps, and the units by (over, under) that `_shared` returns. `sharing` has
    the same units by (under, over)."""

    sizes: _Ints
    first: _Ints
    last: _Ints
    shared: Mapping[int, Mapping[int, int]]

    @cached_property
    def sharing(self) -> Mapping[int, Mapping[int, int]]:
        overlaps: dict[int, dict[int, int]] = {}
        for over, partners in self.shared.items():
            for under, units in partners.items():
                overlaps.setdefault(under, {})[over] = units
        return overlaps


def lower_bound(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT, values: Mapping[arith.Expr, int] | None = None) -> int:
    """Return the largest sum of aligned sizes live at one step. No arena is smaller. `values` gives the symbolic dimensions."""
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
    """Group buffers that can share memory. Yields for each group its unit in bytes and the (number, size in units) of its members.

    Buffers whose coefficients are not multiples of the alignment form separate groups. Their unit is the greatest common divisor of
    the coefficients times the factor, aligned. In a common group, one buffer with few bytes per row would enlarge all units.
    """
    groups: dict[tuple[arith.Expr, bool], list[tuple[int, int]]] = {}
    for index, buffer in enumerate(buffers):
        coefficient, factor = _split(buffer.size)
        if factor == arith.ONE:
            coefficient = -(-coefficient // alignment) * alignment
        groups.setdefault((factor, coefficient % alignment == 0), []).append((index, coefficient))
    for (factor, is_aligned), members in groups.items():
        step = alignment if is_aligned else math.gcd(*(size for _, size in members))
        unit = arith.unwrap(arith.mul(factor, step))
        yield unit if is_aligned else aligned(unit, alignment), [(index, size // step) for index, size in members]


def _split(size: Dim) -> tuple[int, arith.Expr]:
    """Split a size into an integer coefficient and a symbolic factor (1 for an integer), neither of them negative."""
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
    factor = arith.balanced(arith.mul, sorted(factors, key=repr)) if factors else arith.ONE
    # A rounded-up quotient is minus a negative one: -(-n // 4).
    return (-coefficient, factor * -1) if coefficient < 0 else (coefficient, factor)


def _pack(buffers: _BufferGroup) -> tuple[_Ints, int]:
    """Pack buffers of integer sizes. Returns their offsets and the peak, in units."""
    bound = _peak_lower_bound(buffers)
    best: tuple[_Ints, int] | None = None
    best_order: _Ints | None = None
    orders = _orders(buffers)
    is_large = len(buffers.sizes) > _LARGE_BUFFER_COUNT
    for order in orders[:2] if is_large else orders:
        for fit in _FITS:
            result = _assign_offsets(order, buffers, fit, bound)
            if best is None or result[1] < best[1]:
                best, best_order = result, order
            if best[1] <= bound:
                return best
    assert best is not None and best_order is not None
    return best if is_large else _promote(best, best_order, bound, buffers)


def _peak_lower_bound(buffers: _BufferGroup) -> int:
    """Return a lower bound of the peak: the largest sum of sizes live at a step, minus the units that may be shared."""
    live = _live_bytes(buffers.sizes, buffers.first, buffers.last)
    begin, _, _ = _steps(buffers.first, buffers.last)
    for over, partners in buffers.shared.items():
        for under, common in partners.items():
            live[begin[over]] -= min(common, int(buffers.sizes[under]))
    return int(max(live.max(initial=0), buffers.sizes.max(initial=0)))


def _promote(best: tuple[_Ints, int], order: _Ints, bound: int, buffers: _BufferGroup) -> tuple[_Ints, int]:
    """Try to lower the peak by placing the topmost buffers first."""
    result = best
    for _ in range(_PROMOTIONS):
        tops = result[0] + buffers.sizes
        highest = tops[order] == tops.max()
        order = np.concatenate([order[highest], order[~highest]])
        result = _assign_offsets(order, buffers, "lowest", bound)
        if result[1] < best[1]:
            best = result
        if best[1] <= bound:
            break
    return best


Fit = Literal["lowest", "tightest", "ends"]
_FITS: tuple[Fit, ...] = ("lowest", "tightest", "ends")


def _assign_offsets(order: _Ints, buffers: _BufferGroup, fit: Fit, bound: int) -> tuple[_Ints, int]:
    """Place buffers in the given order, each in the lowest or tightest gap between the placed buffers that it conflicts with. The
    fit "ends" also considers the gap between the topmost buffer and the lower bound, and fills this gap from its upper end. Later
    buffers then have one contiguous gap between the two ends, which suits chains of alternating large buffers."""
    sizes, first, last = buffers.sizes, buffers.first, buffers.last
    offsets = np.zeros(len(sizes), np.int64)
    starts, ends = first[order], last[order]
    low, high = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    ranks = dict(zip(order.tolist(), range(len(order)), strict=True)) if buffers.shared else {}
    peak = 0
    for count, index in enumerate(order.tolist()):
        size = int(sizes[index])
        conflict = (starts[:count] <= last[index]) & (ends[:count] >= first[index])
        floor, ceiling = low[:count].copy(), high[:count].copy()
        # A buffer placed above another may begin earlier by the shared units, and one below another may end later by them.
        for edges, shared, sign in ((floor, buffers.shared, 1), (ceiling, buffers.sharing, -1)):
            for other, units in shared.get(index, {}).items():
                if ranks[other] < count:
                    edges[ranks[other]] += sign * units
        offset = _gap(floor[conflict], ceiling[conflict], size, fit, bound)
        offsets[index] = low[count] = offset
        high[count] = offset + size
        peak = max(peak, offset + size)
    return offsets, peak


def _gap(low: _Ints, high: _Ints, size: int, fit: Fit, bound: int) -> int:
    """Find an offset at which `size` units overlap none of the intervals [low, high)."""
    if size == 0 or not len(low):
        return 0
    by_low = np.argsort(low, kind="stable")
    floors = np.maximum.accumulate(np.concatenate([[0], high[by_low]]))
    gap_sizes = low[by_low] - floors[:-1]
    if fit == "ends":
        gap_sizes = np.append(gap_sizes, bound - floors[-1])
    candidates = np.flatnonzero(gap_sizes >= size)
    if not len(candidates):
        return int(floors[-1])
    gap = candidates[0] if fit == "lowest" else candidates[np.argmin(gap_sizes[candidates])]
    return bound - size if gap == len(low) else int(floors[gap])


def _orders(buffers: _BufferGroup) -> list[_Ints]:
    """Return orders in which to place buffers: by size, by breadth (the most units live at one of their steps), by area (size times
    number of steps), by first step, and by number of steps. If buffers may share memory, two orders with later buffers first come
    before these. They suit a chain of buffers, each of which begins in the arena slightly below its operand."""
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
    """Renumber the steps without gaps. Returns the first steps, the last steps, and the number of steps."""
    points, numbers = np.unique(np.concatenate([first, last]), return_inverse=True)
    return numbers[: len(first)], numbers[len(first) :], len(points)


def _live_bytes(sizes: _Ints, first: _Ints, last: _Ints) -> _Ints:
    """Return the sum of live sizes at each (renumbered) step."""
    begin, end, count = _steps(first, last)
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, begin, sizes)
    np.add.at(change, end + 1, -sizes)
    return np.cumsum(change[:-1])


def _window_max(live: _Ints, first: _Ints, last: _Ints) -> _Ints:
    """Return, for each buffer, the largest sum of live sizes during its lifetime."""
    begin, end, _ = _steps(first, last)
    return np.array([live[a : b + 1].max() for a, b in zip(begin.tolist(), end.tolist(), strict=True)], np.int64)
