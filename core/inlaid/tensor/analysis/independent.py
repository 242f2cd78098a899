"""Finds loop nests whose iterations access disjoint elements, and are thus independent, by inspecting their indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.types import dtype


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest split into `serial` loops, which run in order outside, and `lanes` inside, whose iterations may run
    simultaneously. `body` is the body of the innermost loop."""

    serial: tuple[ir.For, ...]
    lanes: tuple[ir.For, ...]
    body: ir.Stmt


def independent_nest(stmt: ir.For, sizes: Mapping[arith.SizeVar, int], least: int, most: int) -> Nest | None:
    """Split the perfect loop nest at a statement so that its lanes have `least` to `most` iterations in total; None if impossible.

    A loop can be a lane if each store below it uses its variable as exactly one index, each buffer is stored at only one index
    tuple, and loads of stored buffers use the same tuple. Extents must be constant or depend only on `sizes`.
    """
    loops: list[ir.For] = []
    body: ir.Stmt = stmt
    while isinstance(body, ir.For):
        loops.append(body)
        body = body.body
    places = _places(body)
    if not places:
        return None
    values: dict[arith.Expr, int] = dict(sizes.items())
    lanes: list[ir.For] = []
    for loop in reversed(loops):
        if arith.free_vars(loop.extent) - values.keys() or arith.reads_data(loop.extent):
            return None
        extent = arith.evaluate(loop.extent, values)
        if all(place.count(loop.var) == 1 for place in places) and extent * _size(lanes, values) <= most:
            lanes.append(loop)
    variables = {loop.var for loop in lanes}
    if _size(lanes, values) < least or any(_varies(index, variables) for place in places for index in place):
        return None
    if isinstance(body, ir.Block) and not _same_for_all(body, variables):
        return None
    return Nest(tuple(loop for loop in loops if loop not in lanes), tuple(reversed(lanes)), body)


def _size(lanes: list[ir.For], values: Mapping[arith.Expr, int]) -> int:
    return prod(arith.evaluate(loop.extent, values) for loop in lanes)


def _varies(index: arith.Expr, variables: set[arith.Var]) -> bool:
    return not isinstance(index, arith.Var) and bool(arith.free_vars(index) & variables)


def _same_for_all(block: ir.Block, variables: set[arith.Var]) -> bool:
    """Test whether the predicate of a block, and the condition of its init, have the same value in all lanes."""
    bound: dict[arith.Expr, arith.Expr] = {item.var: value for item, value in zip(block.iters, block.bindings, strict=True)}
    decisive = [binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.REDUCTION]
    decisive.append(arith.substitute(block.predicate, bound))
    return not any(arith.free_vars(expr) & variables for expr in decisive)


def _places(body: ir.Stmt) -> list[tuple[arith.Expr, ...]] | None:
    """Return one index tuple per stored buffer, in terms of the loops. None if stored buffers are accessed in any other way."""
    bound: dict[arith.Expr, arith.Expr] = {}
    if isinstance(body, ir.Block):
        bound = {item.var: binding for item, binding in zip(body.iters, body.bindings, strict=True)}
    places: dict[ir.Buffer, tuple[arith.Expr, ...]] = {}
    private: set[ir.Buffer] = set()
    stores: list[ir.Store] = []
    for stmt in ir.walk_stmts(body):
        match stmt:
            case ir.Store():
                stores.append(stmt)
            case ir.Alloc(buffer=buffer) if not buffer.shape:
                private.add(buffer)
            case ir.Seq():
                pass
            case ir.Block() if stmt is body:
                pass
            case _:
                return None
    for store in stores:
        place = tuple(arith.substitute(index, bound) for index in store.indices)
        if store.buffer not in private and places.setdefault(store.buffer, place) != place:
            return None
    roots = [store.value for store in stores]
    roots += [ir.Index(dtype("int64"), index) for store in stores for index in store.indices]
    for node in ir.walk_exprs(*roots):
        if isinstance(node, ir.Load) and node.buffer in places:
            place = tuple(arith.substitute(index, bound) for index in node.indices)
            if place != places[node.buffer]:
                return None
    return list(places.values())
