"""Conversion of values to a common type, for branches, loops and sequences whose types differ in more than dimensions."""

from __future__ import annotations

from inlaid import ops
from inlaid.graph.ir import Expr, Span, call
from inlaid.graph.unify import join_types
from inlaid.ops.container import NOTHING, host_attrs
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type


def scalar(expr: Expr) -> Expr:
    """Reshape a tensor of one element to 0-d. ONNX allows conditions and counts of shape (1,)."""
    if isinstance(expr.type, TensorType) and expr.type.rank:
        return ops.reshape(expr, shape=(), span=expr.span)
    return expr


def common_type(a: Type, b: Type) -> Type:
    """Return the type that values of types `a` and `b` can be converted to. Raises `TypeInferenceError` without such a type.

    An empty sequence fits any sequence type, and a value fits an optional of its type.
    """
    match a, b:
        case SequenceType(element=x), SequenceType(element=y):
            if x == NOTHING or y == NOTHING:
                return b if x == NOTHING else a
            return SequenceType(common_type(x, y))
        case OptionalType(element=x), OptionalType(element=y):
            if x == NOTHING or y == NOTHING:
                return b if x == NOTHING else a
            return OptionalType(common_type(x, y))
        case (OptionalType(element=x), y) | (y, OptionalType(element=x)):
            return OptionalType(y if x == NOTHING else common_type(x, y))
    return join_types(a, b)


def coerce(expr: Expr, target_type: Type, span: Span) -> Expr:
    """Convert a value to a type from `common_type`. `span` is the span of the node that requires it."""
    if expr.type == target_type or isinstance(target_type, TensorType):
        return expr
    if isinstance(target_type, OptionalType) and not isinstance(expr.type, OptionalType):
        return coerce(ops.optional_some(expr, span=span), target_type, span)
    if isinstance(target_type, (OptionalType, SequenceType)):
        return call(ops.host_widen, (expr,), host_attrs(target_type), span)
    raise TypeInferenceError(f"expected a value of type {target_type!r}, got {expr.type!r}")
