"""Graph-level bodies of kernels, their names and source nodes."""

from __future__ import annotations

from typing import TypeGuard

from inlaid.graph import ir as graph
from inlaid.graph.attrs import attr_vars
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.kernel import INLINE_LIMIT, result_types, tensor_type
from inlaid_runtime import arith
from inlaid_runtime.types import type_vars


def inlined_body(
    call: graph.Call, param_positions: frozenset[int] = frozenset()
) -> tuple[tuple[graph.Var, ...], graph.Expr, tuple[graph.Expr, ...]]:
    """Return the parameters, body and arguments of a call. Single-element constants are inlined into the body, except the arguments
    at the positions `param_positions`."""
    return inline_scalars(*call_body(call), call.args, param_positions)


def call_body(call: graph.Call) -> tuple[tuple[graph.Var, ...], graph.Expr]:
    """Return the parameters and body of a call, with a parameter per argument."""
    if isinstance(call.callee, graph.Function):
        return call.callee.params, call.callee.body
    params = tuple(graph.var(f"x{index}", arg.type) for index, arg in enumerate(call.args))
    return params, graph.Call(call.type, call.span, call.callee, params, call.attrs)


def hidden_sizes(params: tuple[graph.Var, ...], body: graph.Expr) -> frozenset[arith.Expr]:
    """Return the size variables of a fused function that no parameter or result has as a dimension. A call cannot bind such
    variables, so two equal kernels are shared only if their hidden sizes are the same."""
    types = [param.type for param in params] + list(result_types(body.type))
    all_sizes = frozenset().union(
        *map(type_vars, types), *(attr_vars(x.attrs) for x in graph.post_order(body) if isinstance(x, graph.Call))
    )
    return all_sizes.difference(*(tensor_type(type_).shape for type_ in types))


def inline_scalars(
    params: tuple[graph.Var, ...], body: graph.Expr, args: tuple[graph.Expr, ...], param_positions: frozenset[int] = frozenset()
) -> tuple[tuple[graph.Var, ...], graph.Expr, tuple[graph.Expr, ...]]:
    """Inline single-element constants into a kernel body as literals, except the arguments at the positions `param_positions`."""
    pairs = enumerate(zip(params, args, strict=True))
    literals = {id(param): arg for position, (param, arg) in pairs if is_scalar(arg) and position not in param_positions}
    if not literals:
        return params, body, args
    memo: dict[int, graph.Expr] = dict(literals)
    for expr in graph.post_order(body):
        if id(expr) not in memo:
            memo[id(expr)] = graph.rebuild(expr, tuple(memo[id(child)] for child in graph.children(expr)))
    remaining = [(param, arg) for param, arg in zip(params, args, strict=True) if id(param) not in literals]
    return tuple(param for param, _ in remaining), memo[id(body)], tuple(arg for _, arg in remaining)


def is_scalar(arg: graph.Expr) -> TypeGuard[graph.Constant]:
    """Test whether an argument is a constant that may be inlined."""
    return isinstance(arg, graph.Constant) and 0 < arg.data.size <= INLINE_LIMIT


def is_operator(call: graph.Call, name: str) -> bool:
    """Test whether a call's callee is the operator `name`."""
    return isinstance(call.callee, Operator) and call.callee.name == name


def operator_names(body: graph.Expr) -> list[str]:
    """Return the names of a kernel's operators in post-order."""
    return [e.callee.name for e in graph.post_order(body) if isinstance(e, graph.Call) and isinstance(e.callee, Operator)]


def kernel_name(body: graph.Expr) -> str:
    """Return a kernel's name, which lists its operators."""
    return "_".join(operator_names(body))[:60] or "empty"


def source_nodes(call: graph.Expr, body: graph.Expr) -> tuple[str, ...]:
    """Return the names of the model's nodes that a call computes; `body` is the body of its callee."""
    spans = [expr.span for expr in graph.post_order(body) if isinstance(expr, graph.Call)] + [call.span]
    return tuple(dict.fromkeys(span.node for span in spans if span is not None and span.node))
