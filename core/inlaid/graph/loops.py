"""The type rule of `Loop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inlaid import arith
from inlaid.arith import Dim
from inlaid.errors import TypeInferenceError
from inlaid.graph import ir
from inlaid.graph.unify import fresh_size, freshen, match_dims, unify
from inlaid.types import FunctionType, TensorType, TupleType, Type, substitute_type

if TYPE_CHECKING:
    from inlaid.graph.ir import Expr, Span

ITERATION = TensorType((), "int64")
KEEP_GOING = TensorType((), "bool")


def infer_loop(
    body: Expr,
    state: tuple[Expr, ...],
    scanned: tuple[Expr, ...],
    trip_count: Expr | None,
    condition: Expr | None,
    stacked_extent: Dim | None,
    span: Span | None,
) -> TupleType:
    """Infer the type of a loop: (final state..., stacked outputs...). Raises `TypeInferenceError`."""
    where = str(span or "")
    if not isinstance(body.type, FunctionType) or not isinstance(body.type.result, TupleType):
        raise TypeInferenceError(f"a loop body must be a function that returns a tuple, got {body.type!r}", node=where)
    params, results = body.type.params, body.type.result.fields
    if len(params) != 1 + len(state) + len(scanned) or len(results) < 1 + len(state):
        raise TypeInferenceError(
            f"the loop body must fit {len(state)} state values and {len(scanned)} scanned inputs, got {body.type!r}",
            node=where,
        )
    unify(params[0], ITERATION, span)
    unify(KEEP_GOING, results[0], span)
    for scalar, wanted in ((trip_count, ITERATION), (condition, KEEP_GOING)):
        if scalar is not None:
            unify(wanted, scalar.type, span)
    for param, initial, result in zip(params[1:], state, results[1:], strict=False):
        unify(param, initial.type, span)
        unify(param, result, span)
    for param, value in zip(params[1 + len(state) :], scanned, strict=True):
        if not isinstance(value.type, TensorType) or value.type.rank == 0:
            raise TypeInferenceError(f"a scanned input must be a tensor of rank >= 1, got {value.type!r}", node=where)
        unify(param, TensorType(value.type.shape[1:], value.type.dtype), span)
    extent = stacked_extent if stacked_extent is not None else _extent(body, scanned, trip_count, condition)
    outputs: list[Type] = []
    for result in results[1 + len(state) :]:
        if not isinstance(result, TensorType):
            raise TypeInferenceError(f"a stacked output must be a tensor, got {result!r}", node=where)
        outputs.append(TensorType((extent, *result.shape), result.dtype))
    states = params[1 : 1 + len(state)]
    known: dict[arith.Expr, arith.Expr] = {}
    for param, initial in zip(states, state, strict=True):
        match_dims(param, initial.type, known)
    # A size that varies between iterations, or that the body computes, gets a fresh existential dimension in the loop's type.
    changing = {size for size, initial in known.items() if ir.existential(size) and size != initial}
    renamed = {size: initial for size, initial in known.items() if size not in changing}
    freshen(changing | ir.own_sizes(body), renamed)
    return TupleType(tuple(substitute_type(item, renamed) for item in (*states, *outputs)))


def _extent(body: Expr, scanned: tuple[Expr, ...], trip_count: Expr | None, condition: Expr | None) -> Dim:
    """Return the number of iterations if it is known before the run, else an existential dimension with the best known bound."""
    limits: list[Dim] = []
    for value in scanned[-1:]:
        assert isinstance(value.type, TensorType)
        limits.append(value.type.shape[0])
    if isinstance(trip_count, ir.Constant):
        limits.append(max(int(trip_count.data), 0))
    bound = None if not limits else arith.unwrap(arith.minimum(limits[0], limits[-1]))
    counted = trip_count is None or isinstance(trip_count, ir.Constant)
    if bound is not None and counted and (condition is None or _is_true(condition)) and _never_stops(body):
        return bound
    return fresh_size("trips", bound)


def _never_stops(body: Expr) -> bool:
    """Test whether the body's keep-going result is the constant true."""
    return isinstance(body, ir.Function) and isinstance(body.body, ir.Tuple) and _is_true(body.body.fields[0])


def _is_true(expr: Expr) -> bool:
    return isinstance(expr, ir.Constant) and bool(expr.data)
