"""Loops whose body is one region: the region becomes the whole loop, so that nothing comes between its rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from inlaid.graph import ir
from inlaid.graph.scopes import Scope, Scopes, analyse
from inlaid.graph.transform import substitute
from inlaid.partitioning.outline import Partitioned, call_by_name
from inlaid.types import TensorType, TupleType, Type, type_vars


def absorb_loops(partitioned: Partitioned, able: Collection[int]) -> Partitioned:
    """The partitioned module with loops as regions, where the body is nothing but a call of a region of a target in `able`. The
    region keeps its name.

    Loops that work out sizes stay as they are: those whose states change shape, and those that stack outputs whose number only the
    run knows.
    """
    functions = dict(partitioned.module.functions)
    mine = {name for name, target in partitioned.regions.items() if target in able}
    for name, function in partitioned.module.functions.items():
        if name not in partitioned.regions and any(isinstance(expr, ir.Loop) for expr in ir.post_order(function)):
            functions[name] = _absorbed(function, mine, functions)
    return replace(partitioned, module=ir.Module(functions))


def _absorbed(function: ir.Function, mine: Collection[str], functions: dict[str, ir.Function]) -> ir.Function:
    """The function with its loops as calls of regions, those among `mine`, which change in `functions`."""
    scopes = analyse(function)
    done: dict[int, ir.Expr] = {}
    for expr in ir.post_order(function):
        new = ir.rebuild(expr, tuple(done[id(child)] for child in ir.children(expr)))
        if isinstance(expr, ir.Loop):
            new = _as_region(expr, scopes, mine, functions, done) or new
        done[id(expr)] = new
    found = done[id(function)]
    assert isinstance(found, ir.Function)
    return found


def _as_region(
    loop: ir.Loop, scopes: Scopes, mine: Collection[str], functions: dict[str, ir.Function], done: Mapping[int, ir.Expr]
) -> ir.Expr | None:
    """A loop as the call of a region; None where there can be no such region."""
    if not isinstance(loop.body, ir.Function) or scopes.uses[id(loop.body)] != 1:
        return None
    scope = scopes.body(loop.body)
    name = _only_region(scope)
    if name is None or name not in mine:
        return None
    captured = _captured(scope, loop.body)
    controls = [item for item in (loop.trip_count, loop.condition) if item is not None]
    given = [*controls, *loop.state, *loop.scanned, *captured]
    if not _sizes_known(loop, loop.body, given, functions[name]):
        return None
    params = [ir.var(f"p{number}", item.type, item.span) for number, item in enumerate(given)]
    inside: dict[int, ir.Expr] = dict(zip(map(id, captured), params[len(given) - len(captured) :], strict=True))
    body = ir.function(loop.body.params, _inlined(scope, functions[name], inside))
    whole = ir.rebuild(loop, (body, *params[: len(given) - len(captured)]))
    assert isinstance(whole.type, TupleType)
    results = ir.tuple_([ir.tuple_item(whole, index) for index in range(len(whole.type.fields))])
    functions[name] = ir.function(params, results, functions[name].attrs)
    return call_by_name(name, functions[name], [done[id(item)] for item in given])


def _only_region(scope: Scope) -> str | None:
    """The name of the function that a scope calls, and does nothing else."""
    work = [expr for expr in scope.order if not isinstance(expr, (ir.Tuple, ir.TupleItem))]
    match work:
        case [ir.Call(callee=ir.GlobalVar(name=name))]:
            return name
    return None


def _captured(scope: Scope, body: ir.Function) -> list[ir.Expr]:
    """What a loop's body reads from around it."""
    own = {id(expr) for expr in (*body.params, *scope.order)}
    read = [child for expr in scope.order for child in ir.children(expr)] + [scope.result]
    found = {id(expr): expr for expr in read if id(expr) not in own and not isinstance(expr, (ir.Constant, ir.GlobalVar))}
    return list(found.values())


def _sizes_known(loop: ir.Loop, body: ir.Function, given: Sequence[ir.Expr], region: ir.Function) -> bool:
    """Whether all is tensors whose sizes are those of what the loop is given."""
    assert isinstance(loop.type, TupleType) and isinstance(body.body.type, TupleType)
    results = loop.type.fields
    if not results or not all(_is_tensor(type_) for type_ in (*(item.type for item in given), *results)):
        return False
    count = len(loop.state)
    states = tuple(item.type for item in loop.state)
    if not states == results[:count] == body.body.type.fields[1 : 1 + count]:
        return False
    if states != tuple(param.type for param in body.params[1 : 1 + count]):
        return False
    known = frozenset().union(*(type_vars(item.type) for item in given))
    if not frozenset().union(*map(type_vars, results)) <= known or any(map(ir.introduced_sizes, ir.post_order(region.body))):
        return False
    extents = {item.type.shape[0] for item in loop.scanned if isinstance(item.type, TensorType)}
    return len(extents) <= 1


def _is_tensor(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.kind != "string"


def _inlined(scope: Scope, region: ir.Function, done: dict[int, ir.Expr]) -> ir.Expr:
    """The result of a scope with its one call replaced by what the region does. `done` says what is known by other names."""

    for expr in scope.order:
        if not isinstance(expr, ir.Call):
            done[id(expr)] = ir.rebuild(expr, tuple(done.get(id(child), child) for child in ir.children(expr)))
            continue
        given = [done.get(id(arg), arg) for arg in expr.args]
        done[id(expr)] = substitute(region.body, dict(zip(region.params, given, strict=True)))
    return done.get(id(scope.result), scope.result)
