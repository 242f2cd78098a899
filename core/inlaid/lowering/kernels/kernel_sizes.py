"""Give kernels size variables of their own for dimensions that are expressions of the region's dimensions.

The data of a layer deep in a network of images has a height such as (((height + 3) // 16) + -1). A kernel over such dimensions
repeats the expressions in every address, extent and condition. A kernel over a variable is shorter, takes less time to analyze, and
serves every layer whose dimensions only have other expressions.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph import ir as graph
from inlaid.graph.attrs import attr_vars
from inlaid.lowering.kernels.kernel import result_types, tensor_type
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, SizeVar
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.names import unique
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, substitute_type

Facts = tuple[tuple[int, int | None, int, int], ...]
"""Per variable: its lower and upper bound, its size hint, and its size hint if unbounded sizes are assumed to be `IMAGE_SIDE`."""


@dataclass(frozen=True)
class ParametricKernel:
    """A kernel's parameters and body over variables of its own, and facts about these."""

    params: tuple[graph.Var, ...]
    body: graph.Expr
    facts: Facts = ()


def parametrize_sizes(params: tuple[graph.Var, ...], body: graph.Expr) -> ParametricKernel:
    """Replace dimensions of parameters that are expressions by variables. Returns the kernel unchanged if no dimension is one, or
    if the kernel depends on the expressions: its attributes have sizes, or types cannot be inferred without the expressions."""
    unchanged = ParametricKernel(params, body)
    dims = [dim for param in params for dim in tensor_type(param.type).shape if not isinstance(dim, int)]
    size_names = {str(size) for dim in dims for size in arith.free_vars(dim)}
    names = {dim: _variable(dim, size_names) for dim in dict.fromkeys(dims) if dim.operands}
    if not names:
        return unchanged
    exprs = list(graph.post_order(body))
    if any(graph.introduced_sizes(expr) or (isinstance(expr, graph.Call) and attr_vars(expr.attrs)) for expr in exprs):
        return unchanged
    if any(graph.existential(size) for dim in names for size in arith.free_vars(dim)):
        return unchanged
    renamed = tuple(_renamed(param, names) for param in params)
    rebuilt: dict[int, graph.Expr] = {id(old): new for old, new in zip(params, renamed, strict=True)}
    try:
        for expr in exprs:
            if id(expr) not in rebuilt:
                rebuilt[id(expr)] = graph.rebuild(expr, tuple(rebuilt[id(child)] for child in graph.children(expr)))
    except InlaidError:
        return unchanged
    result = rebuilt[id(body)]
    dims_by_variable: dict[Expr, Expr] = {variable: dim for dim, variable in names.items()}
    # Without the expressions, some extents, as of broadcasts, would be selected at run time.
    if any(map(_selects, rebuilt.values())) or substitute_type(result.type, dims_by_variable) != body.type:
        return unchanged
    return ParametricKernel(renamed, result, tuple(map(_facts, names.values())))


def _selects(expr: graph.Expr) -> bool:
    types = result_types(expr.type) if isinstance(expr.type, (TensorType, TupleType)) else ()
    dims = (dim for type_ in types for dim in type_.shape if not isinstance(dim, int))
    return any(isinstance(node, arith.Select) for dim in dims for node in arith.walk(dim))


def _variable(dim: Expr, size_names: set[str]) -> SizeVar:
    low, high = arith.bounds(dim)
    return SizeVar(unique("size", size_names), max(low or 0, 0), None if high is None else max(high, 0), dim)


def _facts(size: SizeVar) -> tuple[int, int | None, int, int]:
    assert size.upper is None or isinstance(size.upper, int)
    return size.lower, size.upper, arith.size_hint(size), arith.size_hint(size, arith.IMAGE_SIDE)


def _renamed(param: graph.Var, names: Mapping[Expr, SizeVar]) -> graph.Var:
    type_ = tensor_type(param.type)
    shape = tuple(dim if isinstance(dim, int) else names.get(dim, dim) for dim in type_.shape)
    return param if shape == type_.shape else graph.var(param.name, TensorType(shape, type_.dtype), span=param.span)
