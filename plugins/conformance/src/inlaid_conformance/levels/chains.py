"""Level 4, chains: several composites in one region.

Regions of one composite do not test values between composites, buffer allocation and the contents of padding.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from inlaid.graph import ir
from inlaid.graph.transform import substitute
from inlaid.partitioning.annotate import Claim
from inlaid.partitioning.compose import alone
from inlaid.plugins import OpRule, Reject
from inlaid_conformance.case import Case, NotClaimed, Undefined
from inlaid_conformance.levels.composites import INSIDE, Search, plain_examples
from inlaid_conformance.neighbors import with_other_sizes
from inlaid_conformance.pattern_examples import Draw, PatternExample
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import composite_tolerance, hold
from inlaid_conformance.variants import variants
from inlaid_runtime.types import TensorType, Type

LENGTH = 5
"""Greatest number of composites in a chain. With three or more, two values can be live at once."""
ATTEMPTS = 6
"""Number of examples tried of each variant until one reads an available value."""
LONG = 40
"""Number of composites in a long chain."""
SEVERAL = 5
"""Number of results of a long chain."""
LARGE = 144 << 10
"""Size of a large value in bytes. The distance between two of them exceeds 16 bits."""
GROWN = (256, 64, 16)
"""Extents to which axes are lengthened for a large value, if the rules accept them."""


@dataclass(frozen=True)
class _Start:
    """An accepted example of a composite."""

    rule: OpRule
    example: PatternExample
    claim: Claim


@dataclass(frozen=True)
class _Chain:
    """A chain of composites, by name, as a function of operators and as a function of composites, with inputs."""

    names: tuple[str, ...]
    plain: ir.Function
    composed: ir.Function
    inputs: tuple[Any, ...]
    before: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    """Results of all composites except the last one, in both functions."""

    @classmethod
    def from_start(cls, start: _Start) -> _Chain:
        """Return a chain of one composite."""
        return cls((start.rule.name,), start.example.function, alone(start.example.function, start.claim), start.example.inputs)

    def __str__(self) -> str:
        return ", then ".join(self.names)

    def check(self, tested: TargetUnderTest) -> None:
        """Compare with the reference. A chain without a defined result passes. Raises `Failed`."""
        allowed = partial(composite_tolerance, tested, self.names[-1], True)
        with contextlib.suppress(Undefined):
            hold(tested, self, self.plain, self.inputs, allowed, self.composed)

    def followed(self, rule: OpRule, example: PatternExample, claim: Claim) -> _Chain:
        """Append a composite whose first input is the chain's result. Each further input is the earliest result of its type, so
        that several values are live at once, or else a new parameter."""
        (data, *extra_params), composed = example.function.params, alone(example.function, claim)
        bindings = {data: (self.plain.body, self.composed.body)}
        params, inputs = list(self.plain.params), list(self.inputs)
        for param, value in zip(extra_params, example.inputs[1:], strict=True):
            bindings[param] = next((pair for pair in self.before if pair[0].type == param.type), (param, param))
            if bindings[param][0] is param:
                new_param = ir.var(f"x{len(params)}", param.type)
                bindings[param] = new_param, new_param
                params.append(new_param)
                inputs.append(value)
        plain, composed_chain = (
            ir.function(params, substitute(function.body, {old: pair[side] for old, pair in bindings.items()}))
            for side, function in enumerate((example.function, composed))
        )
        return _Chain(
            (*self.names, rule.name), plain, composed_chain, tuple(inputs), (*self.before, (self.plain.body, self.composed.body))
        )


def agree(tested: TargetUnderTest) -> None:
    """Check that a chain from each composite agrees with the reference. A chain continues with a composite that can read an
    available value."""
    starts = _starts(tested)
    tried = False
    for first, start in enumerate(starts):
        chain = _Chain.from_start(start)
        for other in (*starts[first + 1 :], *starts) * 2:
            if len(chain.names) < LENGTH:
                reader = _reader(tested, other.rule, chain.plain.body.type)
                chain = chain.followed(other.rule, *reader) if reader is not None else chain
        if len(chain.names) > 1:
            chain.check(tested)
            tried = True
    if not tried:
        raise NotClaimed("no composite can read the result of another")


def agree_if_long(tested: TargetUnderTest) -> None:
    """Check that a region of many steps agrees with the reference."""
    for start in _starts(tested):
        chains = list(itertools.islice(_repeated(tested, start), LONG))
        if len(chains) == LONG:
            return _joined(chains[:: -LONG // SEVERAL]).check(tested)
    raise NotClaimed("no composite can read a result of its own type")


def agree_if_large(tested: TargetUnderTest) -> None:
    """Check that a region of large values, several of them live at once, agrees with the reference."""
    for start in _starts(tested):
        grown = _grown(tested, start)
        if _bytes(grown) >= LARGE:
            chains = list(itertools.islice(_repeated(tested, grown), LENGTH))
            if len(chains) == LENGTH:
                return chains[-1].check(tested)
    raise NotClaimed("no composite can read a large result of its own type")


def _starts(tested: TargetUnderTest) -> list[_Start]:
    examples = tested.once(plain_examples)
    return [_Start(*example) for example in examples if isinstance(example[1].function.body.type, TensorType)]


def _repeated(tested: TargetUnderTest, start: _Start) -> Iterator[_Chain]:
    """Yield ever longer chains. They append in turn the composites that read and compute values of the type of `start`'s result."""
    chain, type_ = _Chain.from_start(start), start.example.function.body.type
    readers = ((rule, _reader(tested, rule, type_)) for rule, _ in tested.candidate.composites)
    steps = [(rule, *reader) for rule, reader in readers if reader is not None and reader[0].function.body.type == type_]
    yield chain
    for step in itertools.cycle(steps):
        chain = chain.followed(*step)
        yield chain


