"""Level 4, neighbors: what differs from an accepted example in one respect agrees with the reference, if it is accepted too.

Counters and caches of hardware and its compiler fail only for large sizes, or for two layers that hardly differ. See
`inlaid_conformance.neighbors`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.keys import structural_key
from inlaid.graph.transform import substitute
from inlaid_conformance import samples
from inlaid_conformance.case import Case, NotClaimed
from inlaid_conformance.corpus import CORPUS, Choices
from inlaid_conformance.neighbors import with_equal_operands, with_other_attributes, with_other_sizes
from inlaid_conformance.samples import Sample
from inlaid_conformance.target_under_test import TargetUnderTest

LARGE = (300, 260, 130)
"""Sizes of an axis, of which the first that is accepted counts: beyond counters of 8 bits, with a sign or without."""
OTHERS = (0, 1, 2)
"""Further sizes of an axis, each of which counts."""
MOST = 12
"""Greatest number of neighbors of an example with other attributes, or pairs of them, that are run."""
PAIRS = 4
"""Greatest number of pairs of layers of equal types."""


def agree(tested: TargetUnderTest) -> None:
    """Check that accepted neighbors of examples of patterns agree with the reference: with other attributes, such as a dilation and
    pads that fit it, other scalar constants, and other sizes."""
    for sample in samples.patterned(tested):
        for neighbor in itertools.islice(_distinct(tested, sample), MOST):
            neighbor.check(tested)
        for size in OTHERS:
            for neighbor in _resized(tested, sample, (size,)):
                neighbor.check(tested)


def _distinct(tested: TargetUnderTest, sample: Sample) -> Iterator[Sample]:
    """Yield accepted neighbors with other attributes: one for each set of attributes and whether the result has another type."""
    seen: set[object] = set()
    for neighbor in with_other_attributes(sample.function, sample.inputs, tested.capabilities.quantisation.roundings):
        kind = neighbor.names, neighbor.function.body.type == sample.function.body.type
        changed = sample.changed(tested, neighbor) if kind not in seen else None
        if changed is not None:
            seen.add(kind)
            yield changed


def _resized(tested: TargetUnderTest, sample: Sample, sizes: Sequence[int]) -> Iterator[Sample]:
    """Yield, for each axis, a neighbor of the first size that is accepted."""
    seen = set()
    for options in with_other_sizes(sample.function, sample.inputs, sizes):
        changed = next(filter(None, (sample.changed(tested, option) for option in options)), None)
        key = None if changed is None else structural_key(changed.function)
        if changed is not None and key not in seen:
            seen.add(key)
            yield changed


def grow(tested: TargetUnderTest) -> None:
    """Check that accepted examples agree with the reference if an axis is longer than counters of 7 and 8 bits."""
    for sample in samples.claimed(tested):
        for grown in _resized(tested, sample, LARGE):
            grown.check(tested)


def are_told_apart(tested: TargetUnderTest) -> None:
    """Check that two layers of equal types that differ in an attribute or a constant are correct in one region, and in turn; also
    layers of several tiles."""
    for plain in samples.patterned(tested):
        for other in itertools.islice(_alike(tested, plain), PAIRS):
            for each in (_side_by_side(plain, other), other, plain):
                each.check(tested)
        for large in _resized(tested, plain, LARGE):
            for other in itertools.islice(_alike(tested, large), 1):
                _side_by_side(large, other).check(tested)


def _alike(tested: TargetUnderTest, sample: Sample) -> Iterator[Sample]:
    """Yield neighbors with results of equal types and other values."""
    type_, values = sample.function.body.type, evaluate(sample.function, sample.inputs)
    for other in _distinct(tested, sample):
        if other.function.body.type == type_ and not np.array_equal(evaluate(other.function, other.inputs), values):
            yield other


def _side_by_side(sample: Sample, other: Sample) -> Sample:
    """Return a sample that computes both functions of the same inputs."""

    def joined(first: ir.Function, second: ir.Function) -> ir.Function:
        body = substitute(second.body, dict(zip(second.params, first.params, strict=True)))
        return ir.function(first.params, ir.tuple_((first.body, body)))

    function, composed = joined(sample.function, other.function), joined(sample.composed, other.composed)
    return replace(sample, name=f"in one region, {sample.name} and {other.name}", function=function, composed=composed)


def read_one_value_twice(tested: TargetUnderTest) -> None:
    """Check that operators and composites whose operands are one value agree with the reference."""
    tried = False
    for sample in (*samples.claimed(tested), *samples.claimed(tested, _of_equal_operands())):
        for neighbor in with_equal_operands(sample.function, sample.inputs):
            changed = sample.changed(tested, neighbor)
            if changed is not None:
                changed.check(tested)
                tried = True
    if not tried:
        raise NotClaimed("the target supports no operator of two operands of one type")


def _of_equal_operands() -> tuple[str, ...]:
    """Return the operators whose plain example has two operands of one type."""
    found = []
    for entry in CORPUS:
        params = entry.example(Choices.pinned(0), entry.dtypes[0]).forms()[0].function.params
        if len(params) > len({repr(param.type) for param in params}):
            found.append(entry.operator.name)
    return tuple(found)


CASES = (
    Case("operators", "neighbors", agree),
    Case("operators", "large-sizes", grow),
    Case("operators", "told-apart", are_told_apart),
    Case("operators", "equal-operands", read_one_value_twice),
)
