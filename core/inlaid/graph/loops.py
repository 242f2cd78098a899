"""The type rule of `Loop`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inlaid.graph import ir
from inlaid.graph.conditions import require
from inlaid.graph.unify import bind_dims, fits, fresh_size, freshen, match_dims, require_bounds, unify, with_shown_sizes
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, Expr, SizeVar
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, substitute_type

if TYPE_CHECKING:
    from inlaid.graph.ir import Loop, Span

ITERATION = TensorType((), "int64")
KEEP_GOING = TensorType((), "bool")


def infer_loop(
    body: ir.Expr,
    state: tuple[ir.Expr, ...],
    scanned: tuple[ir.Expr, ...],
    trip_count: ir.Expr | None,
    condition: ir.Expr | None,
    stacked_extent: Dim | None,
    span: Span | None,
    captured: frozenset[Expr] = frozenset(),
) -> TupleType:
    """Infer the type of a loop: (final state..., stacked outputs...), and state the conditions that must hold before it runs.
    `captured` are the dimensions of values that the body captures. Raises `TypeInferenceError`."""
    node = str(span or "")
    if not isinstance(body.type, FunctionType) or not isinstance(body.type.result, TupleType):
        raise TypeInferenceError(f"a loop body must be a function that returns a tuple, got {body.type!r}", node=node)
    params, results = body.type.params, body.type.result.fields
    if len(params) != 1 + len(state) + len(scanned) or len(results) < 1 + len(state):
        raise TypeInferenceError(
            f"the loop body must fit {len(state)} state values and {len(scanned)} scanned inputs, got {body.type!r}",
            node=node,
        )
    unify(params[0], ITERATION, span)
    unify(KEEP_GOING, results[0], span)
    for scalar, expected in ((trip_count, ITERATION), (condition, KEEP_GOING)):
        if scalar is not None:
            unify(expected, scalar.type, span)
    bindings = _bind_params(body.type, state, scanned, captured, span)
    for param, result in zip(params[1 : 1 + len(state)], results[1:], strict=False):
        if not fits(param, result):
            raise TypeInferenceError(f"a state of the loop must have type {param!r} after an iteration, got {result!r}", node=node)
    count = iterations(body, scanned, trip_count, condition)
    if stacked_extent is None:
        stacked_extent = fresh_size("trips", _iteration_bound(scanned, trip_count)) if count is None else count
    elif count is not None and stacked_extent != count and not (isinstance(stacked_extent, SizeVar) and stacked_extent.existential):
        with _located(span):
            require(arith.equals(count, stacked_extent, "the number of iterations of the loop"))
    # A size that varies between iterations, or that the body computes, gets a fresh existential dimension in the loop's type.
    changing = _changing_sizes(body.type, state)
    renamed = {size: value for size, value in bindings.items() if size not in changing}
    new_sizes = changing | ir.defined_sizes(body)
    freshen(new_sizes, renamed)
    outputs: list[Type] = [substitute_type(param, renamed) for param in params[1 : 1 + len(state)]]
    for result in results[1 + len(state) :]:
        row = substitute_type(result, renamed)
        if not isinstance(row, TensorType):
            raise TypeInferenceError(f"a stacked output must be a tensor, got {row!r}", node=node)
        outputs.append(TensorType((stacked_extent, *row.shape), row.dtype))
    type_ = with_shown_sizes(TupleType(tuple(outputs)), [renamed[size] for size in new_sizes])
    assert isinstance(type_, TupleType)
    return type_


def require_carried(loop: Loop, captured: frozenset[Expr] = frozenset()) -> None:
    """Require each state that the body of a loop returns to have the type of the body's parameter. Dimensions that change between
    iterations take the sizes of the returned states, which must be within their bounds."""
    assert isinstance(loop.body.type, FunctionType) and isinstance(loop.body.type.result, TupleType)
    params, results = loop.body.type.params, loop.body.type.result.fields
    changing = _changing_sizes(loop.body.type, loop.state) - captured
    states = range(1, 1 + len(loop.state))
    bindings: dict[Expr, Expr] = {}
    for index in states:
        match_dims(params[index], results[index], bindings)
    sizes = {size: value for size, value in bindings.items() if size in changing}
    for index in states:
        unify(substitute_type(params[index], sizes), results[index], loop.span, f"state {index - 1} after an iteration of the loop")
    require_bounds(sizes, "the loop")


def iterations(body: ir.Expr, scanned: Sequence[ir.Expr], trip_count: ir.Expr | None, condition: ir.Expr | None) -> Dim | None:
    """Return the number of iterations of a loop if the sizes of its inputs determine it, else None."""
    has_constant_count = trip_count is None or isinstance(trip_count, ir.Constant)
    runs_to_end = has_constant_count and (condition is None or _is_true(condition)) and never_stops(body)
    return _iteration_bound(scanned, trip_count) if runs_to_end else None


def _bind_params(
    body: FunctionType,
    state: Sequence[ir.Expr],
    scanned: Sequence[ir.Expr],
    captured: frozenset[Expr],
    span: Span | None,
) -> dict[Expr, Expr]:
    """Bind the dimensions of the parameters of a loop's body to those of the initial states and of slices of the scanned inputs.
    Requires scanned inputs to have equal lengths. Raises `TypeInferenceError`."""
    actual = [item.type for item in state]
    lengths: list[Dim] = []
    for value in scanned:
        if not isinstance(value.type, TensorType) or value.type.rank == 0:
            raise TypeInferenceError(
                f"a scanned input must be a tensor of rank >= 1, got {value.type!r}", operator="loop", node=str(span or "")
            )
        actual.append(TensorType(value.type.shape[1:], value.type.dtype))
        lengths.append(value.type.shape[0])
    labels = [f"state {number} of the loop" for number in range(len(state))]
    labels += [f"a slice of scanned input {number} of the loop" for number in range(len(scanned))]
    for number, length in enumerate(lengths[1:], 1):
        if length != lengths[0]:
            with _located(span):
                require(arith.equals(length, lengths[0], f"the length of scanned input {number} of the loop"))
    return bind_dims(body.params[1:], actual, labels, "the loop", span, captured)


@contextmanager
def _located(span: Span | None) -> Iterator[None]:
    """Raise `TypeInferenceError` for a precondition of a loop that the block states and that is false for all sizes."""
    try:
        yield
    except ValueError as error:
        raise TypeInferenceError(str(error), operator="loop", node=str(span or "")) from error


def _changing_sizes(body: FunctionType, state: Sequence[ir.Expr]) -> frozenset[Expr]:
    """Return the existential dimensions of a loop's states that differ between iterations: those in whose place the initial states
    have another dimension."""
    initial: dict[Expr, Expr] = {}
    for param, value in zip(body.params[1:], state, strict=False):
        match_dims(param, value.type, initial)
    return frozenset(size for size, value in initial.items() if ir.existential(size) and size != value)


def _iteration_bound(scanned: Sequence[ir.Expr], trip_count: ir.Expr | None) -> Dim | None:
    """Return an upper bound of the number of iterations of a loop, None if none is known."""
    limits: list[Dim] = []
    for value in scanned[-1:]:
        assert isinstance(value.type, TensorType)
        limits.append(value.type.shape[0])
    if isinstance(trip_count, ir.Constant):
        limits.append(max(int(trip_count.data), 0))
    return None if not limits else arith.unwrap(arith.minimum(limits[0], limits[-1]))


def never_stops(body: ir.Expr) -> bool:
    """Test whether the body's keep-going result is the constant true."""
    return isinstance(body, ir.Function) and isinstance(body.body, ir.Tuple) and _is_true(body.body.fields[0])


def _is_true(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Constant) and bool(expr.data)
