"""Graph-level bodies of kernels, their names and source nodes."""

from __future__ import annotations

from inlaid import arith
from inlaid.graph import ir as graph
from inlaid.graph.attrs import attr_vars
from inlaid.graph.operator import Operator
from inlaid.lowering.kernel import INLINE_LIMIT, result_types, tensor_type
from inlaid.types import type_vars


def body_of(call: graph.Call) -> tuple[tuple[graph.Var, ...], graph.Expr, tuple[graph.Expr, ...]]:
    """Return the parameters, body and arguments of a call, with single-element constants inlined into the body."""
    if isinstance(call.callee, graph.Function):
        return inline_scalars(call.callee.params, call.callee.body, call.args)
    params = tuple(graph.var(f"x{index}", arg.type) for index, arg in enumerate(call.args))
    return inline_scalars(params, graph.Call(call.type, call.span, call.callee, params, call.attrs), call.args)


def hidden_sizes(params: tuple[graph.Var, ...], body: graph.Expr) -> frozenset[arith.Expr]:
    """Return the size variables of a fused function that no parameter or result has as a dimension. A call cannot bind such
    variables, so two equal kernels are shared only if their hidden sizes are the same."""
    types = [param.type for param in params] + list(result_types(body.type))
    every = frozenset().union(
        *map(type_vars, types), *(attr_vars(x.attrs) for x in graph.post_order(body) if isinstance(x, graph.Call))
    )
    return every.difference(*(tensor_type(type_).shape for type_ in types))


def inline_scalars(
    params: tuple[graph.Var, ...], body: graph.Expr, args: tuple[graph.Expr, ...]
) -> tuple[tuple[graph.Var, ...], graph.Expr, tuple[graph.Expr, ...]]:
    """Inline single-element constants into a kernel body as literals."""
    chosen = {
        id(param): arg
        for param, arg in zip(params, args, strict=True)
        if isinstance(arg, graph.Constant) and arg.data.size <= INLINE_LIMIT and arg.data.size
    }
    if not chosen:
        return params, body, args
    memo: dict[int, graph.Expr] = dict(chosen)
    for expr in graph.post_order(body):
        if id(expr) not in memo:
            memo[id(expr)] = graph.rebuild(expr, tuple(memo[id(child)] for child in graph.children(expr)))
    kept = [(param, arg) for param, arg in zip(params, args, strict=True) if id(param) not in chosen]
    return tuple(param for param, _ in kept), memo[id(body)], tuple(arg for _, arg in kept)


def is_operator(call: graph.Call, name: str) -> bool:
    """Test whether a call's callee is the operator `name`."""
    return isinstance(call.callee, Operator) and call.callee.name == name


def operators_of(body: graph.Expr) -> list[str]:
    """Return the names of a kernel's operators in post-order."""
    return [e.callee.name for e in graph.post_order(body) if isinstance(e, graph.Call) and isinstance(e.callee, Operator)]


def kernel_name(body: graph.Expr) -> str:
    """Return a kernel's name, which lists its operators."""
    return "_".join(operators_of(body))[:60] or "empty"


def source_nodes(call: graph.Expr, body: graph.Expr) -> tuple[str, ...]:
    """Return the names of the model's nodes that a call computes; `body` is the body of its callee."""
    spans = [expr.span for expr in graph.post_order(body) if isinstance(expr, graph.Call)] + [call.span]
    return tuple(dict.fromkeys(span.node for span in spans if span is not None and span.node))
