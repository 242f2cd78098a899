"""Places for buffers whose sizes do not grow alike, such as those of attention, quadratic in the sequence, beside linear ones.

At sample sizes such buffers are buffers of integer sizes, and are packed as these are. What carries over to all sizes is which lies
above which: the offset of a buffer is the greatest end of those below it that live when it does. No two overlap whatever the sizes,
and memory that one buffer leaves is used by others at all sizes, not only where both are multiples of one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlaid import arith
from inlaid.arith import Dim

SMALL = 16
"""A size of a dimension in samples where others are large."""

MANY = 64
"""Buffers from which on fewer samples are packed: each takes a good part of a second there."""


@dataclass(frozen=True)
class End:
    """Where a buffer ends: `terms` beyond `base`. These are expressions that are never negative, with positive factors."""

    base: arith.Expr
    terms: dict[arith.Expr, int]

    def covers(self, other: End) -> bool:
        """Whether it is at least another, whatever the sizes."""
        same = other.base in (self.base, arith.ZERO)
        return same and all(self.terms.get(term, 0) >= factor for term, factor in other.terms.items())

    def beyond(self, terms: dict[arith.Expr, int]) -> End:
        """So much further."""
        return End(self.base, {term: self.terms.get(term, 0) + terms.get(term, 0) for term in (*self.terms, *terms)})

    @property
    def expr(self) -> arith.Expr:
        total = self.base
        for term, factor in self.terms.items():
            total = arith.add(total, arith.mul(term, factor))
        return total


def stacked(
    sizes: Sequence[dict[arith.Expr, int]], conflicts: Sequence[frozenset[int]], pack: Callable[[Sequence[int]], Sequence[int]]
) -> tuple[tuple[Dim, ...], Dim]:
    """Offsets for buffers of symbolic sizes, in bytes, and the size of the arena. `sizes` are sums as of `End`; `conflicts` the
    numbers of those that live at a time with each; `pack` gives offsets for integer sizes. Of the orders found for several samples
    the one whose greatest excess over the best at the same sample is least is taken."""
    samples = _samples(sizes)
    found = []
    for sample in samples:
        values = {term: arith.evaluate(term, sample) for size in sizes for term in size}
        places = pack([sum(factor * values[term] for term, factor in size.items()) for size in sizes])
        found.append(_stack(sizes, conflicts, places))
    ends = [[arith.evaluate(end, sample) for sample in samples] for _, end in found]
    best = [max(min(column), 1) for column in zip(*ends, strict=True)]
    excess = [max(end / least for end, least in zip(row, best, strict=True)) for row in ends]
    return found[excess.index(min(excess))]


def _stack(
    sizes: Sequence[dict[arith.Expr, int]], conflicts: Sequence[frozenset[int]], places: Sequence[int]
) -> tuple[tuple[Dim, ...], Dim]:
    """Offsets of buffers above one another, in the order in which they lie at a sample, and the end of all."""
    ends: list[End] = [End(arith.ZERO, {})] * len(sizes)
    offsets: list[Dim] = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda number: (places[number], number))
    below: dict[int, set[int]] = {}
    tops: set[int] = set()
    for place, number in enumerate(order):
        direct: list[int] = []
        under: set[int] = set()
        for other in reversed(order[:place]):
            if other in conflicts[number] and other not in under:
                direct.append(other)
                under |= {other, *below[other]}
        below[number] = under
        tops = (tops - under) | {number}
        start = _greatest([ends[other] for other in direct])
        offsets[number], ends[number] = arith.unwrap(start.expr), start.beyond(sizes[number])
    return tuple(offsets), arith.unwrap(_greatest([ends[number] for number in sorted(tops)]).expr)


def _greatest(ends: Sequence[End]) -> End:
    """The greatest of several ends; 0 of none."""
    kept: list[End] = []
    for item in ends:
        if not any(other.covers(item) for other in kept):
            kept = [other for other in kept if not item.covers(other)] + [item]
    if len(kept) < 2:
        return kept[0] if kept else End(arith.ZERO, {})
    found: arith.Expr = arith.ZERO
    for item in kept:
        found = item.expr if found == arith.ZERO else arith.maximum(found, item.expr)
    return End(found, {})


def _samples(sizes: Sequence[dict[arith.Expr, int]]) -> list[dict[arith.Expr, int]]:
    """Sizes to pack at: those that cost models take, small ones, and each dimension at the former where the others are small."""
    names = sorted({name for size in sizes for term in size for name in arith.free_vars(term)}, key=repr)
    usual = {name: arith.size_hint(arith.unwrap(name)) for name in names}
    least = {name: max(1, name.lower if isinstance(name, arith.SizeVar) else 0) for name in names}
    small = {name: min(usual[name], max(SMALL, least[name])) for name in names}
    if len(sizes) > MANY:
        return [usual, small]
    return [usual, small, least, *({**small, name: usual[name]} for name in names[:4] if len(names) > 1)]
