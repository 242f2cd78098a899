"""Loop and Scan, all versions, converted to the graph's `Loop`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Constant, Expr, Function, Tuple, constant, function, loop, tuple_, tuple_item, var
from inlaid.graph.loops import never_stops
from inlaid.graph.unify import fresh_size
from inlaid.ops.compose import expr_type, reversed_axis
from inlaid_onnx.convert.coerce import coerce, common_type, scalar
from inlaid_onnx.node import Converter, Node
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

_ITERATION = TensorType((), "int64")
_MAX_WIDENINGS = 16
"""Maximum number of widenings of the carried types. Each widening makes a dimension existential or sets an element type."""


def _loop(node: Node) -> tuple[Expr | None, ...]:
    graph = node.attrs.get("body")
    if graph is None:
        raise node.error("attribute 'body' is missing")
    always = constant(True, span=node.span)
    condition = node.optional(1)
    static_condition = None if condition is None else node.static(1)
    trips = _trip_count(node, never_runs=static_condition is not None and not static_condition.all())
    states = tuple(node.input(index) for index in range(2, len(node.inputs)))

    def body(types: Sequence[Type]) -> Function:
        iteration = var(f"{node.span.node}.iteration", _ITERATION, span=node.span)
        # The body runs only while the condition holds, so inside it the condition is true.
        subgraph = node.scope.subgraph(graph, (iteration, always, *types))
        # Without a condition input, the body's condition output is ignored.
        keep = scalar(_fields(subgraph)[0]) if condition is not None else always
        results = tuple_((keep, *_fields(subgraph)[1:]))
        return function((iteration, *subgraph.params), results, span=node.span, constraints=subgraph.constraints)

    widened_body, states = _widened(node, body, states, first=1)
    undecided = condition is not None and static_condition is None
    stacks = len(_fields(widened_body)) - 1 > len(states)
    scanned: tuple[Expr, ...] = ()
    if stacks and trips is not None and not isinstance(trips, Constant) and not undecided and never_stops(widened_body):
        widened_body, scanned, trips = _counted(node, widened_body, trips)
    result = loop(
        widened_body,
        state=states,
        scanned=scanned,
        trip_count=trips,
        condition=scalar(node.input(1)) if undecided else None,
        stacked_extent=fresh_size("trips") if undecided else None,
        span=node.span,
    )
    return tuple(tuple_item(result, index, node.span) for index in range(len(_fields(widened_body)) - 1))


def _trip_count(node: Node, never_runs: bool) -> Expr | None:
    if never_runs:
        return constant(np.int64(0), span=node.span)
    if node.optional(0) is None:
        return None
    static_count = node.static(0)
    return scalar(node.input(0)) if static_count is None else constant(static_count.reshape(()), span=node.span)


def _counted(node: Node, body: Function, trips: Expr) -> tuple[Function, tuple[Expr, ...], None]:
    """Make the trip count of a loop that always reaches it a size: the length of a scanned input without elements. The lengths of
    stacked outputs are then known before the loop, so that targets can run it. Returns the body, the scanned input and no trip
    count."""
    count = node.scope.binder.clamped(trips, f"{node.name}: the trip count", node.span)
    witness = node.scope.binder.witness(count, node.span)
    row = var(f"{node.span.node}.row", TensorType((0,), expr_type(witness).dtype), span=node.span)
    counted = function((*body.params, row), body.body, span=body.span, constraints=body.constraints)
    return counted, (witness,), None


def _fields(body: Function) -> tuple[Expr, ...]:
    assert isinstance(body.body, Tuple)
    return body.body.fields


def _widened(node: Node, body: Any, states: tuple[Expr, ...], first: int) -> tuple[Function, tuple[Expr, ...]]:
    """Find types of the carried values that hold both before and after each iteration. Returns the body for these types, and the
    initial values converted to them.

    `body(types)` imports the body for carried types; the carried results start at result number `first`. If a result does not fit
    its parameter, the parameter's type is widened and the body is imported again.
    """
    widened_names: set[str] = set()
    key = (node.span.node, *node.outputs)
    types = [state.type for state in states]
    cached_types = node.scope.carried.get(key, ())
    if len(cached_types) == len(types):
        with suppress(TypeInferenceError):  # loops in two branches may have the same name
            types = [_widen(a, b, widened_names) for a, b in zip(types, cached_types, strict=True)]
    for _ in range(_MAX_WIDENINGS):
        typed_body: Function = body(types)
        results = [item.type for item in _fields(typed_body)[first : first + len(states)]]
        if len(results) != len(states):
            raise node.error(f"the body must return {len(states)} carried values, got {len(results)}")
        wider = [_widen(a, b, widened_names) for a, b in zip(types, results, strict=True)]
        if wider == types:
            node.scope.carried[key] = tuple(types)
            fields = list(_fields(typed_body))
            for index, type_ in enumerate(types, first):
                fields[index] = coerce(fields[index], type_, node.span)
            initial_values = tuple(coerce(state, type_, node.span) for state, type_ in zip(states, types, strict=True))
            coerced_body = function(
                typed_body.params, tuple_(fields, node.span), span=typed_body.span, constraints=typed_body.constraints
            )
            return coerced_body, initial_values
        types = wider
    raise node.error(f"the types of the carried values must stop widening after {_MAX_WIDENINGS} imports of the body")


def _widen(param: Type, result: Type, widened_names: set[str]) -> Type:
    """Widen the type `param` of a carried value to include the type `result` that the body returns. Dimensions that change become
    existential. `widened_names` has the names of the dimensions that earlier widenings made existential: these fit any
    dimension."""
    match param, result:
        case TensorType(), TensorType() if param.dtype is result.dtype and param.rank == result.rank:
            return TensorType(
                [_widen_dim(a, b, widened_names) for a, b in zip(param.shape, result.shape, strict=True)], param.dtype
            )
        case (SequenceType(element=TensorType() as a), SequenceType(element=TensorType() as b)):
            return SequenceType(_widen(a, b, widened_names))
        case (OptionalType(element=a), OptionalType(element=b)) if a == b:
            return param
        case OptionalType(element=a), _ if not isinstance(result, OptionalType) and isinstance(a, (TensorType, SequenceType)):
            return OptionalType(_widen(a, result, widened_names))
    return common_type(param, result)


def _widen_dim(a: Dim, b: Dim, widened_names: set[str]) -> Dim:
    if a == b or (isinstance(a, SizeVar) and a.name in widened_names):
        return a
    fresh = fresh_size("carried")
    widened_names.add(fresh.name)
    return fresh


# --- Scan -------------------------------------------------------------------------------------------------------------


def _scan(node: Node) -> tuple[Expr | None, ...]:
    return _scan_batched(node) if node.opset < 9 else _scan_axes(node)


def _scan_axes(node: Node) -> tuple[Expr | None, ...]:
    """Convert Scan since opset 9: no batch axis, and attributes for the scan axes."""
    values = [node.input(index) for index in range(len(node.inputs))]
    count = _scanned_count(node, len(values))
    states, scanned = values[: len(values) - count], values[len(values) - count :]
    axes = _per_item(node, "scan_input_axes", count)
    scanned = [_axis_first(node, item, axis) for item, axis in zip(scanned, axes, strict=True)]
    outputs = _scan_loop(node, states, scanned, _per_item(node, "scan_input_directions", count))
    stacked = outputs[len(states) :]
    directions = _per_item(node, "scan_output_directions", len(stacked))
    out_axes = _per_item(node, "scan_output_axes", len(stacked))
    restored = [reversed_axis(item, 0) if backwards else item for item, backwards in zip(stacked, directions, strict=True)]
    return (*outputs[: len(states)], *(_axis_back(node, item, axis) for item, axis in zip(restored, out_axes, strict=True)))


def _scan_batched(node: Node) -> tuple[Expr | None, ...]:
    """Convert Scan of opset 8: every value has a leading batch axis, and the batch elements are scanned separately."""
    if node.optional(0) is not None:
        raise node.error("the input sequence_lens is not supported: omit it")
    values = [node.input(index) for index in range(1, len(node.inputs))]
    count = _scanned_count(node, len(values))
    directions = _per_item(node, "directions", count)
    params = []
    for index, item in enumerate(values):
        if not isinstance(item.type, TensorType) or item.type.rank == 0:
            raise node.error(f"input {index + 1} must have a batch axis, got a scalar")
        params.append(var(f"{node.span.node}.{index}", TensorType(item.type.shape[1:], item.type.dtype), span=node.span))
    outputs = _scan_loop(node, params[: len(values) - count], params[len(values) - count :], directions)
    iteration = var(f"{node.span.node}.batch", _ITERATION, span=node.span)
    body = function((iteration, *params), tuple_((constant(True, span=node.span), *outputs)), span=node.span)
    batches = loop(body, scanned=values, span=node.span)
    return tuple(tuple_item(batches, index, node.span) for index in range(len(outputs)))


def _scanned_count(node: Node, available: int) -> int:
    count = node.attrs.get("num_scan_inputs", 0)
    if not isinstance(count, int) or not 1 <= count <= available:
        raise node.error(f"num_scan_inputs must be at least 1 and at most the {available} inputs, got {count}")
    return count


def _per_item(node: Node, name: str, count: int) -> list[int]:
    values = node.attrs.get(name) or [0] * count
    if len(values) != count:
        raise node.error(f"attribute {name} must have {count} elements, got {len(values)}")
    return list(values)


def _scan_loop(node: Node, states: Sequence[Expr], scanned: Sequence[Expr], directions: Sequence[int]) -> tuple[Expr, ...]:
    """Build a scan along the first axes. Returns carried values and stacked outputs. A direction of 1 scans from the end."""
    graph = node.attrs.get("body")
    if graph is None:
        raise node.error("attribute 'body' is missing")
    scanned = [reversed_axis(item, 0) if backwards else item for item, backwards in zip(scanned, directions, strict=True)]
    slices = [TensorType(item.type.shape[1:], item.type.dtype) for item in scanned if isinstance(item.type, TensorType)]

    def body(types: Sequence[Type]) -> Function:
        iteration = var(f"{node.span.node}.iteration", _ITERATION, span=node.span)
        subgraph = node.scope.subgraph(graph, (*types, *slices))
        results = tuple_((constant(True, span=node.span), *_fields(subgraph)))
        return function((iteration, *subgraph.params), results, span=node.span, constraints=subgraph.constraints)

    widened_body, states = _widened(node, body, tuple(states), first=1)
    result = loop(widened_body, state=states, scanned=scanned, span=node.span)
    return tuple(tuple_item(result, index, node.span) for index in range(len(_fields(widened_body)) - 1))


def _axis_first(node: Node, value: Expr, axis: int) -> Expr:
    """Move an axis to the front."""
    if not isinstance(value.type, TensorType):
        raise node.error(f"expected a tensor of rank >= 1 to scan, got {value.type!r}")
    axis = node.axis(axis, value.type.rank)
    perm = (axis, *(other for other in range(value.type.rank) if other != axis))
    return ops.transpose(value, perm=perm, span=node.span) if axis else value


def _axis_back(node: Node, value: Expr, axis: int) -> Expr:
    """Move the first axis to a position."""
    assert isinstance(value.type, TensorType)
    axis = node.axis(axis, value.type.rank)
    perm = (*range(1, axis + 1), 0, *range(axis + 1, value.type.rank))
    return ops.transpose(value, perm=perm, span=node.span) if axis else value


CONVERTERS: Mapping[str, Converter] = {"Loop": _loop, "Scan": _scan}
