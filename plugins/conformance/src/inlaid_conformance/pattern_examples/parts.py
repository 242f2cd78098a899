"""Parts of a pattern, without the names and predicates around them."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid import ops
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import CallPattern, Kind, Named, OpPattern, Pattern, Requirements, Where, Wildcard
from inlaid_conformance.pattern_examples.example import NoExampleError


@dataclass(frozen=True)
class Part:
    """A part of a pattern: `core` is the pattern inside of names and predicates, `requirements` are those of the predicates, and
    `layers` are the core and all patterns around it."""

    core: Pattern
    requirements: Requirements
    layers: tuple[Pattern, ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Whether the part is a wildcard, a constant or a variable."""
        return isinstance(self.core, (Wildcard, Kind))


ANY_OPERAND = Part(Wildcard(), Requirements())
"""An operand of which a pattern says nothing."""


def unwrap(pattern: Pattern) -> Part:
    """Separate a pattern from the names and predicates around it."""
    layers, requirements = [pattern], Requirements()
    while isinstance(pattern, (Named, Where)):
        if isinstance(pattern, Where):
            requirements = _merge(requirements, pattern.requirements)
        pattern = pattern.inner
        layers.append(pattern)
    return Part(pattern, requirements, tuple(layers))


def find_operator(name: str | Operator) -> Operator:
    """Look up an operator by name. Raises `NoExampleError` if there is none."""
    operator = ops.TABLE.get(name) if isinstance(name, str) else name
    if operator is None:
        raise NoExampleError(f"{name} is not an operator of Inlaid")
    return operator


def is_dequantization(pattern: Pattern) -> bool:
    """Test whether a pattern is a call of `dequantize`."""
    core = unwrap(pattern).core
    return isinstance(core, (OpPattern, CallPattern)) and core.operators[0] in ("dequantize", ops.dequantize)


def _merge(outer: Requirements, inner: Requirements) -> Requirements:
    """Return the requirements of two predicates, of which the outer one takes precedence."""
    return Requirements(
        {**inner.attrs, **outer.attrs},
        outer.type or inner.type,
        outer.dtypes or inner.dtypes,
        outer.ranks or inner.ranks,
        inner.value if outer.value is None else outer.value,
        outer.second or inner.second,
    )
