"""Creates a call that a pattern matches, from an example of its operator and from its operands."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import MISSING, dataclass
from typing import Any

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Pattern, Requirements, match
from inlaid.plugins.contract import UP
from inlaid_conformance.pattern_examples.bindings import Bindings
from inlaid_conformance.pattern_examples.constants import BOUNDS, NarrowSums, with_wide_bounds
from inlaid_conformance.pattern_examples.draws import Draw, Recipe
from inlaid_conformance.pattern_examples.requantization import REQUANTIZATIONS, FactorChooser, declared_rounding
from inlaid_conformance.pattern_examples.sampler import ATTEMPTS, Sample, Shapes
from inlaid_conformance.pattern_examples.shapes import element_name, static_shape
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, Type


class MismatchError(Exception):
    """Raised for a call without a type, or that the pattern does not match; the message has the reason."""


@dataclass(frozen=True)
class CallPart:
    """A call in a pattern: the pattern with its names and predicates, operator, patterns of the operands (None for any), what the
    predicates require, the type that the call around it aims at (None for any), and a recipe of an earlier example."""

    pattern: Pattern
    operator: Operator
    operands: tuple[Pattern, ...] | None
    requirements: Requirements
    type_hint: Type | None
    recipe: Recipe | None

    @property
    def ignores_context(self) -> bool:
        """Whether the example of the recipe does not depend on the shapes around it."""
        return self.recipe is not None and self.recipe.ignores_context

    @property
    def arity(self) -> int:
        """The number of operands, the least one if the pattern says nothing of them."""
        return self.operator.arity[0] if self.operands is None else len(self.operands)

    @property
    def data_shapes(self) -> Shapes:
        """The shape of the data that the context or the recipe determines, if any."""
        hint = None if self.ignores_context else self.type_hint
        # A hint is the type of the result, and so the shape of the data of elementwise operators alone.
        if isinstance(hint, TensorType) and (self.recipe is None or self.operator.elementwise):
            return {0: static_shape(hint)}
        return {0: self.recipe.shape} if self.recipe is not None and self.recipe.shape is not None else {}

    def has_default_attributes(self, attempt: int) -> bool:
        """Whether an attempt uses the operator's default attributes where it has them: every other one, or as the recipe says."""
        return self.recipe.default_attributes if self.recipe is not None and attempt == 0 else attempt % 2 == 1


class CallMaker:
    """Creates calls of an example, with constants that suit the target's arithmetic. `recipes` has those of the last calls."""

    def __init__(self, draw: Draw, source: random.Random, bindings: Bindings) -> None:
        self._draw = draw
        self._sums = NarrowSums(draw.target.requantization.accumulator_bits)
        self._factors = FactorChooser(draw, source, bindings)
        self._adapts_constants = draw.mix in ("plain", "full", "small")
        self.recipes: dict[str, Recipe] = {}

    def call(self, part: CallPart, sample: Sample, operands: list[ir.Expr], attempt: int) -> ir.Call:
        """Create a call that matches a part. Raises `MismatchError`."""
        second = part.requirements.second(operands[0]) if part.requirements.second is not None else None
        if second is not None:
            operands[1] = ir.constant(second)
        attributes = self._attributes(part, sample, attempt)
        if self._adapts_constants and part.operator in BOUNDS and (self._draw.number % 4 < 3 or self._draw.mix != "plain"):
            operands, attributes = with_wide_bounds(part.operator, operands, attributes)
        try:
            call = self._sums.fit(part.operator(*operands, **attributes))
        except InlaidError as error:
            raise MismatchError(str(error)) from error
        if not self._fits(part, call, attempt):
            raise _mismatch(call)
        if self._adapts_constants and part.operator in REQUANTIZATIONS:
            axis, rounding = attributes.get("axis", 0), attributes.get("rounding", UP)
            call = part.operator(*self._factors.operands(call.args, axis, rounding), **attributes)
            if match(part.pattern, call) is None:
                raise _mismatch(call)
        self.recipes[part.operator.name] = _recipe(sample, call, part.has_default_attributes(attempt))
        return call

    def _attributes(self, part: CallPart, sample: Sample, attempt: int) -> dict[str, Any]:
        """Return the attributes of the example, or defaults, with those that the pattern requires and a declared rounding."""
        attributes = dict(sample.example.attrs)
        if part.has_default_attributes(attempt):
            without_default = _without_default(part.operator)
            attributes = {name: value for name, value in attributes.items() if name in without_default}
        attributes |= part.requirements.attrs
        rounding = declared_rounding(part.operator, attributes, part.requirements.attrs, self._draw)
        return attributes if rounding is None else {**attributes, "rounding": rounding}

    def _fits(self, part: CallPart, call: ir.Call, attempt: int) -> bool:
        """Test whether a call matches and has an allowed type, which in the first attempts has the hinted element type."""
        is_hinted = not part.ignores_context and attempt < ATTEMPTS // 2 and part.type_hint is not None
        if is_hinted and element_name(call.type) != element_name(part.type_hint):
            return False
        return self._is_allowed(call.type) and match(part.pattern, call) is not None

    def _is_allowed(self, type_: Type) -> bool:
        """Test whether a call may have a type. Comparisons inside a composite are bool whatever the target stores."""
        return not isinstance(type_, TensorType) or type_.dtype.name in (*self._draw.dtypes, "bool")


def _without_default(operator: Operator) -> set[str]:
    """Return the names of the attributes that have no default."""
    fields = dataclasses.fields(operator.attrs)
    return {item.name for item in fields if item.default is MISSING and item.default_factory is MISSING}


def _recipe(sample: Sample, call: ir.Call, default_attributes: bool) -> Recipe:
    data = call.args[0].type if call.args else None
    shape = static_shape(data) if isinstance(data, TensorType) else None
    choices, option_counts = zip(*sample.choices, strict=True) if sample.choices else ((), ())
    return Recipe(sample.element, choices, option_counts, default_attributes, shape)


def _mismatch(call: ir.Call) -> MismatchError:
    assert isinstance(call.callee, Operator)
    operands = ", ".join(repr(operand.type) for operand in call.args)
    return MismatchError(f"{call.callee.name} of {operands} does not match")
