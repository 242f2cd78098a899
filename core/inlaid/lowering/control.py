"""Regions that consist of one loop, whose body is lowered as a region."""

from __future__ import annotations

from inlaid.graph import ir as graph
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.lowering.selection.updates import Exchange
from inlaid.lowering.signature import bound_bytes, build_signature
from inlaid.tensor.region import RegionLoop, RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.memory.planner import aligned
from inlaid_runtime.types import FunctionType, TupleType


def find_loop(function: graph.Function) -> graph.Loop | None:
    """Match a region whose results are all results of one loop; None for any other region."""
    if not isinstance(function.body, graph.Tuple):
        return None
    loops = {id(item.tuple): item.tuple for item in function.body.fields if isinstance(item, graph.TupleItem)}
    match list(loops.values()):
        case [graph.Loop() as loop]:
            return loop
    return None


def loop_body(function: graph.Function, loop: graph.Loop) -> graph.Function:
    """Convert the body of a region's loop to a closed function. Its parameters are the iteration number, states, slices, then
    captured values. Its results are the continue condition (unless constant true), the states and the outputs."""
    body = loop.body
    assert isinstance(body, graph.Function) and isinstance(body.body.type, TupleType)
    results = [graph.tuple_item(body.body, index) for index in range(len(body.body.type.fields))]
    return graph.function((*body.params, *captured(function, loop)), graph.tuple_(results if _may_stop(loop) else results[1:]))


def captured(function: graph.Function, loop: graph.Loop) -> tuple[graph.Var, ...]:
    """Return the parameters of a loop region that the loop's body captures."""
    return function.params[len(_controls(loop)) + len(loop.state) + len(loop.scanned) :]


def carries(loop: graph.Loop) -> Exchange:
    """Return a predicate that allows each state's result to reuse the buffer of the same state's input."""
    first = 1 if _may_stop(loop) else 0
    return lambda result, param: 0 < param <= len(loop.state) and result - first == param - 1


def lower_loop(name: str, function: graph.Function, loop: graph.Loop, body: RegionProgram) -> RegionLoop:
    """Build the region of a loop from its lowered body."""
    dims: set[arith.Expr] = {arith.SizeVar(dim.name) for dim in body.signature.dims}
    in_place = frozenset(input_index - 1 for _, input_index in body.aliases)
    offsets: list[Dim] = []
    size = aligned(body.workspace)
    for number, state in enumerate(loop.state):
        type_ = tensor_type(state.type)
        offsets.append(size)
        if number not in in_place:
            size = arith.unwrap(arith.add(size, aligned(bound_bytes(type_.shape, type_.dtype.bytes))))
    return RegionLoop(
        name,
        body,
        build_signature(function, (), arith.free_vars(size).union(dims)),
        trip_count=loop.trip_count is not None,
        condition=loop.condition is not None,
        may_stop=_may_stop(loop),
        states=len(loop.state),
        scanned=len(loop.scanned),
        spare=tuple(offsets),
        workspace=size,
        in_place=in_place,
    )


def _controls(loop: graph.Loop) -> tuple[graph.Expr, ...]:
    return tuple(item for item in (loop.trip_count, loop.condition) if item is not None)


def _may_stop(loop: graph.Loop) -> bool:
    """Test whether the body may end the loop."""
    assert isinstance(loop.body, graph.Function) and isinstance(loop.body.type, FunctionType)
    continues = graph.tuple_item(loop.body.body, 0)
    return not (isinstance(continues, graph.Constant) and bool(continues.data))
