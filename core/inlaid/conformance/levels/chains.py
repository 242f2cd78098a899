"""Level 4, chains: several composites in one region.

Regions of one composite do not test values between composites, buffer allocation and the contents of padding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from inlaid.conformance.case import Case, NotClaimed, Undefined
from inlaid.conformance.levels.composites import INSIDE, Search, plain_examples
from inlaid.conformance.patterned import Draw, Made
from inlaid.conformance.target_under_test import TargetUnderTest
from inlaid.conformance.tolerance import hold, of_composite
from inlaid.conformance.variants import variants
from inlaid.graph import ir
from inlaid.graph.transform import substitute
from inlaid.partitioning.annotate import Claim
from inlaid.partitioning.compose import alone
from inlaid.plugins import OpRule
from inlaid_runtime.types import TensorType, Type

LENGTH = 5
"""Greatest number of composites in a chain. With three or more, two values can be live at once."""
ATTEMPTS = 6
"""Number of examples tried of each variant until one reads an available value."""


@dataclass(frozen=True)
class _Chain:
    """A chain of composites, by name, as a function of operators and as a function of composites, with inputs."""

    names: tuple[str, ...]
    plain: ir.Function
    composed: ir.Function
    inputs: tuple[Any, ...]
    before: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    """Results that the last composite reads, in both functions."""

    def __str__(self) -> str:
        return ", then ".join(self.names)

    def followed(self, rule: OpRule, made: Made, claim: Claim) -> _Chain:
        """Append a composite whose first input is the chain's result. Further inputs are the earliest result of their type, so that
        several values are live at once, or a new parameter."""
        (data, *others), composed = made.function.params, alone(made.function, claim)
        taken = {data: (self.plain.body, self.composed.body)}
        params, inputs = list(self.plain.params), list(self.inputs)
        for param, value in zip(others, made.inputs[1:], strict=True):
            taken[param] = next((pair for pair in self.before if pair[0].type == param.type), (param, param))
            if taken[param][0] is param:
                new = ir.var(f"x{len(params)}", param.type)
                taken[param] = new, new
                params.append(new)
                inputs.append(value)
        plain, whole = (
            ir.function(params, substitute(function.body, {old: pair[side] for old, pair in taken.items()}))
            for side, function in enumerate((made.function, composed))
        )
        return _Chain((*self.names, rule.name), plain, whole, tuple(inputs), (*self.before, (self.plain.body, self.composed.body)))


def agree(tested: TargetUnderTest) -> None:
    """Check that a chain from each composite agrees with the reference. A chain continues with a composite that can read an
    available value."""
    starts = [found for found in tested.once(plain_examples) if isinstance(found[1].function.body.type, TensorType)]
    held = 0
    for first, (rule, made, claim) in enumerate(starts):
        chain = _Chain((rule.name,), made.function, alone(made.function, claim), made.inputs)
        for other, _, _ in (*starts[first + 1 :], *starts) * 2:
            if len(chain.names) < LENGTH:
                found = _reader(tested, other, chain.plain.body.type)
                chain = chain.followed(other, *found) if found is not None else chain
        if len(chain.names) > 1:
            allowed = partial(of_composite, tested, chain.names[-1], True)
            with contextlib.suppress(Undefined):
                hold(tested, chain, chain.plain, chain.inputs, allowed, chain.composed)
                held += 1
    if not held:
        raise NotClaimed("no composite can read the result of another")


def _reader(tested: TargetUnderTest, rule: OpRule, data: Type) -> tuple[Made, Claim] | None:
    """Find an example of a composite that reads data of a type."""
    assert isinstance(data, TensorType) and not isinstance(rule.pattern, str)
    search = Search(tested, rule, rule.pattern)
    shape = tuple(int(dim) for dim in data.shape if isinstance(dim, int))
    kinds = (*tested.capabilities.dtypes, *INSIDE)
    for number in range(ATTEMPTS):
        for variant in variants(rule.pattern):
            made = search.made(variant, Draw(number, data.dtype.name, kinds, False, shape=shape))
            if made is not None and made.solid and made.function.params and made.function.params[0].type == data:
                claim = tested.claim(made.function, rule)
                if isinstance(claim, Claim):
                    return made, claim
    return None


def cases(tested: TargetUnderTest) -> Sequence[Case]:
    """Return one case if the target has composites, else none."""
    usable = tested.problem is None and tested.unruly is None and tested.candidate.composites
    return (Case("operators", "chains", agree),) if usable else ()
