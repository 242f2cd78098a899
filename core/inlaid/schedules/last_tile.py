"""Remainders of tiled loops: shift the last tile back to overlap its predecessor, or accumulate in whole vectors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from inlaid.schedules.shape import read_size
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.lower_blocks import conjuncts, joined, truth
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def shift_last_tile(program: ir.LoopProgram, tiles: Var, size: int, described: int | str) -> ir.LoopProgram:
    """Replace the partial last tile of a tiled loop by a full tile that is shifted back. `described` is the axis extent as trace
    argument.

        for t in (n + 7) // 8: for p in 8: block(v = 8*t + p) where 8*t + p < n: out[v] = acc[v]
    becomes
        for t in n // 8: for p in 8: block(v = 8*t + p): out[v] = acc[v]
        if n % 8: for p in 8: block(v = 8*(n // 8) + p): out[max(n - 8 + p, 0)] = acc[v]

    The last tile recomputes elements of the previous tile, or the first element several times if it is the only tile. So the blocks
    must compute elements independently, and the output must not alias an input. Register buffers keep their indices. A program with
    other conditions on the loop is returned unchanged. Iteration variables of blocks in the loop are bound to 8*t + p or do not
    depend on t.
    """

    extent = read_size(program, described)

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.For) or stmt.var is not tiles:
            return None
        predicates = [inner.predicate for inner in ir.walk_stmts(stmt.body) if isinstance(inner, ir.Block)]
        guards = [part for predicate in predicates for part in conjuncts(predicate) if tiles in arith.free_vars(part)]
        if not guards or not all(_is_guard(part, tiles, size, extent) for part in guards):
            return None
        full_tiles = arith.simplify(extent // size)
        body = Rewriter(stmt=lambda inner: _unguarded(inner, tiles, size, extent)).stmt(stmt.body)
        tail = Rewriter(stmt=lambda inner: _shifted(inner, tiles, size, extent)).stmt(body)
        last = Rewriter({tiles: full_tiles}).stmt(tail)
        return joined(
            replace(stmt, extent=full_tiles, body=body), ir.If(truth(arith.compare("<", full_tiles * size, extent)), last)
        )

    return Rewriter(stmt=change).program(program)


def _is_guard(condition: arith.Expr, tiles: Var, size: int, extent: arith.Expr) -> bool:
    """Test whether a condition is a tile's bounds check `size * tiles + offset < extent`, with constants on either side."""
    match condition:
        case arith.Compare(op="<", operands=(left, right)):
            linear = arith.affine(left - right + extent, tiles)
            if linear is None or linear[0] != arith.Const(size):
                return False
            variables = arith.free_vars(linear[1])
            start = arith.substitute(linear[1], dict.fromkeys(variables, arith.ZERO))
            return not any(isinstance(item, arith.SizeVar) for item in variables) and arith.simplify(start) == arith.ZERO
    return False


def _unguarded(stmt: ir.Stmt, tiles: Var, size: int, extent: arith.Expr) -> ir.Stmt | None:
    """Remove the tile's bounds check from a block's predicate."""
    if not isinstance(stmt, ir.Block):
        return None
    predicate: arith.Expr = arith.ONE
    for part in conjuncts(stmt.predicate):
        if not _is_guard(part, tiles, size, extent):
            predicate = arith.logical_and(predicate, part)
    return replace(stmt, predicate=predicate)


def _shifted(stmt: ir.Stmt, tiles: Var, size: int, extent: arith.Expr) -> ir.Stmt | None:
    """Shift the accesses of a block, except to registers, to the last full tile."""
    if not isinstance(stmt, ir.Block):
        return None
    shifted_vars: dict[arith.Expr, arith.Expr] = {}
    register_vars: dict[arith.Expr, arith.Expr] = {}
    for item, binding in zip(stmt.iters, stmt.bindings, strict=True):
        if tiles in arith.free_vars(binding):
            register_var = register_vars[item.var] = Var(item.var.name)
            shifted_vars[register_var] = item.var
            shifted_vars[item.var] = arith.maximum(item.var + (extent - (extent // size + 1) * size), 0)
    if not shifted_vars:
        return None

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer.scope != "register":
            return None
        return ir.load(node.buffer, tuple(arith.substitute(index, register_vars) for index in node.indices))

    def store(inner: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(inner, ir.Store) or inner.buffer.scope != "register":
            return None
        return replace(inner, indices=tuple(arith.substitute(index, register_vars) for index in inner.indices))

    body = Rewriter(shifted_vars).stmt(Rewriter(expr=load, stmt=store).stmt(stmt.body))
    return with_footprint(replace(stmt, body=body))


def sum_whole_vectors(program: ir.LoopProgram, block: str, lane: Var, padded: Collection[str] = ()) -> ir.LoopProgram:
    """Accumulate in all lanes of a partial vector of columns, with masked loads instead of a masked sum.

        for j in 16, vectorized: block b(v = 16 * i + j) where 16 * i + j < n: acc[v] += a[k] * x[k, v]
    becomes
        for j in 16, vectorized: block b(v = 16 * i + j) where 16 * i < n: acc[v] += a[k] * select(v < n, x[k, v], 0)

    Without hardware masks, a masked sum needs a select per addition. Lanes beyond the end are never stored. `lane` is the
    vectorized loop; loads of the buffers `padded`, which hold whole vectors, are not masked.
    """

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.Block) or stmt.name != block or lane not in arith.free_vars(stmt.predicate):
            return None
        column = next(item for item, binding in zip(stmt.iters, stmt.bindings, strict=True) if lane in arith.free_vars(binding))

        def load(node: ir.Expr) -> ir.Expr | None:
            is_unmasked = not isinstance(node, ir.Load) or node.buffer.scope == "register" or node.buffer.name in padded
            if is_unmasked or column.var not in node.free_vars():
                return None
            return ir.Select(node.dtype, truth(arith.compare("<", column.var, column.extent)), node, ir.const(0, node.dtype))

        predicate = arith.simplify(arith.substitute(stmt.predicate, {lane: arith.ZERO}))
        return with_footprint(replace(stmt, predicate=predicate, body=Rewriter(expr=load).stmt(stmt.body)))

    return Rewriter(stmt=change).program(program)


SHIFT_LAST_TILE = Transform("shift_last_tile", shift_last_tile)
SUM_WHOLE_VECTORS = Transform("sum_whole_vectors", sum_whole_vectors)