def _joined(chains: Sequence[_Chain]) -> _Chain:
    """Return the first chain, which continues all others, with the results of all of them: the clamped values at the end of a long
    chain hide most errors."""
    plain, composed = (
        ir.function(first.params, ir.tuple_([part.body for part in parts]))
        for first, *parts in (
            (chains[0].plain, *(chain.plain for chain in chains)),
            (chains[0].composed, *(chain.composed for chain in chains)),
        )
    )
    return replace(chains[0], plain=plain, composed=composed)


def _grown(tested: TargetUnderTest, start: _Start) -> _Start:
    """Lengthen axes of the example's input, the last axes first, until its result is large."""
    data = start.example.function.params[0].type
    for axis in reversed(range(data.rank if isinstance(data, TensorType) else 0)):
        factor = -(-LARGE // max(_bytes(start), 1))
        if factor <= 1:
            break
        function, inputs = start.example.function, start.example.inputs
        sizes = [size for size in (inputs[0].shape[axis] * factor, *GROWN) if size <= max(GROWN)]
        neighbors_by_axis = with_other_sizes(function, inputs, sizes)
        for neighbor in itertools.islice(next(itertools.islice(neighbors_by_axis, axis, None), ()), ATTEMPTS):
            claim = tested.claim(neighbor.function, start.rule)
            larger = (
                None if isinstance(claim, Reject) else _Start(start.rule, PatternExample(neighbor.function, neighbor.inputs), claim)
            )
            if larger is not None and _bytes(larger) > _bytes(start):
                start = larger
                break
    return start


def _bytes(start: _Start) -> int:
    type_ = start.example.function.body.type
    assert isinstance(type_, TensorType)
    return math.prod(dim for dim in type_.shape if isinstance(dim, int)) * type_.dtype.numpy.itemsize


@lru_cache(maxsize=256)
def _reader(tested: TargetUnderTest, rule: OpRule, data: Type) -> tuple[PatternExample, Claim] | None:
    """Find an example of a composite that reads data of a type."""
    assert isinstance(data, TensorType) and not isinstance(rule.pattern, str)
    search = Search(tested, rule, rule.pattern)
    shape = tuple(int(dim) for dim in data.shape if isinstance(dim, int))
    kinds = (*tested.capabilities.dtypes, *INSIDE)
    for number in range(ATTEMPTS):
        for variant in variants(rule.pattern):
            example = search.generate(variant, Draw(number, data.dtype.name, kinds, False, shape=shape))
            if example is not None and example.has_elements and example.function.params and example.function.params[0].type == data:
                claim = tested.claim(example.function, rule)
                if isinstance(claim, Claim):
                    return example, claim
    return None


def cases(tested: TargetUnderTest) -> Sequence[Case]:
    """Return the cases of chains if the target has composites, else none."""
    usable = tested.problem is None and tested.unruly is None and tested.candidate.composites
    checks = {"chains": agree, "long-chains": agree_if_long, "large-chains": agree_if_large}
    return [Case("operators", name, check) for name, check in checks.items()] if usable else []
