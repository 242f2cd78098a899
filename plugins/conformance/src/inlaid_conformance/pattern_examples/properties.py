"""Properties of operators in examples."""

from __future__ import annotations

import dataclasses

import numpy as np

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.plugins import Capabilities
from inlaid_conformance.accumulators import deepest
from inlaid_conformance.corpus import Example, find_entry
from inlaid_conformance.coverage import Values, attribute_values
from inlaid_conformance.pattern_examples.draws import ANY_TARGET
from inlaid_conformance.pattern_examples.shapes import static_shape
from inlaid_runtime.types import TensorType


def operator_properties(function: ir.Function, name: str, target: Capabilities = ANY_TARGET) -> Values | None:
    """Return the properties of the first operator named `name` in a function, for the tiles and accumulators of a target; None if
    it is not in the corpus."""
    for expr in ir.post_order(function.body):
        if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator) and expr.callee.name == name:
            return _call_properties(expr, expr.callee, target)
    return None


def _call_properties(call: ir.Call, operator: Operator, target: Capabilities) -> Values | None:
    entry = find_entry(operator)
    if entry is None:
        return None
    types = [arg.type for arg in call.args if isinstance(arg.type, TensorType)]
    inputs = tuple(np.broadcast_to(np.zeros((), type_.dtype.numpy), static_shape(type_)) for type_ in types)
    attributes = {item.name: getattr(call.attrs, item.name) for item in dataclasses.fields(call.attrs)}
    deep = deepest(target.requantization.accumulator_bits)
    return attribute_values(entry, Example(entry.operator, inputs, attributes, tiles=target.tiles, deep=deep))
