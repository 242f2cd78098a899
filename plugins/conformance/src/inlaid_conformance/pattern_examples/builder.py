"""Builds the expression of an example of a pattern, from the innermost call outwards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from inlaid.graph import ir
from inlaid.graph.pattern import CallPattern, ItemPattern, OpPattern, Pattern, TuplePattern
from inlaid_conformance.corpus import Example
from inlaid_conformance.pattern_examples.bindings import Bindings, Leaves
from inlaid_conformance.pattern_examples.calls import CallMaker, CallPart, MismatchError
from inlaid_conformance.pattern_examples.constants import ProductScales, with_scale
from inlaid_conformance.pattern_examples.draws import Draw
from inlaid_conformance.pattern_examples.example import NoExampleError, PatternExample
from inlaid_conformance.pattern_examples.parts import ANY_OPERAND, Part, find_operator, is_dequantization, unwrap
from inlaid_conformance.pattern_examples.sampler import ATTEMPTS, Sample, Sampler, Shapes
from inlaid_conformance.pattern_examples.shapes import element_name, operand_type, static_shape
from inlaid_runtime.types import TensorType, Type

Operands = Mapping[int, ir.Expr]
"""Operands of a call that are computed or already bound, by number."""


def generate_example(pattern: Pattern, draw: Draw) -> PatternExample:
    """Generate an example of a pattern without alternatives. Raises `NoExampleError`. Exceptions of the pattern's predicates pass
    through."""
    builder = _Builder(draw)
    with np.errstate(all="ignore"):
        body = builder.build(pattern)
    bindings = builder.bindings
    return PatternExample(ir.function(tuple(bindings.params), body), tuple(bindings.inputs), builder.calls.recipes)


class _Builder:
    """Builds one example. `bindings` has its parameters and inputs, `calls` its recipes."""

    def __init__(self, draw: Draw) -> None:
        source = random.Random(f"{draw.number} {draw.element}")
        self._draw = draw
        self._sampler = Sampler(draw, source)
        self._scales = ProductScales()
        self.bindings = Bindings()
        self._leaves = Leaves(draw, source, self.bindings)
        self.calls = CallMaker(draw, source, self.bindings)

    def build(self, pattern: Pattern, type_hint: Type | None = None) -> ir.Expr:
        """Build an expression for a pattern, of the hinted type if possible."""
        part = unwrap(pattern)
        expr = self.bindings.expr(part)
        if expr is None:
            expr = self._expr(pattern, part, type_hint)
            self.bindings.bind(part, expr)
        return expr

    def _expr(self, pattern: Pattern, part: Part, type_hint: Type | None) -> ir.Expr:
        operands: tuple[Pattern, ...] | None = None
        match part.core:
            case OpPattern((name,)):
                pass
            case CallPattern((name,), operands):
                pass
            case ItemPattern(value, index):
                return ir.tuple_item(self.build(value), index or 0)
            case TuplePattern(fields):
                return ir.tuple_(tuple(map(self.build, fields)))
            case _:
                return self._leaves.leaf_of_type(part, type_hint)
        operator = find_operator(name)
        recipe = self._draw.recipes.get(operator.name)
        return self._call(CallPart(pattern, operator, operands, part.requirements, type_hint, recipe))

    def _call(self, part: CallPart) -> ir.Call:
        """Build a call: draw examples of the operator until one fits the operands and the pattern. Raises `NoExampleError` with the
        reason of the last one."""
        shapes = part.data_shapes if self._draw.shape is None else {0: self._draw.shape}
        sample = self._sampler.sample(part.operator, shapes, "", 0, part.arity)
        inner = self._inner_operands(part, sample.example)
        reason = f"no example of {part.operator.name} has that number of arguments"
        for attempt in range(1 if part.ignores_context else ATTEMPTS):
            if attempt or inner:
                sample = self._sample_for(part, inner, shapes, attempt)
            if part.operands is not None and len(sample.example.inputs) != len(part.operands):
                continue
            try:
                return self._fitting_call(part, sample, inner, attempt)
            except MismatchError as error:
                reason = str(error)
        raise NoExampleError(reason)

    def _inner_operands(self, part: CallPart, example: Example) -> Operands:
        """Build the operands that are computed, and collect those that are already bound, of the types of an example if possible. A
        dequantized bias comes last, since its scale is the scale of the product to which it is added."""
        patterns = part.operands or ()
        inner: dict[int, ir.Expr] = {}
        for number in sorted(range(len(patterns)), key=lambda number: is_dequantization(patterns[number])):
            operand = unwrap(patterns[number])
            if operand.is_leaf and self.bindings.expr(operand) is None:
                continue
            hinted = not part.ignores_context and number < len(example.inputs)
            scale = self._scales.first(inner.values())
            inner[number] = self.build(patterns[number], operand_type(example, number) if hinted else None)
            if part.operator.name in ("add", "sub") and scale is not None and is_dequantization(patterns[number]):
                inner[number] = with_scale(inner[number], scale)
        return dict(sorted(inner.items()))

    def _sample_for(self, part: CallPart, inner: Operands, shapes: Shapes, attempt: int) -> Sample:
        """Draw an example that fits the shapes of the inner operands, or `shapes` if none of them is a tensor."""
        first = next(iter(inner.values())).type if inner else None
        types = {number: operand.type for number, operand in inner.items()}
        inner_shapes = {number: static_shape(type_) for number, type_ in types.items() if isinstance(type_, TensorType)}
        return self._sampler.sample(part.operator, inner_shapes or shapes, element_name(first), attempt, part.arity)

    def _fitting_call(self, part: CallPart, sample: Sample, inner: Operands, attempt: int) -> ir.Call:
        """Create a call with the values of an example as its other operands. Raises `MismatchError`, and then binds nothing."""
        snapshot = self.bindings.snapshot()
        operands = self._operands(part, sample.example, inner)
        try:
            call = self.calls.call(part, sample, operands, attempt)
        except MismatchError:
            self.bindings.restore(snapshot)
            raise
        self._scales.record(call)
        return call

    def _operands(self, part: CallPart, example: Example, inner: Operands) -> list[ir.Expr]:
        parts: Sequence[Part] = [unwrap(pattern) for pattern in part.operands] if part.operands is not None else ()
        operands: list[ir.Expr] = []
        for number, value in enumerate(example.inputs):
            operand = parts[number] if parts else ANY_OPERAND
            expr = inner[number] if number in inner else self.bindings.expr(operand)
            if expr is None:
                expr = self._leaves.leaf(operand, value, operand_type(example, number))
                self.bindings.bind(operand, expr)
            operands.append(expr)
        return operands
