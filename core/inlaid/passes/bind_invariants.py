"""Loop-invariant code motion: compute loop-invariant expressions once, before the loop.

An expression is evaluated in the innermost scope that dominates all its uses. An expression outside of a loop that only the loop's
body uses, such as the encoder of a model whose decoder is a loop, is therefore evaluated in every iteration. A `Let` around the
loop keeps the expression outside.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from inlaid.graph.attrs import shown_sizes, sizes_in
from inlaid.graph.ir import (
    Call,
    Expr,
    Function,
    Let,
    Loop,
    Tuple,
    TupleItem,
    Var,
    call,
    children,
    constant,
    existential,
    if_,
    introduced_sizes,
    let,
    post_order,
    tuple_,
    tuple_item,
    var,
)
from inlaid.graph.ir import function as make_function
from inlaid.graph.ir import loop as make_loop
from inlaid.graph.loops import iterations
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import call_conditions, conditions_in, scope_constraints
from inlaid.graph.scopes import Scope, Scopes, analyse, common_scope, is_leaf
from inlaid.graph.transform import transform_function
from inlaid.ops.conversion import cast
from inlaid.ops.elementwise import less, logical_and
from inlaid.ops.plan import fail, fail_attrs
from inlaid.ops.shape import reshape, sizes
from inlaid_runtime.arith import Constraint, compare, free_vars, prove, unwrap
from inlaid_runtime.arith import Expr as SizeExpr
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import FunctionType, TensorType, TupleType, type_vars


def bind_invariants(function: Function) -> Function:
    """Bind loop-invariant expressions by `Let`s around their loops. Returns the same object if nothing is invariant.

    Expressions inside a branch of the body stay there, since the branch may not be taken. A bound expression is computed even if
    the loop runs no iteration, unless it requires conditions on sizes that need not hold then: such a loop becomes a branch of an
    `If`, whose other branch is a loop without iterations.
    """
    while True:
        loops = _loops(analyse(function), function)
        if not loops:
            return function
        # An expression hoisted out of an inner loop may be hoisted out of the enclosing loop next.
        function = _bound(function, loops)


@dataclass(frozen=True)
class _LoopInvariants:
    """A loop, and the maximal invariant expressions of its body, in order. If `guarded`, the expressions must be computed
    only if the loop runs an iteration: they may fail, or require sizes to satisfy `conditions`, which need not hold otherwise."""

    loop: Loop
    invariants: tuple[Expr, ...]
    guarded: bool = False
    conditions: tuple[Constraint, ...] = ()


def _loops(scopes: Scopes, function: Function) -> list[_LoopInvariants]:
    loops = []
    constraints = scope_constraints(scopes)
    for expr in post_order(function):
        if isinstance(expr, Loop) and isinstance(expr.body, Function) and scopes.uses[id(expr.body)] == 1:
            item = _find_invariants(expr, expr.body, scopes, constraints)
            if item.invariants or item.conditions:
                loops.append(item)
    return loops


def _find_invariants(
    loop: Loop, body: Function, scopes: Scopes, constraints: Mapping[Scope, tuple[Constraint, ...]]
) -> _LoopInvariants:
    """Find the invariants of a loop, and decide whether they must be guarded. `constraints` are the constraints of scopes.

    The constraints of the body are invariant, too. If data decides whether the loop runs, it is guarded even without other
    invariants: the body then requires nothing of sizes, and can be in one region with the loop.
    """
    invariants = tuple(_invariants(body, scopes))
    count, home = iterations(body, loop.scanned, loop.trip_count, loop.condition), scopes.body(body)
    if count is not None and prove(compare(">=", count, 1)):
        return _LoopInvariants(loop, invariants)
    assumptions = conditions_in(scopes.expr_scopes[id(loop)], constraints)
    hoisted = [
        expr
        for expr in post_order(*invariants)
        if id(expr) in scopes.expr_scopes and not _outside(scopes.expr_scopes[id(expr)], home)
    ]
    calls = [
        expr
        for expr in hoisted
        if scopes.expr_scopes[id(expr)] is home and isinstance(expr, Call) and isinstance(expr.callee, Operator)
    ]
    conditions = {item.condition: item for item in call_conditions(calls) if item.condition not in assumptions}
    if count is None:
        body_sizes = shown_sizes(*(param.type for param in body.params)) - shown_sizes(
            *(item.type for item in (*loop.state, *loop.scanned))
        )
        body_sizes = body_sizes.union(*map(introduced_sizes, post_order(body.body)))
        conditions |= {item.condition: item for item in constraints.get(home, ()) if body_sizes.isdisjoint(item.sizes)}
    may_fail = any(map(_may_fail, hoisted))
    return _LoopInvariants(loop, invariants, bool(conditions) or may_fail, tuple(conditions.values()))


def _outside(scope: Scope, home: Scope) -> bool:
    """Test whether a scope is neither `home` nor inside of it."""
    return common_scope(scope, home) is not home


def _may_fail(expr: Expr) -> bool:
    """Test whether evaluating an expression may end the run, or not end at all."""
    match expr:
        case Call(callee=Operator() as operator):
            return operator.may_fail
        case Call():
            return True
        case Loop():
            return iterations(expr.body, expr.scanned, expr.trip_count, expr.condition) is None
    return False


def _invariants(body: Function, scopes: Scopes) -> list[Expr]:
    """Return the expressions of a loop body that do not depend on its parameters and are read by an expression that does."""
    home: Scope = scopes.body(body)
    varying_ids = {id(param) for param in body.params}
    order = list(post_order(body.body))
    for expr in order:
        parts = (scopes.resolve(expr),) if isinstance(expr, Var) else children(expr)
        # Building a tuple is free, so only its fields may be worth hoisting.
        is_free = isinstance(expr, Tuple) and scopes.expr_scopes[id(expr)] is home
        if is_free or any(id(part) in varying_ids for part in parts):
            varying_ids.add(id(expr))
    readers = [expr for expr in order if id(expr) in varying_ids]
    read_exprs = [child for expr in readers for child in children(expr)] + [body.body]
    invariant_reads = {
        id(child): child for child in read_exprs if id(child) not in varying_ids and scopes.expr_scopes.get(id(child)) is home
    }
    return [expr for expr in order if id(expr) in invariant_reads and _computes(expr)]


def _computes(expr: Expr) -> bool:
    """Test whether evaluating an expression has a cost: it is neither a leaf nor a function, and does not just fail."""
    while isinstance(expr, TupleItem):
        expr = expr.tuple
    if isinstance(expr, Call) and expr.callee is fail:
        return False
    return not (is_leaf(expr) or isinstance(expr, (Function, Let)) or isinstance(expr.type, FunctionType))


def _bound(function: Function, loops: list[_LoopInvariants]) -> Function:
    """Insert the `Let`s around the loops."""
    items_by_loop = {id(item.loop): item for item in loops}
    names: dict[int, Var] = {id(expr): var("held", expr.type, span=expr.span) for item in loops for expr in item.invariants}
    values: dict[int, Expr] = {}
    witnesses: dict[SizeExpr, Expr] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        bound_sizes = introduced_sizes(new)
        if id(old) in items_by_loop:
            assert isinstance(new, Loop)
            item, loop = items_by_loop[id(old)], new
            for inner in reversed(item.invariants):
                new = let(names[id(inner)], values[id(inner)], new, old.span)
            if item.guarded:
                new = if_(_runs(loop, witnesses), new, _without_iterations(loop), old.span, (item.conditions, ()))
        if id(old) in names:
            values[id(old)], new = new, names[id(old)]
        # Also after wrapping: the `If` of a guarded loop has sizes of its own. A variable shows the sizes that its binder binds.
        bound_sizes |= frozenset(filter(existential, type_vars(new.type))) if isinstance(new, Var) else introduced_sizes(new)
        if bound_sizes:
            for part in _parts(new):
                for size in shown_sizes(part.type) & bound_sizes:
                    witnesses.setdefault(size, part)
        return new

    return transform_function(function, visit)


def _parts(expr: Expr) -> list[Expr]:
    """Return the items of a tuple, or the expression itself."""
    return [tuple_item(expr, index) for index in range(len(expr.type.fields))] if isinstance(expr.type, TupleType) else [expr]


def _runs(loop: Loop, witnesses: Mapping[SizeExpr, Expr]) -> Expr:
    """Build the condition that a loop runs an iteration. `witnesses` maps data-dependent sizes to tensors that have them as
    dimensions: the condition is evaluated after these tensors are computed."""
    requirements = [] if loop.condition is None else [loop.condition]
    if loop.trip_count is not None:
        requirements.append(less(constant(np.int64(0)), loop.trip_count))
    if loop.scanned:
        is_nonempty = unwrap(compare("<", 0, loop.scanned[0].shape[0]))
        tensors = [witnesses[size] for size in sorted(sizes_in(is_nonempty), key=repr) if size in witnesses]
        requirements.append(cast(reshape(sizes(*tensors, dims=(is_nonempty,)), shape=()), dtype="bool"))
    return functools.reduce(logical_and, requirements or [constant(True)])


def _without_iterations(loop: Loop) -> Loop:
    """Build a loop with the results of `loop` in the case that it runs no iteration."""
    assert isinstance(loop.body, Function) and isinstance(loop.body.body.type, TupleType) and isinstance(loop.type, TupleType)
    count = len(loop.state)
    params = [var(param.name, param.type, span=param.span) for param in loop.body.params]
    rows = [call(fail, (), fail_attrs("the loop runs no iteration", row)) for row in loop.body.body.type.fields[1 + count :]]
    body = make_function(params, tuple_([constant(True), *params[1 : 1 + count], *rows]))
    extents = [output.shape[0] for output in loop.type.fields[count:] if isinstance(output, TensorType)]
    return make_loop(
        body,
        state=loop.state,
        scanned=loop.scanned,
        trip_count=loop.trip_count,
        condition=loop.condition,
        stacked_extent=next((dim for dim in extents if not any(map(existential, free_vars(dim)))), None),
        span=loop.span,
    )
