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
    """A loop nest split into outer loops `serial`, which run in order, and inner loops `lanes`, whose iterations may run
    simultaneously. `body` is the body of the innermost loop."""

    serial: tuple[ir.For, ...]
    lanes: tuple[ir.For, ...]
    body: ir.Stmt


def independent_nest(stmt: ir.For, sizes: Mapping[arith.SizeVar, int], min_iterations: int, max_iterations: int) -> Nest | None:
    """Split the perfect loop nest at a statement so that its lanes have `min_iterations` to `max_iterations` iterations in total;
    None if impossible.

    A loop can be a lane if each store below it uses its variable as exactly one index, each buffer is stored at only one index
    tuple, and loads of stored buffers use the same tuple. Extents must be constant or depend only on `sizes`.
    """
    loops: list[ir.For] = []
    body: ir.Stmt = stmt
    while isinstance(body, ir.For):
        loops.append(body)
        body = body.body
    points = _stored_points(body)
    if not points:
        return None
    values: dict[arith.Expr, int] = dict(sizes.items())
    lanes: list[ir.For] = []
    for loop in reversed(loops):
        if arith.free_vars(loop.extent) - values.keys() or arith.reads_data(loop.extent):
            return None
        extent = arith.evaluate(loop.extent, values)
        if all(point.count(loop.var) == 1 for point in points) and extent * _iterations(lanes, values) <= max_iterations:
            lanes.append(loop)
    variables = {loop.var for loop in lanes}
    if _iterations(lanes, values) < min_iterations or any(_computes_with(index, variables) for point in points for index in point):
        return None
    if isinstance(body, ir.Block) and not _is_uniform(body, variables):
        return None
    return Nest(tuple(loop for loop in loops if loop not in lanes), tuple(reversed(lanes)), body)


def _iterations(lanes: list[ir.For], values: Mapping[arith.Expr, int]) -> int:
    return prod(arith.evaluate(loop.extent, values) for loop in lanes)


def _computes_with(index: arith.Expr, variables: set[arith.Var]) -> bool:
    """Test whether an index depends on one of the variables without being just that variable."""
    return not isinstance(index, arith.Var) and bool(arith.free_vars(index) & variables)


def _is_uniform(block: ir.Block, variables: set[arith.Var]) -> bool:
    """Test whether the predicate of a block, and the condition of its init, have the same value in all lanes."""
    bindings: dict[arith.Expr, arith.Expr] = {item.var: value for item, value in zip(block.iters, block.bindings, strict=True)}
    deciding_exprs = [
        binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.REDUCTION
    ]
    deciding_exprs.append(arith.substitute(block.predicate, bindings))
    return not any(arith.free_vars(expr) & variables for expr in deciding_exprs)


def _stored_points(body: ir.Stmt) -> list[tuple[arith.Expr, ...]] | None:
    """Return one index tuple per stored buffer, in terms of the loops. None if stored buffers are accessed in any other way."""
    bindings: dict[arith.Expr, arith.Expr] = {}
    if isinstance(body, ir.Block):
        bindings = {item.var: binding for item, binding in zip(body.iters, body.bindings, strict=True)}
    points: dict[ir.Buffer, tuple[arith.Expr, ...]] = {}
    local_buffers: set[ir.Buffer] = set()
    stores: list[ir.Store] = []
    for stmt in ir.walk_stmts(body):
        match stmt:
            case ir.Store():
                stores.append(stmt)
            case ir.Alloc(buffer=buffer) if not buffer.shape:
                local_buffers.add(buffer)
            case ir.Seq():
                pass
            case ir.Block() if stmt is body:
                pass
            case _:
                return None
    for store in stores:
        point = tuple(arith.substitute(index, bindings) for index in store.indices)
        if store.buffer not in local_buffers and points.setdefault(store.buffer, point) != point:
            return None
    roots = [store.value for store in stores]
    roots += [ir.Index(dtype("int64"), index) for store in stores for index in store.indices]
    for node in ir.walk_exprs(*roots):
        if isinstance(node, ir.Load) and node.buffer in points:
            point = tuple(arith.substitute(index, bindings) for index in node.indices)
            if point != points[node.buffer]:
                return None
    return list(points.values())
