"""Sequences, optionals and strings."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid import ops
from inlaid.graph.ir import Expr, call, constant, tuple_item
from inlaid.graph.operator import Operator
from inlaid.ops.container import NOTHING, host_attrs
from inlaid_onnx import proto
from inlaid_onnx.node import Converter, Node
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

# --- sequences --------------------------------------------------------------------------------------------------------


def _plain(name: str) -> Converter:
    """Make a converter that applies an operator to the inputs that are present."""

    def convert(node: Node) -> Expr:
        operator: Operator = getattr(ops, name)
        return operator(*(item for item in node.inputs if item is not None), span=node.span)

    return convert


def _join(node: Node) -> Expr:
    sequence = node.input(0)
    new_axis = bool(node.attrs.get("new_axis", 0))
    if "axis" not in node.attrs:
        raise node.error("attribute 'axis' is missing")
    if not isinstance(sequence.type, SequenceType) or not isinstance(sequence.type.element, TensorType):
        raise node.error(f"expected a sequence of tensors, got {sequence.type!r}")
    axis = node.axis(node.attrs["axis"], sequence.type.element.rank + new_axis)
    return ops.sequence_join(sequence, axis=axis, new_axis=new_axis, span=node.span)


def _split(node: Node) -> Expr:
    axis = node.axis(node.attrs.get("axis", 0), node.rank(0))
    keepdims = bool(node.attrs.get("keepdims", 1))
    sizes = node.optional(1)
    if sizes is None:
        return ops.sequence_split(node.input(0), axis=axis, keepdims=keepdims, span=node.span)
    return ops.sequence_split(node.input(0), sizes, axis=axis, span=node.span)  # with sizes, the axis is kept


# --- optionals --------------------------------------------------------------------------------------------------------


def _optional(node: Node) -> Expr:
    value = node.optional(0)
    if value is not None:
        return ops.optional_some(value, span=node.span)
    declared = node.attrs.get("type")
    if declared is None:
        raise node.error("an empty optional requires the attribute 'type'")
    return call(ops.optional_none, (), host_attrs(OptionalType(_declared(node, declared))), node.span)


def _declared(node: Node, declared: object) -> Type:
    """Decode the type in an attribute. A type that is not supported, such as a tensor without a shape, becomes `NOTHING`."""
    try:
        return proto.decode_type(declared, lambda dim, axis: int(dim.dim_value))  # type: ignore[arg-type]
    except ValueError:
        return NOTHING


def _has_element(node: Node) -> Expr:
    value = node.optional(0)
    if value is None or not isinstance(value.type, OptionalType):
        return constant(value is not None, span=node.span)
    return ops.optional_has(value, span=node.span)


def _get_element(node: Node) -> Expr:
    value = node.input(0)
    return ops.optional_get(value, span=node.span) if isinstance(value.type, OptionalType) else value


# --- strings ----------------------------------------------------------------------------------------------------------


def _string_split(node: Node) -> tuple[Expr, ...]:
    delimiter, limit = node.attrs.get("delimiter", ""), node.attrs.get("maxsplit", -1)
    parts = ops.string_split(node.input(0), delimiter=delimiter, maxsplit=limit, span=node.span)
    return tuple_item(parts, 0, node.span), tuple_item(parts, 1, node.span)


def _string_normalize(node: Node) -> Expr:
    return ops.string_normalize(
        node.input(0),
        case=node.attrs.get("case_change_action", "NONE"),
        case_sensitive=bool(node.attrs.get("is_case_sensitive", 0)),
        stopwords=tuple(node.attrs.get("stopwords", ())),
        span=node.span,
    )


def _regex(node: Node) -> Expr:
    if "pattern" not in node.attrs:
        raise node.error("attribute 'pattern' is missing")
    return ops.regex_full_match(node.input(0), pattern=node.attrs["pattern"], span=node.span)


CONVERTERS: Mapping[str, Converter] = {
    "SequenceEmpty": _plain("sequence_empty"),
    "SequenceConstruct": _plain("sequence_construct"),
    "SequenceInsert": _plain("sequence_insert"),
    "SequenceErase": _plain("sequence_erase"),
    "SequenceAt": _plain("sequence_at"),
    "SequenceLength": _plain("sequence_length"),
    "ConcatFromSequence": _join,
    "SplitToSequence": _split,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
    "StringConcat": _plain("string_concat"),
    "StringSplit": _string_split,
    "StringNormalizer": _string_normalize,
    "RegexFullMatch": _regex,
}
