"""Plans buffers whose sizes have different symbolic factors, e.g. attention: some sizes are linear, some quadratic in the sequence
length.

The buffers are packed at sample sizes, which are integers. The resulting vertical order is valid for all sizes: the offset of a
buffer is the maximum of the ends of the buffers below it whose lifetimes overlap its own. Buffers thus never overlap, whatever the
sizes, and memory is reused at all sizes, not only between sizes that are multiples of one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass

SMALL = 16
"""The value of a small dimension in samples that mix small and large dimensions."""

LARGE_BUFFER_COUNT = 64
"""Number of buffers above which fewer samples are packed, since each sample then takes a large part of a second."""


@dataclass(frozen=True)
class End:
    """The end of a buffer: `base` plus `terms`, non-negative expressions with positive coefficients."""

    base: arith.Expr
    terms: dict[arith.Expr, int]

    def covers(self, other: End) -> bool:
        """Test whether this end is at least `other` for all sizes."""
        is_base_covered = other.base in (self.base, arith.ZERO)
        return is_base_covered and all(self.terms.get(term, 0) >= factor for term, factor in other.terms.items())

    def beyond(self, terms: dict[arith.Expr, int]) -> End:
        """Return this end plus `terms`."""
        return End(self.base, {term: self.terms.get(term, 0) + terms.get(term, 0) for term in (*self.terms, *terms)})


class _Sums:
    """Builds the sums of ends. Sums of buffers stacked on one another share most of their nodes, which are built once."""

    def __init__(self) -> None:
        self._products: dict[tuple[arith.Expr, int], arith.Expr] = {}
        self._sums: dict[tuple[int, int], arith.Expr] = {}  # by the ids of operands, which `_operands` keeps alive
        self._operands: list[arith.Expr] = []

    def expr(self, end: End) -> arith.Expr:
        """Return an end as an expression."""
        return arith.balanced(self._sum, [end.base, *map(self._product, end.terms.items())])

    def _product(self, item: tuple[arith.Expr, int]) -> arith.Expr:
        if item not in self._products:
            self._products[item] = arith.mul(*item)
        return self._products[item]

    def _sum(self, a: arith.Expr, b: arith.Expr) -> arith.Expr:
        key = id(a), id(b)
        if key not in self._sums:
            self._sums[key] = arith.add(a, b)
            self._operands += (a, b)
        return self._sums[key]


def stacked(
    sizes: Sequence[dict[arith.Expr, int]], conflicts: Sequence[frozenset[int]], pack: Callable[[Sequence[int]], Sequence[int]]
) -> tuple[tuple[Dim, ...], Dim]:
    """Plan offsets, in bytes, for buffers of symbolic sizes, and the size of the arena. `sizes` maps expressions to coefficients,
    as `End.terms`. `conflicts` has for each buffer the numbers of buffers with overlapping lifetimes. `pack` plans integer sizes.
    Each of several samples yields an order of the buffers, and each order an arena. Chosen is the order whose arena has, over all
    samples, the smallest worst-case ratio to the smallest arena of the sample."""
    samples = _samples(sizes)
    plans = []
    for sample in samples:
        evaluated = arith.Evaluation(sample)
        values = {term: evaluated(term) for size in sizes for term in size}
        sample_offsets = pack([sum(factor * values[term] for term, factor in size.items()) for size in sizes])
        plans.append(_stack(sizes, conflicts, sample_offsets))
    ends = [[arith.evaluate(end, sample) for sample in samples] for _, end in plans]
    least_ends = [max(min(column), 1) for column in zip(*ends, strict=True)]
    # Sizes of many dimensions exceed the range of floats.
    worst_ratios = [max(Fraction(end, least) for end, least in zip(row, least_ends, strict=True)) for row in ends]
    return plans[worst_ratios.index(min(worst_ratios))]


def _stack(
    sizes: Sequence[dict[arith.Expr, int]], conflicts: Sequence[frozenset[int]], sample_offsets: Sequence[int]
) -> tuple[tuple[Dim, ...], Dim]:
    """Stack buffers in the order of their offsets at a sample. Returns symbolic offsets and the size of the arena."""
    sums = _Sums()
    ends: list[End] = [End(arith.ZERO, {})] * len(sizes)
    offsets: list[Dim] = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda number: (sample_offsets[number], number))
    ranks = {number: rank for rank, number in enumerate(order)}
    below: list[int] = []  # by rank, the ranks of all buffers below, as a bit mask
    tops = 0
    for rank, number in enumerate(order):
        direct: list[int] = []
        under = 0
        for other in sorted((ranks[item] for item in conflicts[number] if ranks[item] < rank), reverse=True):
            if not under >> other & 1:
                direct.append(other)
                under |= below[other] | 1 << other
        below.append(under)
        tops = tops & ~under | 1 << rank
        start = _greatest([ends[order[other]] for other in direct], sums)
        offsets[number], ends[number] = arith.unwrap(sums.expr(start)), start.beyond(sizes[number])
    topmost = [number for number, rank in sorted(ranks.items()) if tops >> rank & 1]
    return tuple(offsets), arith.unwrap(sums.expr(_greatest([ends[number] for number in topmost], sums)))


def _greatest(ends: Sequence[End], sums: _Sums) -> End:
    """Return the greatest of several ends; 0 if there are none."""
    maxima: list[End] = []
    for item in ends:
        if not any(other.covers(item) for other in maxima):
            maxima = [other for other in maxima if not item.covers(other)] + [item]
    if len(maxima) < 2:
        return maxima[0] if maxima else End(arith.ZERO, {})
    return End(arith.balanced(arith.maximum, [sums.expr(item) for item in maxima]), {})


def _samples(sizes: Sequence[dict[arith.Expr, int]]) -> list[dict[arith.Expr, int]]:
    """Return sample sizes: the sizes that cost models assume, small sizes, and each dimension large while all others are small."""
    names = sorted({name for size in sizes for term in size for name in arith.free_vars(term)}, key=repr)
    usual = {name: arith.size_hint(arith.unwrap(name)) for name in names}
    least = {name: max(1, name.lower if isinstance(name, arith.SizeVar) else 0) for name in names}
    small = {name: min(usual[name], max(SMALL, least[name])) for name in names}
    if len(sizes) > LARGE_BUFFER_COUNT:
        return [usual, small]
    return [usual, small, least, *({**small, name: usual[name]} for name in names[:4] if len(names) > 1)]
