"""Build the unscheduled loop program of one kernel from a fused graph function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from inlaid.graph import ir as graph
from inlaid.graph.operator import Attrs, Operator
from inlaid.ops.threads.grid import Grid
from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir, te
from inlaid.tensor.lower import lower
from inlaid_runtime.errors import CompileError, InlaidError
from inlaid_runtime.names import unique
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import TensorType, TupleType, Type

INLINE_LIMIT = 1
"""Maximum number of elements of a constant that is inlined into a kernel as a literal."""


@dataclass(frozen=True)
class KernelSource:
    """Source of a kernel: `body` over `params`; a tuple body has one result per field. `in_place`: the body is a call of an
    operator that updates its first argument, and the result reuses that argument's buffer."""

    name: str
    params: tuple[graph.Var, ...]
    body: graph.Expr
    in_place: bool = False


@dataclass(frozen=True)
class LoopCompute:
    """The `compute` of an operator that is defined by a loop program."""

    program: ir.LoopProgram

    def __call__(self, attrs: Attrs, *tensors: te.Tensor, **kwargs: Any) -> ir.LoopProgram:
        return self.program


def thread_grid(capabilities: Capabilities) -> Grid | None:
    """The thread grid for which operators build loop programs; None for targets without threads or with one thread per block."""
    threads = capabilities.threads
    if threads is None or threads.block == 1:
        return None
    shared_scope = next((scope for scope in capabilities.scopes if scope.owner == "block"), None)
    if shared_scope is None:
        return Grid(threads.block, threads.resident)
    return Grid(threads.block, threads.resident, shared_scope.name, shared_scope.capacity)


def meaning(call: graph.Call, grid: Grid | None) -> Callable[..., Any] | None:
    """Return the `compute` of an operator call, threaded if the grid allows it; None if the operator has no `compute`."""
    operator = call.callee
    assert isinstance(operator, Operator)
    threaded = operator.threaded
    if grid is not None and threaded is not None and threaded.takes(grid, call.attrs, *(arg.type for arg in call.args)):
        return partial(threaded.compute, grid)
    return operator.compute


def build(source: KernelSource, grid: Grid | None = None) -> ir.LoopProgram:
    """Build the loop program of a kernel by composing the `compute`s of its operators, for a grid of threads if one is given.
    Inputs are the parameters in order, outputs the results. Raises `CompileError` if an operator has no `compute`, or if its
    `compute` fails."""
    callee = source.body.callee if isinstance(source.body, graph.Call) else None
    if isinstance(callee, Operator) and isinstance(callee.compute, LoopCompute):
        return callee.compute.program
    values: dict[int, Any] = {}
    names: set[str] = set()
    inputs = []
    for param in source.params:
        type_ = tensor_type(param.type)
        tensor = te.placeholder(type_.shape, type_.dtype, unique(_plain(param.name), names))
        values[id(param)] = tensor
        inputs.append(tensor)
    for expr in graph.post_order(source.body):
        if id(expr) not in values:
            values[id(expr)] = _value(expr, values, source.in_place, grid)
    result = values[id(source.body)]
    outputs = result if isinstance(result, tuple) else (result,)
    program = lower(outputs, inputs, source.name)
    return replace(program, updates=((0, 0),)) if source.in_place else program


def _value(expr: graph.Expr, values: dict[int, Any], in_place: bool, grid: Grid | None) -> Any:
    match expr:
        case graph.Call(callee=Operator() as operator, args=args):
            return _computed(operator, expr, tuple(values[id(arg)] for arg in args), in_place, grid)
        case graph.Tuple(fields=fields):
            return tuple(values[id(field)] for field in fields)
        case graph.TupleItem(tuple=inner, index=index):
            return values[id(inner)][index]
        case graph.Constant():
            return _literal(expr)
    raise CompileError(f"a kernel must consist of operator calls, tuples and constants, found {expr!r}", node=str(expr.span or ""))


def _computed(operator: Operator, call: graph.Call, tensors: tuple[Any, ...], in_place: bool, grid: Grid | None) -> Any:
    """Apply an operator's `compute` or `update`, which may be user-defined, to tensors and check the result's type."""
    node = str(call.span or "")
    compute = operator.update if in_place else meaning(call, grid)
    if compute is None:
        raise CompileError("no tensor-level compute: decompose the operator before lowering", operator=operator.name, node=node)
    kwargs = {"out_type": call.type} if operator.existential else {}
    try:
        result = compute(call.attrs, *tensors, **kwargs)
    except InlaidError:
        raise
    except Exception as error:
        raise CompileError(f"compute raised {type(error).__name__}: {error}", operator=operator.name, node=node) from error
    parts = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(part, te.Tensor) for part in parts):
        raise CompileError(f"compute must return tensors, found {result!r}", operator=operator.name, node=node)
    # Buffers are sized by the types: a kernel with another result type would write out of bounds.
    expected = result_types(call.type)
    if len(parts) != len(expected) or not all(map(_fits, parts, expected)):
        actual = ", ".join(repr(TensorType(part.shape, part.dtype)) for part in parts)
        raise CompileError(f"compute must return {call.type!r}, found {actual}", operator=operator.name, node=node)
    return result


def _fits(tensor: te.Tensor, type_: TensorType) -> bool:
    """Test whether a tensor may have a type: equal dtype, rank and static dimensions."""
    return (
        tensor.dtype is type_.dtype
        and len(tensor.shape) == type_.rank
        and not any(a != b for a, b in zip(tensor.shape, type_.shape, strict=True) if isinstance(a, int) and isinstance(b, int))
    )


def _literal(constant: graph.Constant) -> te.Tensor:
    type_ = tensor_type(constant.type)
    if constant.data.size != 1:
        size = constant.data.size
        raise CompileError(f"a constant in a kernel must have 1 element, found {size}", node=str(constant.span or ""))
    value = constant.data.reshape(()).astype(type_.dtype.numpy).item() if type_.dtype.bits > 8 else constant.data.reshape(())
    number = float(value) if type_.dtype.is_float else int(value)
    tensor: te.Tensor = te.compute(type_.shape, lambda *_: te.const(number, type_.dtype), "literal")
    return tensor


def tensor_type(type_: Type) -> TensorType:
    """Narrow a type to `TensorType`. Raises `CompileError` for any other type."""
    if not isinstance(type_, TensorType):
        raise CompileError(f"a kernel's parameters and results must be tensors, found {type_!r}")
    return type_


def result_types(type_: Type) -> tuple[TensorType, ...]:
    """Return the tensor types of a kernel's or region's results: the fields of a tuple, or the single tensor."""
    return tuple(map(tensor_type, type_.fields if isinstance(type_, TupleType) else (type_,)))


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name) or "x"
