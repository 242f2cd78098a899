"""Read sizes from tensors that targets hold, instead of from strings."""

from __future__ import annotations

from inlaid.graph.attrs import shown_sizes
from inlaid.graph.ir import Call, Expr, Function, call, children, existential, post_order
from inlaid.graph.scopes import Scope, analyse, common_scope, is_leaf
from inlaid.graph.transform import transform_function
from inlaid.ops.shape import iota, sizes
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType


def tensor_witnesses(function: Function) -> Function:
    """Replace witnesses that are strings (see `ops.shape`) by tensors that show the same sizes, such as the numbers of the strings
    in a vocabulary. Only the host holds strings, so that operators which read sizes from them would run there as well. Returns the
    same object if nothing changes.

    The tensor is one of the same scope, or of an enclosing one, that depends on no replaced witness.
    """
    if not any(_string_witnesses(expr) for expr in post_order(function)):
        return function
    scopes = analyse(function)
    dependent: set[int] = set()
    tensors: list[tuple[Expr, Scope, frozenset[arith.Expr]]] = []
    for expr in post_order(function):
        if _string_witnesses(expr) or any(id(child) in dependent for child in children(expr)):
            dependent.add(id(expr))
        elif not is_leaf(expr) and not _is_text(expr) and (shown := _computed_sizes(expr)):
            tensors.append((expr, scopes.expr_scopes[id(expr)], shown))

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not _string_witnesses(old):
            return new
        home = scopes.expr_scopes[id(old)]
        replacements = [
            next((tensor for tensor, scope, shown in tensors if read <= shown and common_scope(scope, home) is scope), arg)
            if _is_text(arg) and (read := _computed_sizes(arg))
            else arg
            for arg in new.args
        ]
        return new if replacements == list(new.args) else call(new.callee, replacements, new.attrs, new.span)

    return transform_function(function, visit)


def _string_witnesses(expr: Expr) -> bool:
    """Test whether an expression reads sizes from strings."""
    return isinstance(expr, Call) and expr.callee in (iota, sizes) and any(map(_is_text, expr.args))


def _is_text(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.kind == "string"


def _computed_sizes(expr: Expr) -> frozenset[arith.Expr]:
    """Return the sizes of a tensor that the run computes."""
    return frozenset(filter(existential, shown_sizes(expr.type))) if isinstance(expr.type, TensorType) else frozenset()
