"""Hoists bounds checks out of vectorized loops, so that full vectors are unpredicated."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import buffers_of
from inlaid.tensor.transform.lower_blocks import conjuncts, guarded, mapped, truth
from inlaid_runtime import arith


def whole_vectors(program: ir.LoopProgram) -> ir.LoopProgram:
    """Check the last lane of a vectorized loop once; a partial vector becomes a serial loop of guarded elements.

        for v in 4, vectorized: if t * 4 + v < n: y[t * 4 + v] = x[t * 4 + v]
    becomes
        if t * 4 + 3 < n: for v in 4, vectorized: y[t * 4 + v] = x[t * 4 + v]
        else: for v in 4: if t * 4 + v < n: y[t * 4 + v] = x[t * 4 + v]

    Peeling does not apply inside threads, where any thread may have the last vector. A loop that accesses registers stays
    vectorized in both branches, since a register's lanes are not addressable. Expects no blocks.
    """
    body = _hoist(program.body)
    return program if body is program.body else replace(program, body=body)


def _hoist(stmt: ir.Stmt) -> ir.Stmt:
    if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.VECTORIZED:
        return mapped(stmt, _hoist)
    if not isinstance(stmt.body, ir.If) or stmt.body.otherwise is not None or not isinstance(stmt.body.condition, ir.Index):
        return stmt
    parts = list(conjuncts(stmt.body.condition.index))
    asked = [part for part in parts if stmt.var in arith.free_vars(part)]
    last = [arith.substitute(part, {stmt.var: stmt.extent - 1}) for part in asked]
    if not asked or not all(_holds_below(part, stmt.var) for part in asked):
        return stmt
    rest: arith.Expr = arith.ONE
    for part in parts:
        rest = rest if part in asked else arith.logical_and(rest, part)
    every = rest
    for part in last:
        every = arith.logical_and(every, arith.simplify(part))
    whole = replace(stmt, body=stmt.body.then)
    registers = any(buffer.scope == "register" for node in ir.walk_stmts(stmt) for buffer in buffers_of(node))
    cut = guarded(stmt if registers else replace(stmt, kind=ir.ForKind.SERIAL), rest)
    return ir.If(truth(every), whole, cut)


def _holds_below(condition: arith.Expr, var: arith.Var) -> bool:
    """Test whether a condition that holds at a variable's last value also holds at all smaller values."""
    match condition:
        case arith.Compare(op="<" | "<=", operands=(low, high)) if not arith.reads_data(condition):
            found = arith.affine(low - high, var)
            return found is not None and isinstance(found[0], arith.Const) and found[0].value > 0
    return False
