"""Order operators after what computes the sizes that they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inlaid.graph.attrs import attr_vars, shown_sizes
from inlaid.graph.ir import Call, Expr, Function, children, existential, introduced_sizes, post_order, rebuild, tuple_item
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import Scope, Scopes, analyse, common_scope, is_leaf
from inlaid.ops.compose import with_witnesses
from inlaid.ops.shape import after
from inlaid_runtime import arith
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import TensorType, TupleType


def witness_sizes(function: Function) -> Function:
    """Give every operator whose attributes read a computed size an operand that shows the size: a witness (see `ops.shape`).

    Operators run after their operands, and regions learn sizes from the shapes of their inputs, so that an operator without such an
    operand may run before its size is known. Decompositions and rewrites need not think of that, if this runs after them. Returns
    the same object if nothing changes. Raises `VerifyError` for a size that is computed from an operator that reads it.
    """
    readers = {id(expr): hidden for expr in post_order(function) if (hidden := hidden_sizes(expr))}
    if not readers:
        return function
    scopes = analyse(function)
    binders = size_binders(function, scopes)
    witnesses: dict[int, list[Expr]] = {}
    for expr in post_order(function):
        for size in sorted(readers.get(id(expr), ()), key=repr):
            home = scopes.expr_scopes[id(expr)]
            # Outside of a loop rather than in it, so that the operator can move there, too.
            binder = next((value for value, scope in binders.get(size, ()) if common_scope(scope, home) is scope), None)
            if binder is not None:
                witnesses.setdefault(id(expr), []).append(binder)
    replacements: dict[int, Expr] = {}
    for expr in _in_order(function, witnesses):
        new = rebuild(expr, tuple([replacements[id(child)] for child in children(expr)]))
        if id(expr) in witnesses:
            assert isinstance(new, Call)
            new = with_witnesses(new, [replacements[id(witness)] for witness in witnesses[id(expr)]])
        replacements[id(expr)] = new
    result = replacements[id(function)]
    assert isinstance(result, Function)
    return result


def unshown_sizes(expr: Expr) -> frozenset[arith.Expr]:
    """Return the computed sizes that the attributes of an operator's call read and none of its operands shows."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator):
        return frozenset()
    sizes = frozenset(filter(existential, attr_vars(expr.attrs)))
    return sizes and sizes - shown_sizes(*(arg.type for arg in expr.args))


def hidden_sizes(expr: Expr) -> frozenset[arith.Expr]:
    """Return the sizes of `unshown_sizes` that no witness of an operand shows, either."""
    sizes = unshown_sizes(expr)
    if not sizes:
        return sizes
    pending = list(children(expr))
    witnesses: list[Expr] = []
    while pending:
        operand = pending.pop()
        if isinstance(operand, Call) and operand.callee is after:
            pending.append(operand.args[0])
            witnesses += operand.args[1:]
    return sizes - shown_sizes(*(witness.type for witness in witnesses))


def size_binders(function: Function, scopes: Scopes) -> Mapping[arith.Expr, list[tuple[Expr, Scope]]]:
    """Map each computed size to the tensors that bind it: parameters of functions, and results of the expressions that introduce
    it. Each has the outermost scope in which it can be evaluated; those of outer scopes are first."""
    binders: dict[arith.Expr, list[tuple[Expr, Scope]]] = {}
    param_scopes: dict[int, frozenset[Scope]] = {}
    for expr in post_order(function):
        if isinstance(expr, Function):
            body_scope = scopes.body(expr)
            for param in expr.params:
                param_scopes[id(param)] = frozenset({body_scope})
                for size in filter(existential, shown_sizes(param.type)):
                    binders.setdefault(size, []).append((param, body_scope))
    scopes_read: dict[int, frozenset[Scope]] = {}
    for expr in post_order(function):
        read = param_scopes.get(id(expr), frozenset()).union(*(scopes_read[id(child)] for child in children(expr)))
        scopes_read[id(expr)] = read - {scopes.body(expr)} if isinstance(expr, Function) else read
        if not is_leaf(expr) and (introduced := introduced_sizes(expr)):
            outermost = max(read, key=lambda scope: scope.depth, default=scopes.body(function))
            for part in _tensors(expr):
                for size in shown_sizes(part.type) & introduced:
                    binders.setdefault(size, []).append((part, outermost))
    for items in binders.values():
        items.sort(key=lambda item: item[1].depth)
    return binders


def _tensors(expr: Expr) -> list[Expr]:
    """Return the items of a tuple, or the expression itself, as far as they are tensors."""
    parts = [tuple_item(expr, index) for index in range(len(expr.type.fields))] if isinstance(expr.type, TupleType) else [expr]
    return [part for part in parts if isinstance(part.type, TensorType)]


def _in_order(root: Expr, witnesses: Mapping[int, list[Expr]]) -> Iterator[Expr]:
    """Yield the expressions under a root and the witnesses, each after its operands and its witnesses."""
    pending: set[int] = set()
    finished: set[int] = set()
    stack = [(root, False)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            finished.add(id(expr))
            yield expr
        elif id(expr) not in finished:
            if id(expr) in pending:
                raise VerifyError("a size is computed from an operator that reads it", node=str(expr.span or ""))
            pending.add(id(expr))
            stack.append((expr, True))
            sources = (*children(expr), *witnesses.get(id(expr), ()))
            stack.extend((source, False) for source in reversed(sources) if id(source) not in finished)
