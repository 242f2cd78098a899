"""Values made to fit a type: what branches, loops and sequences need where their types differ in more than dimensions."""

from __future__ import annotations

from inlaid import ops
from inlaid.errors import TypeInferenceError
from inlaid.graph.ir import Expr, Span, call
from inlaid.graph.unify import join_types
from inlaid.ops.container import NOTHING, host_attrs
from inlaid.types import OptionalType, SequenceType, TensorType, Type


def scalar(expr: Expr) -> Expr:
    """A tensor of one element as a 0-d tensor. ONNX lets conditions and counts have shape (1,)."""
    if isinstance(expr.type, TensorType) and expr.type.rank:
        return ops.reshape(expr, shape=(), span=expr.span)
    return expr


def common_type(a: Type, b: Type) -> Type:
    """The type that values of both types can be made to have. Raises `TypeInferenceError` where there is none.

    A sequence known to be empty fits any sequence, and a value fits where an optional one is asked for.
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


def coerce(expr: Expr, wanted: Type, span: Span) -> Expr:
    """The value, of a type that `common_type` made wider; `span` is of the node that needs it so."""
    if expr.type == wanted or isinstance(wanted, TensorType):
        return expr
    if isinstance(wanted, OptionalType) and not isinstance(expr.type, OptionalType):
        return coerce(ops.optional_some(expr, span=span), wanted, span)
    if isinstance(wanted, (OptionalType, SequenceType)):
        return call(ops.host_widen, (expr,), host_attrs(wanted), span)
    raise TypeInferenceError(f"a value of type {expr.type!r} does not fit {wanted!r}")
