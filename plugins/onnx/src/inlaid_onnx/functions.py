"""Model-local functions, and operators that ONNX defines by a function body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inlaid_onnx import proto
from inlaid_onnx.node import Node
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

if TYPE_CHECKING:
    import onnx

Attributes = Mapping[str, "onnx.AttributeProto"]


def bind_references(item: onnx.NodeProto, bound: Attributes, node: Node) -> dict[str, onnx.AttributeProto]:
    """Return the attributes of a node by name, with references to attributes of the enclosing function resolved.

    A reference to an omitted attribute is omitted. Raises `ModelImportError` for duplicates.
    """
    attributes: dict[str, onnx.AttributeProto] = {}
    for attribute in item.attribute:
        if attribute.name in attributes:
            raise node.invalid(f"duplicate attribute {attribute.name!r}")
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in bound:
                attributes[attribute.name] = bound[attribute.ref_attr_name]
        else:
            attributes[attribute.name] = attribute
    return attributes


def local_attributes(body: onnx.FunctionProto, attributes: Attributes, node: Node) -> dict[str, onnx.AttributeProto]:
    """Return the attributes of a model function in one call: the given values, else the defaults.

    Raises `ModelImportError` for an unknown attribute.
    """
    defaults = {attribute.name: attribute for attribute in body.attribute_proto}
    unknown = sorted(set(attributes) - set(defaults) - set(body.attribute))
    if unknown:
        raise node.invalid(f"unknown attribute {unknown[0]!r} of the function")
    return {**defaults, **attributes}


def operator_body(
    item: onnx.NodeProto, node: Node, attributes: Attributes
) -> tuple[onnx.FunctionProto, dict[str, onnx.AttributeProto]] | None:
    """Return ONNX's function body of an operator, and the values of its attributes.

    Returns None if ONNX does not have the operator or defines no body.
    """
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    defaults = {name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value.name}
    bound = {**defaults, **attributes}
    body = onnx.FunctionProto()
    if schema.has_function:
        # The newest body for an opset that is not newer than the model's.
        body.ParseFromString(schema.get_function_with_opset_version(_newest(schema.function_opset_versions, node.opset)))
        return body, bound
    if schema.has_context_dependent_function:
        types = [b"" if value is None else _type_proto(value.type).SerializeToString() for value in node.inputs]
        resolved_node = onnx.NodeProto()
        resolved_node.CopyFrom(item)
        del resolved_node.attribute[:]
        resolved_node.attribute.extend(_named(name, attribute) for name, attribute in attributes.items())
        version = _newest(schema.context_dependent_function_opset_versions, node.opset)
        body.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(version, resolved_node.SerializeToString(), types)
        )
        return body, bound
    return None


def _newest(versions: list[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=min(versions))


def _named(name: str, attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """Rename an attribute. A resolved reference still has the name that the enclosing function uses, which may differ."""
    import onnx

    if attribute.name == name:
        return attribute
    named = onnx.AttributeProto()
    named.CopyFrom(attribute)
    named.name = name
    return named


def _type_proto(type_: Type) -> onnx.TypeProto:
    """Convert a type to an ONNX message, for context-dependent function bodies."""
    import onnx

    result = onnx.TypeProto()
    match type_:
        case TensorType(shape=shape, dtype=element):
            result.tensor_type.elem_type = proto.encode_dtype(element)
            result.tensor_type.shape.SetInParent()
            for dim in shape:
                item = result.tensor_type.shape.dim.add()
                if isinstance(dim, int):
                    item.dim_value = dim
        case SequenceType(element=inner):
            result.sequence_type.elem_type.CopyFrom(_type_proto(inner))
        case OptionalType(element=inner):
            result.optional_type.elem_type.CopyFrom(_type_proto(inner))
    return result
