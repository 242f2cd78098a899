"""Level 4, neighbors: functions that differ from an accepted example in one respect agree with the reference, if accepted too.

Counters and caches of hardware and its compiler fail only for large sizes, or for two layers that hardly differ. See
`inlaid_conformance.neighbors`.
"""

from __future__ import annotations

import itertools
from collections import Counter
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
from inlaid_conformance.neighbors import (
    with_broadcasts,
    with_equal_operands,
    with_large_attributes,
    with_other_attributes,
    with_other_reshapes,
    with_other_sizes,
    with_reshapes_across_blocks,
)
from inlaid_conformance.samples import Sample
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.types import TensorType

LARGE = (300, 260, 130)
"""Sizes of an axis beyond counters of 8 bits, signed or unsigned. The first size that is accepted is checked."""
FURTHER_SIZES = (0, 1, 2)
"""Further sizes of an axis, each of which is checked."""
MAX_NEIGHBORS = 12
"""Greatest number of neighbors of an example with other attributes, or pairs of them, that are run."""
ATTRIBUTES = (6, 9, 17)
"""Values of attributes that exceed fields of 2, 3 and 4 bits, also of fields that hold the value minus one."""
ROWS = 67
"""Number of rows and of columns of the images for these attributes."""
LARGEST_BLOCK = 64
"""Greatest number of channels of images that are reshaped."""
IMAGES = 4
"""Rank of images."""
PAIRS = 4
"""Greatest number of pairs of layers of equal types."""


def agree(tested: TargetUnderTest) -> None:
    """Check that accepted neighbors of examples of patterns agree with the reference: with other attributes, such as a dilation and
    pads that fit it, other scalar constants, and other sizes."""
    for sample in samples.samples_of_patterns(tested):
        for neighbor in itertools.islice(_distinct(tested, sample), MAX_NEIGHBORS):
            neighbor.check(tested)
        for size in FURTHER_SIZES:
            for neighbor in _resized(tested, sample, (size,)):
                neighbor.check(tested)


def _distinct(tested: TargetUnderTest, sample: Sample) -> Iterator[Sample]:
    """Yield accepted neighbors with other attributes: one for each set of attributes and whether the result has another type."""
    kinds: set[object] = set()
    for neighbor in with_other_attributes(sample.function, sample.inputs, tested.capabilities.requantization.roundings):
        kind = neighbor.names, neighbor.function.body.type == sample.function.body.type
        changed = sample.changed(tested, neighbor) if kind not in kinds else None
        if changed is not None:
            kinds.add(kind)
            yield changed


def _resized(tested: TargetUnderTest, sample: Sample, sizes: Sequence[int]) -> Iterator[Sample]:
    """Yield, for each axis, a neighbor of the first size that is accepted."""
    keys = set()
    for options in with_other_sizes(sample.function, sample.inputs, sizes):
        changed = next(filter(None, (sample.changed(tested, option) for option in options)), None)
        key = None if changed is None else structural_key(changed.function)
        if changed is not None and key not in keys:
            keys.add(key)
            yield changed


def grow(tested: TargetUnderTest) -> None:
    """Check that accepted examples agree with the reference if an axis is longer than counters of 7 and 8 bits."""
    for sample in samples.claimed(tested):
        for grown in _resized(tested, sample, LARGE):
            grown.check(tested)


def agree_if_tiled(tested: TargetUnderTest) -> None:
    """Check that accepted examples agree with the reference if several axes at once need several tiles."""
    larger = tested.once(samples.tiled)
    if not larger:
        raise NotClaimed("no example with other sizes is accepted")
    for sample in larger:
        sample.check(tested)


def agree_with_large_attributes(tested: TargetUnderTest) -> None:
    """Check that accepted examples agree with the reference if a stride, a dilation, a window or a pad exceeds fields of few bits,
    on images of many rows and columns."""
    tried = False
    for sample in samples.claimed(tested):
        shape = np.shape(sample.inputs[0]) if sample.inputs else ()
        image = samples.grown(tested, sample, (*shape[:2], *(ROWS for _ in shape[2:])))
        for options in with_large_attributes(image.function, image.inputs, ATTRIBUTES):
            changed = next(filter(None, (image.changed(tested, option) for option in options)), None)
            if changed is not None:
                changed.check(tested)
                tried = True
    if not tried:
        raise NotClaimed("the target supports no operator with such an attribute")


