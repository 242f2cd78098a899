"""Validation of nodes against ONNX's operator schemas: attributes, numbers of inputs and outputs, and types of inputs.

ONNX Runtime rejects the same nodes. A schema is read once per operator of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from inlaid.ops.container import NOTHING
from inlaid_onnx.node import Node
from inlaid_runtime.errors import suggestion
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

if TYPE_CHECKING:
    import onnx

REMEDY = "correct the node, or export the model again: onnx.checker.check_model(model, full_check=True) finds the same fault"
# Names of the values of AttributeProto.AttributeType.
_KINDS = {
    1: "a float", 2: "an int", 3: "a string", 4: "a tensor", 5: "a graph", 6: "floats", 7: "ints", 8: "strings", 9: "tensors",
    10: "graphs", 11: "a sparse tensor", 12: "sparse tensors", 13: "a type", 14: "types",
}  # fmt: skip
_NAMES = {"float32": "float", "float64": "double"}
_UNLIMITED = 2**31 - 1
"""The maximum number of inputs in schemas with unbounded variadic inputs."""


@dataclass(frozen=True)
class Parameter:
    """An input of a schema: its allowed types in ONNX's spelling, and the name of its type variable or ""."""

    name: str
    required: bool
    types: frozenset[str]
    variable: str


@dataclass(frozen=True)
class Rules:
    """Requirements of a schema. `attributes` maps attribute names to kinds (see `_KINDS`). The last of `inputs` is variadic if
    `max_inputs` exceeds their number."""

    attributes: Mapping[str, int]
    required: tuple[str, ...]
    inputs: tuple[Parameter, ...]
    min_inputs: int
    max_inputs: int
    max_outputs: int

    def problems(self, node: Node, attributes: Mapping[str, onnx.AttributeProto]) -> Iterator[str]:
        """Yield the violations of the schema by a node."""
        for name, attribute in attributes.items():
            expected = self.attributes.get(name)
            if expected is None:
                expectation = f"expected one of {', '.join(sorted(self.attributes))}" if self.attributes else "expected none"
                yield f"unknown attribute {name!r}{suggestion(name, self.attributes)}, {expectation}"
            elif attribute.type != expected:
                yield f"attribute {name!r} must be {_KINDS[expected]}, got {_describe_attribute(attribute)}"
        yield from (f"required attribute {name!r} is missing" for name in self.required if name not in attributes)
        outputs = len(node.outputs)
        if outputs > self.max_outputs:
            yield f"expected at most {self.max_outputs} outputs, got {outputs}"
        if not self.min_inputs <= len(node.inputs) <= self.max_inputs:
            yield f"expected {_count(self.min_inputs, self.max_inputs)}, got {len(node.inputs)}"
        else:
            yield from self._wrong_inputs(node)

    def _wrong_inputs(self, node: Node) -> Iterator[str]:
        bound: dict[str, str] = {}
        for index, value in enumerate(node.inputs):
            parameter = self.inputs[min(index, len(self.inputs) - 1)]
            if value is None:
                if parameter.required:
                    yield f"required input {index} ({parameter.name}) is missing"
                continue
            input_type = type_name(value.type)
            if input_type is None:
                continue
            if input_type not in parameter.types:
                yield f"input {index} ({parameter.name}) must be {_listed(parameter.types)}, got {input_type}"
            elif parameter.variable and bound.setdefault(parameter.variable, input_type) != input_type:
                other = bound[parameter.variable]
                expectation = f"expected {other} as another input of type {parameter.variable}"
                yield f"input {index} ({parameter.name}) is {input_type}, {expectation}"


@dataclass
class Schemas:
    """The schemas of the operators of one model."""

    _rules_by_operator: dict[tuple[str, int, str], Rules | None] = field(default_factory=dict)

    def check(self, node: Node, attributes: Mapping[str, onnx.AttributeProto]) -> None:
        """Raise `ModelImportError` for a node that violates its schema. An operator without a schema is not checked."""
        key = (node.op_type, node.opset, node.domain)
        if key not in self._rules_by_operator:
            self._rules_by_operator[key] = _rules(*key)
        rules = self._rules_by_operator[key]
        problems = list(rules.problems(node, attributes)) if rules is not None else []
        if problems:
            raise node.invalid("; ".join(problems), remedy=REMEDY)


def _rules(op_type: str, opset: int, domain: str) -> Rules | None:
    """Return the requirements of an operator; None if ONNX does not define it, or has removed it, in this opset."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    attributes = schema.attributes
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    return Rules(
        {name: int(attribute.type.value) for name, attribute in attributes.items()},
        tuple(name for name, attribute in attributes.items() if attribute.required),
        tuple(
            Parameter(
                item.name,
                item.option != defs.OpSchema.FormalParameterOption.Optional,
                frozenset(item.types),
                item.type_str if item.is_homogeneous and item.type_str in variables else "",
            )
            for item in schema.inputs
        ),
        schema.min_input,
        schema.max_input,
        schema.max_output,
    )


def type_name(type_: Type) -> str | None:
    """Return a type in ONNX's spelling, such as "seq(tensor(float))"; None for a type without an element type."""
    match type_:
        case TensorType(dtype=element):
            return f"tensor({_NAMES.get(element.name, element.name)})"
        case SequenceType(element=inner) | OptionalType(element=inner):
            element_name = None if inner == NOTHING else type_name(inner)
            kind = "seq" if isinstance(type_, SequenceType) else "optional"
            return None if element_name is None else f"{kind}({element_name})"
    return None


def _describe_attribute(attribute: onnx.AttributeProto) -> str:
    """Describe the kind of an attribute, and its value if the value is short."""
    kind = _KINDS.get(attribute.type, f"unknown type {attribute.type}")
    values = {1: attribute.f, 2: attribute.i, 3: attribute.s.decode(errors="replace")}
    return f"{kind}, {values[attribute.type]!r}" if attribute.type in values else kind


def _count(lower: int, upper: int) -> str:
    if lower == upper:
        return f"{lower} input{'s' * (lower != 1)}"
    return f"at least {lower} inputs" if upper >= _UNLIMITED else f"{lower} to {upper} inputs"


def _listed(types: frozenset[str]) -> str:
    names = sorted(types)
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
