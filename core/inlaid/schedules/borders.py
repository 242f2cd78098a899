"""Split padded copies into border and interior loops, so that no condition is evaluated per element."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.lower_blocks import bound_iters, conjuncts, joined, truth
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def split_borders(program: ir.LoopProgram, block: str, columns: Var | None) -> ir.LoopProgram:
    """Split the column loop of a padded copy into border, interior and border, and test rows outside of it.

        for x in n + 2: block pad(v = x): t[v] = select(y >= 1 and v >= 1 and v < n + 1, a[y - 1, v - 1], 0)
    becomes
        if y >= 1:
            for x in 1: block pad(v = x): t[v] = 0
            for x in n: block pad(v = 1 + x): t[v] = a[y - 1, v - 1]
            for x in 1: block pad(v = 1 + n + x): t[v] = 0
        else: for x in n + 2: block pad(v = x): t[v] = 0

    `columns` is the loop along a row. It may contain vectorized loops; no condition may depend on their variables. A program of any
    other form is returned unchanged.
    """

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.For) or stmt.var is not columns or stmt.kind is not ir.ForKind.SERIAL:
            return None
        blocks = [item for item in ir.walk_stmts(stmt.body) if isinstance(item, ir.Block)]
        return _split(stmt, blocks[0]) if [item.name for item in blocks] == [block] else None

    return Rewriter(stmt=change).program(program)


@dataclass
class _Run:
    """Columns in [low, high) where a condition holds, provided that `invariant`, its column-invariant part, holds."""

    low: arith.Expr
    high: arith.Expr
    invariant: arith.Expr = arith.ONE


def _split(loop: ir.For, block: ir.Block) -> ir.Stmt | None:
    match block.body:
        case ir.Store(value=ir.Select(condition=ir.Index(index=condition), then=inside, otherwise=outside)) if block.init is None:
            bound = bound_iters(block)
            inner = {stmt.var for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.For)}
            predicate_run = _run(block.predicate, loop, inner)
            interior = _run(arith.substitute(condition, bound), loop, inner)
        case _:
            return None
    if predicate_run is None or interior is None:
        return None
    end = arith.simplify(arith.minimum(predicate_run.high, loop.extent))
    low = arith.simplify(arith.minimum(arith.maximum(interior.low, 0), end))
    high = arith.simplify(arith.maximum(arith.minimum(interior.high, end), low))
    if predicate_run.low != arith.ZERO:
        return None

    def part(first: arith.Expr, last: arith.Expr, value: ir.Expr) -> ir.Stmt:
        if first == last:
            return ir.Seq(())

        def with_value(stmt: ir.Stmt) -> ir.Stmt | None:
            if not isinstance(stmt, ir.Block):
                return None
            assert isinstance(stmt.body, ir.Store)
            return with_footprint(replace(stmt, body=replace(stmt.body, value=value), predicate=arith.ONE))

        column = Var(loop.var.name)
        body = Rewriter({loop.var: first + column}).stmt(Rewriter(stmt=with_value).stmt(loop.body))
        run = ir.For(column, arith.simplify(last - first), body)
        (inner,) = (stmt for stmt in ir.walk_stmts(body) if isinstance(stmt, ir.Block))
        return _split(run, inner) or run

    row_stmt = joined(part(arith.ZERO, low, outside), part(low, high, inside), part(high, end, outside))
    if interior.invariant != arith.ONE:
        row_stmt = ir.If(truth(interior.invariant), row_stmt, part(arith.ZERO, end, outside))
    return row_stmt if predicate_run.invariant == arith.ONE else ir.If(truth(predicate_run.invariant), row_stmt)


def _run(condition: arith.Expr, loop: ir.For, inner: set[Var]) -> _Run | None:
    """Solve a condition for the iterations of a loop; None if they are not a contiguous run."""
    low: arith.Expr = arith.ZERO
    high: arith.Expr = loop.extent
    invariant: arith.Expr = arith.ONE
    for item in conjuncts(condition):
        variables = arith.free_vars(item)
        if arith.reads_data(item) or not inner.isdisjoint(variables):
            return None
        if loop.var not in variables:
            invariant = arith.logical_and(invariant, item)
            continue
        if not isinstance(item, arith.Compare) or item.op not in ("<", "<="):
            return None
        # Normalize the condition to `stride * column + rest >= 0`.
        left, right = item.operands
        linear = arith.affine(right - left - int(item.op == "<"), loop.var)
        if linear is None or linear[0] not in (arith.ONE, arith.Const(-1)):
            return None
        if linear[0] == arith.ONE:
            low = arith.simplify(arith.maximum(low, -linear[1]))
        else:
            high = arith.simplify(arith.minimum(high, linear[1] + 1))
    return _Run(low, high, invariant)


SPLIT_BORDERS = Transform("split_borders", split_borders)
