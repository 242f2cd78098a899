"""Legalize the lanes of vectorized loops."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith


def cut_lanes(program: ir.LoopProgram, lanes: tuple[int, ...]) -> ir.LoopProgram:
    """Split vectorized loops into loops of the legal `lanes`, widest first; the remainder is scalar."""

    def cut(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.VECTORIZED or not isinstance(stmt.extent, arith.Const):
            return None
        extent, first = stmt.extent.value, 0
        pieces: list[ir.Stmt] = []
        if extent in lanes:
            return None
        for width in sorted(lanes, reverse=True):
            while extent - first >= width:
                var = arith.Var(stmt.var.name)
                body = Rewriter({stmt.var: var + first}).stmt(stmt.body)
                pieces.append(replace(stmt, var=var, extent=arith.Const(width), body=body))
                first += width
        pieces += [Rewriter({stmt.var: arith.Const(lane)}).stmt(stmt.body) for lane in range(first, extent)]
        return joined(*pieces)

    return Rewriter(stmt=cut).program(program)
