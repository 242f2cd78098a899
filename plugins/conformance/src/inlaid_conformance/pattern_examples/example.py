"""Examples of patterns: functions with inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.transform import substitute
from inlaid_conformance.pattern_examples.draws import Recipe
from inlaid_conformance.pattern_examples.shapes import static_shape
from inlaid_conformance.values import Mix, random_array
from inlaid_runtime.types import TensorType

PRINTED_ELEMENTS = 4
"""Greatest number of elements of a constant that is printed."""


class NoExampleError(Exception):
    """Raised if no fitting example was found; the message says for which part."""


@dataclass(frozen=True)
class PatternExample:
    """A function whose body the pattern matches, its inputs, and a recipe of each operator, by name."""

    function: ir.Function
    inputs: tuple[Any, ...]
    recipes: Mapping[str, Recipe] = field(default_factory=dict)

    @property
    def has_elements(self) -> bool:
        """Whether all parameters and results have elements."""
        types = (self.function.body.type, *(param.type for param in self.function.params))
        return not any(isinstance(type_, TensorType) and 0 in type_.shape for type_ in types)

    def __str__(self) -> str:
        texts = {id(param): repr(param.type) for param in self.function.params}
        for expr in ir.post_order(self.function.body):
            if id(expr) not in texts:
                texts[id(expr)] = _text(expr, [texts[id(child)] for child in ir.children(expr)])
        return texts[id(self.function.body)]


def draw_inputs(function: ir.Function, mix: Mix) -> PatternExample:
    """Draw random inputs for a function, whose parameters are renamed as in examples of the suite."""
    params = tuple(ir.var(f"x{number}", param.type, span=param.span) for number, param in enumerate(function.params))
    function = ir.function(params, substitute(function.body, dict(zip(function.params, params, strict=True))))
    types = [param.type for param in function.params if isinstance(param.type, TensorType)]
    inputs = (random_array(number, static_shape(type_), type_.dtype, mix=mix) for number, type_ in enumerate(types))
    return PatternExample(function, tuple(inputs))


def _text(expr: ir.Expr, children: list[str]) -> str:
    """Format an expression. `children` are the texts of what it reads."""
    if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
        attributes = [f"{name}={value!r}" for name, value in _changed_attributes(expr).items()]
        return f"{expr.callee.name}({', '.join([*children, *attributes])})"
    if isinstance(expr, ir.Constant):
        values = f" {expr.data.tolist()}" if expr.data.size <= PRINTED_ELEMENTS else ""
        return f"constant {expr.type!r}{values}"
    return f"({', '.join(children)})"


def _changed_attributes(call: ir.Call) -> dict[str, Any]:
    """Return the attributes of a call that differ from its operator's defaults."""
    attributes = {}
    for item in dataclasses.fields(call.attrs):
        value = getattr(call.attrs, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if value != default:
            attributes[item.name] = value
    return attributes