def agree_if_broadcast(tested: TargetUnderTest) -> None:
    """Check that accepted examples of several inputs agree with the reference if one of these is broadcast along several tiles."""
    tried = False
    for sample in samples.claimed(tested):
        tensors = [param.type for param in sample.function.params if isinstance(param.type, TensorType)]
        ranks = dict.fromkeys((tensors[0].rank, IMAGES)) if tensors and len(tensors) == len(sample.inputs) else ()
        for shape in (samples.large_shape(rank, tested.capabilities.tiles) for rank in ranks if rank):
            for neighbor in with_broadcasts(sample.function, sample.inputs, shape):
                changed = sample.changed(tested, neighbor)
                if changed is not None:
                    changed.check(tested)
                    tried = True
    if not tried:
        raise NotClaimed("the target supports no operator with an input that is broadcast")


def agree_if_reshaped(tested: TargetUnderTest) -> None:
    """Check that accepted reshapes agree with the reference: also those of images of several rows and columns, whose elements may
    be stored in another order than those of a matrix, and those between data of equally many blocks of channels that mix the
    lanes."""
    tiles, tried, keys = tested.capabilities.tiles, Counter[object](), set[str]()
    channels = min(2 * max(tiles.inputs, tiles.outputs), LARGEST_BLOCK)
    for sample in (*samples.declared(tested), *samples.claimed(tested, ("reshape",))):
        function, inputs = sample.function, sample.inputs
        for kind, neighbors in (
            ("whole", with_other_reshapes(function, inputs, channels)),
            ("across", with_reshapes_across_blocks(function, inputs)),
        ):
            for neighbor in neighbors:
                key = structural_key(neighbor.function)
                results = evaluate(neighbor.function, neighbor.inputs)
                ranks = kind, sample.rule, *(len(array.shape) for array in (neighbor.inputs[0], results))
                changed = sample.changed(tested, neighbor) if key not in keys and tried[ranks] < MAX_NEIGHBORS else None
                keys.add(key)
                if changed is not None:
                    tried[ranks] += 1
                    changed.check(tested)
    if not tried:
        raise NotClaimed("the target supports no reshape")


def are_told_apart(tested: TargetUnderTest) -> None:
    """Check that two layers of equal types that differ in an attribute or a constant are correct in one region, and in turn; also
    layers of several tiles."""
    for plain in samples.samples_of_patterns(tested):
        for other in itertools.islice(_alike(tested, plain), PAIRS):
            for sample in (_side_by_side(plain, other), other, plain):
                sample.check(tested)
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
    for sample in (*samples.claimed(tested), *samples.claimed(tested, _operators_of_equal_operands())):
        for neighbor in with_equal_operands(sample.function, sample.inputs):
            changed = sample.changed(tested, neighbor)
            if changed is not None:
                changed.check(tested)
                tried = True
    if not tried:
        raise NotClaimed("the target supports no operator of two operands of one type")


def _operators_of_equal_operands() -> tuple[str, ...]:
    """Return the operators whose plain example has two operands of one type."""
    names = []
    for entry in CORPUS:
        params = entry.example(Choices.pinned(0), entry.dtypes[0]).forms()[0].function.params
        if len(params) > len({repr(param.type) for param in params}):
            names.append(entry.operator.name)
    return tuple(names)


CASES = (
    Case("operators", "neighbors", agree),
    Case("operators", "large-sizes", grow),
    Case("operators", "several-tiles", agree_if_tiled),
    Case("operators", "large-attributes", agree_with_large_attributes),
    Case("operators", "broadcasts", agree_if_broadcast),
    Case("operators", "reshapes", agree_if_reshaped),
    Case("operators", "told-apart", are_told_apart),
    Case("operators", "equal-operands", read_one_value_twice),
)
