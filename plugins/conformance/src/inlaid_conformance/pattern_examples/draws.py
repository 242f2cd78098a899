"""Parameters of an example of a pattern, and recipes to draw its operators again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inlaid.plugins import Capabilities
from inlaid_conformance.corpus import Example
from inlaid_conformance.values import Mix

ANY_TARGET = Capabilities(())
"""Tiles and requantization of examples for no target in particular."""


@dataclass(frozen=True)
class Recipe:
    """Record of how an operator's example was drawn: element type, each choice with its number of options, whether the operator has
    its default attributes, and shape of the data. If `ignores_context` is set, the example does not depend on the shapes around it
    and is not redrawn. `example`, if given, is the example itself."""

    element: str
    choices: tuple[int, ...]
    option_counts: tuple[int, ...]
    default_attributes: bool
    shape: tuple[int, ...] | None
    ignores_context: bool = False
    example: Example | None = None


@dataclass(frozen=True)
class Draw:
    """Parameters of an example of a pattern: `number` 0 is the plain example, other numbers are seeds of random examples. `element`
    is the element type of the first data; `dtypes` are the allowed element types. With `constant_operands`, wildcards except the
    first are constants. `mix` is the distribution of values, without the extremes of floats unless `edges`. `recipes`, by operator
    name, are tried first. If given, `shape` is the shape of the inputs. `target` has the target's tiles and requantization.
    Fixed-point factors are chosen to distinguish, above all, the property `aim` of requantizations."""

    number: int
    element: str
    dtypes: Sequence[str]
    constant_operands: bool = False
    mix: Mix = "plain"
    edges: bool = True
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    target: Capabilities = ANY_TARGET
    aim: Literal["roundings", "multipliers", "shifts"] = "roundings"
