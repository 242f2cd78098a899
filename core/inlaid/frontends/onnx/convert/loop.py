"""Loop and Scan, all versions, as the graph's `Loop`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.arith import Dim, SizeVar, unwrap
from inlaid.errors import TypeInferenceError
from inlaid.frontends.onnx.convert.coerce import coerce, common_type, scalar
from inlaid.frontends.onnx.node import Converter, Node
from inlaid.graph.ir import Expr, Function, Tuple, constant, function, loop, tuple_, tuple_item, var
from inlaid.graph.unify import fresh_size
from inlaid.types import OptionalType, SequenceType, TensorType, Type

_ITERATION = TensorType((), "int64")
_MAX_WIDENINGS = 16
"""How often the types of carried values may widen: each time turns a dimension existential or fills in a sequence's element."""


def _loop(node: Node) -> tuple[Expr | None, ...]:
    graph = node.attrs.get("body")
    if graph is None:
        raise node.error("attribute 'body' is missing")
    always = constant(True, span=node.span)
    condition = node.optional(1)
    known = None if condition is None else node.static(1)
    trips = _trip_count(node, stopped=known is not None and not known.all())
    states = tuple(node.input(index) for index in range(2, len(node.inputs)))

    def body(types: Sequence[Type]) -> Function:
        iteration = var(f"{node.span.node}.iteration", _ITERATION, node.span)
        # The body runs only while the condition holds, so inside it the condition is true.
        made = node.scope.subgraph(graph, (iteration, always, *types))
        # Without a condition, what the body says of one is ignored.
        keep = scalar(_fields(made)[0]) if condition is not None else always
        return function((iteration, *made.params), tuple_((keep, *_fields(made)[1:])), span=node.span)

    made, states = _widened(node, body, states, first=1)
    undecided = condition is not None and known is None
    result = loop(
        made,
        state=states,
        trip_count=trips,
        condition=scalar(node.input(1)) if undecided else None,
        stacked_extent=fresh_size("trips") if undecided else None,
        span=node.span,
    )
    return tuple(tuple_item(result, index, node.span) for index in range(len(_fields(made)) - 1))


def _trip_count(node: Node, stopped: bool) -> Expr | None:
    if stopped:
        return constant(np.int64(0), span=node.span)
    if node.optional(0) is None:
        return None
    known = node.static(0)
    return scalar(node.input(0)) if known is None else constant(known.reshape(()), span=node.span)


def _fields(body: Function) -> tuple[Expr, ...]:
    assert isinstance(body.body, Tuple)
    return body.body.fields


def _widened(node: Node, body: Any, states: tuple[Expr, ...], first: int) -> tuple[Function, tuple[Expr, ...]]:
    """The body of a loop for carried values of types that hold in every iteration, and the first values in these types.

    `body(types)` imports it for the types of the carried values; result number `first` is the first of them. Where a result does
    not fit its parameter, the parameter's type is widened and the body imported again.
    """
    ours: set[str] = set()
    key = (node.span.node, *node.outputs)
    types = [state.type for state in states]
    settled = node.scope.carried.get(key, ())
    if len(settled) == len(types):
        with suppress(TypeInferenceError):  # two branches may have loops of one name
            types = [_widen(a, b, ours) for a, b in zip(types, settled, strict=True)]
    for _ in range(_MAX_WIDENINGS):
        made: Function = body(types)
        results = [item.type for item in _fields(made)[first : first + len(states)]]
        if len(results) != len(states):
            raise node.error(f"the body returns {len(results)} carried values instead of {len(states)}")
        wider = [_widen(a, b, ours) for a, b in zip(types, results, strict=True)]
        if wider == types:
            node.scope.carried[key] = tuple(types)
            fields = list(_fields(made))
            for index, wanted in enumerate(types, first):
                fields[index] = coerce(fields[index], wanted, node.span)
            started = tuple(coerce(state, wanted, node.span) for state, wanted in zip(states, types, strict=True))
            return function(made.params, tuple_(fields, node.span), span=made.span), started
        types = wider
    raise node.error("the types of the carried values do not settle")


def _widen(param: Type, result: Type, ours: set[str]) -> Type:
    """The type of a carried value that starts as `param` and comes out of the body as `result`. Dimensions that change are
    existential; `ours` holds those that were made so before, which any dimension fits."""
    match param, result:
        case TensorType(), TensorType() if param.dtype is result.dtype and param.rank == result.rank:
            return TensorType([_widen_dim(a, b, ours) for a, b in zip(param.shape, result.shape, strict=True)], param.dtype)
        case (SequenceType(element=TensorType() as a), SequenceType(element=TensorType() as b)):
            return SequenceType(_widen(a, b, ours))
        case (OptionalType(element=a), OptionalType(element=b)) if a == b:
            return param
        case OptionalType(element=a), _ if not isinstance(result, OptionalType) and isinstance(a, (TensorType, SequenceType)):
            return OptionalType(_widen(a, result, ours))
    return common_type(param, result)


def _widen_dim(a: Dim, b: Dim, ours: set[str]) -> Dim:
    if a == b or (isinstance(a, SizeVar) and a.name in ours):
        return a
    fresh = fresh_size("carried")
    ours.add(fresh.name)
    return fresh


# --- Scan -------------------------------------------------------------------------------------------------------------


