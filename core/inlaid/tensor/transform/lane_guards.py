"""Hoists bounds checks out of vectorized loops, so that full vectors are unpredicated."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_buffers
from inlaid.tensor.transform.lower_blocks import conjuncts, guarded, mapped, truth
from inlaid_runtime import arith


def hoist_lane_guards(program: ir.LoopProgram) -> ir.LoopProgram:
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
    lane_conditions = [part for part in parts if stmt.var in arith.free_vars(part)]
    last_lane_conditions = [arith.substitute(part, {stmt.var: stmt.extent - 1}) for part in lane_conditions]
    if not lane_conditions or not all(_holds_below(part, stmt.var) for part in lane_conditions):
        return stmt
    other_condition: arith.Expr = arith.ONE
    for part in parts:
        other_condition = other_condition if part in lane_conditions else arith.logical_and(other_condition, part)
    full_condition = other_condition
    for part in last_lane_conditions:
        full_condition = arith.logical_and(full_condition, arith.simplify(part))
    full_vector = replace(stmt, body=stmt.body.then)
    uses_registers = any(buffer.scope == "register" for node in ir.walk_stmts(stmt) for buffer in statement_buffers(node))
    partial_vector = guarded(stmt if uses_registers else replace(stmt, kind=ir.ForKind.SERIAL), other_condition)
    return ir.If(truth(full_condition), full_vector, partial_vector)


def _holds_below(condition: arith.Expr, var: arith.Var) -> bool:
    """Test whether a condition that holds at a variable's last value also holds at all smaller values."""
    match condition:
        case arith.Compare(op="<" | "<=", operands=(low, high)) if not arith.reads_data(condition):
            form = arith.affine(low - high, var)
            return form is not None and isinstance(form[0], arith.Const) and form[0].value > 0
    return False