def _scan(node: Node) -> tuple[Expr | None, ...]:
    return _scan_batched(node) if node.opset < 9 else _scan_axes(node)


def _scan_axes(node: Node) -> tuple[Expr | None, ...]:
    """Scan since opset 9: no batch axis, and attributes for the axes to scan along."""
    values = [node.input(index) for index in range(len(node.inputs))]
    count = _scanned_count(node, len(values))
    states, scanned = values[: len(values) - count], values[len(values) - count :]
    axes = _per_item(node, "scan_input_axes", count)
    scanned = [_axis_first(node, item, axis) for item, axis in zip(scanned, axes, strict=True)]
    outputs = _scan_loop(node, states, scanned, _per_item(node, "scan_input_directions", count))
    stacked = outputs[len(states) :]
    directions = _per_item(node, "scan_output_directions", len(stacked))
    out_axes = _per_item(node, "scan_output_axes", len(stacked))
    turned = [_reversed(item) if backwards else item for item, backwards in zip(stacked, directions, strict=True)]
    return (*outputs[: len(states)], *(_axis_back(node, item, axis) for item, axis in zip(turned, out_axes, strict=True)))


def _scan_batched(node: Node) -> tuple[Expr | None, ...]:
    """Scan of opset 8: every value has a batch axis in front, and each element of the batch is scanned by itself."""
    if node.optional(0) is not None:
        raise node.error("sequence lengths are not supported")
    values = [node.input(index) for index in range(1, len(node.inputs))]
    count = _scanned_count(node, len(values))
    directions = _per_item(node, "directions", count)
    params = []
    for index, item in enumerate(values):
        if not isinstance(item.type, TensorType) or item.type.rank == 0:
            raise node.error(f"input {index + 1} has no batch axis")
        params.append(var(f"{node.span.node}.{index}", TensorType(item.type.shape[1:], item.type.dtype), node.span))
    outputs = _scan_loop(node, params[: len(values) - count], params[len(values) - count :], directions)
    iteration = var(f"{node.span.node}.batch", _ITERATION, node.span)
    body = function((iteration, *params), tuple_((constant(True, span=node.span), *outputs)), span=node.span)
    batches = loop(body, scanned=values, span=node.span)
    return tuple(tuple_item(batches, index, node.span) for index in range(len(outputs)))


def _scanned_count(node: Node, available: int) -> int:
    count = node.attrs.get("num_scan_inputs", 0)
    if not isinstance(count, int) or not 1 <= count <= available:
        raise node.error(f"num_scan_inputs is {count}, but {available} inputs are given")
    return count


def _per_item(node: Node, name: str, count: int) -> list[int]:
    found = node.attrs.get(name) or [0] * count
    if len(found) != count:
        raise node.error(f"attribute {name} has {len(found)} entries instead of {count}")
    return list(found)


def _scan_loop(node: Node, states: Sequence[Expr], scanned: Sequence[Expr], directions: Sequence[int]) -> tuple[Expr, ...]:
    """Carried values and stacked outputs of a scan along the first axes; a direction of 1 is from the end."""
    graph = node.attrs.get("body")
    if graph is None:
        raise node.error("attribute 'body' is missing")
    scanned = [_reversed(item) if backwards else item for item, backwards in zip(scanned, directions, strict=True)]
    slices = [TensorType(item.type.shape[1:], item.type.dtype) for item in scanned if isinstance(item.type, TensorType)]

    def body(types: Sequence[Type]) -> Function:
        iteration = var(f"{node.span.node}.iteration", _ITERATION, node.span)
        made = node.scope.subgraph(graph, (*types, *slices))
        return function((iteration, *made.params), tuple_((constant(True, span=node.span), *_fields(made))), span=node.span)

    made, states = _widened(node, body, tuple(states), first=1)
    result = loop(made, state=states, scanned=scanned, span=node.span)
    return tuple(tuple_item(result, index, node.span) for index in range(len(_fields(made)) - 1))


def _axis_first(node: Node, value: Expr, axis: int) -> Expr:
    """The tensor with one axis moved to the front."""
    if not isinstance(value.type, TensorType):
        raise node.error(f"a value of type {value.type!r} cannot be scanned")
    axis = node.axis(axis, value.type.rank)
    perm = (axis, *(other for other in range(value.type.rank) if other != axis))
    return ops.transpose(value, perm=perm, span=node.span) if axis else value


def _axis_back(node: Node, value: Expr, axis: int) -> Expr:
    """The tensor with its first axis moved to where it is wanted."""
    assert isinstance(value.type, TensorType)
    axis = node.axis(axis, value.type.rank)
    perm = (*range(1, axis + 1), 0, *range(axis + 1, value.type.rank))
    return ops.transpose(value, perm=perm, span=node.span) if axis else value


def _reversed(value: Expr) -> Expr:
    """The tensor with its first axis turned round."""
    assert isinstance(value.type, TensorType)
    first, *rest = value.type.shape
    begin = (unwrap(first - 1), *(0 for _ in rest)) if not isinstance(first, int) else (first - 1, *(0 for _ in rest))
    return ops.strided_slice(value, begin=begin, end=(-1, *rest), strides=(-1, *(1 for _ in rest)), span=value.span)


CONVERTERS: Mapping[str, Converter] = {"Loop": _loop, "Scan": _scan}
