"""Merge the outer loops of deep nests: compilers of devices analyze each loop of a nest within all others.

for a in m: for b in n: for c in 8: ...    =>    for flat in m * n: let b = flat % n: let a = flat // n: for c in 8: ...
"""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

MAX_LOOPS = 8
"""Maximum number of loops of a nest after merging. The variables of merged loops are computed once per iteration of the merged
loop."""


def flatten_nests(program: ir.LoopProgram) -> ir.LoopProgram:
    """Merge the outer loops of each perfect nest of more than `MAX_LOOPS` serial loops whose extents are known before the nest.
    Returns the same object if there are none."""
    body = _Flattening().stmt(program.body)
    return program if body is program.body else replace(program, body=body)


class _Flattening(Rewriter):
    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        loops: list[ir.For] = []
        inner = stmt
        while isinstance(inner, ir.For) and inner.kind is ir.ForKind.SERIAL:
            loops.append(inner)
            inner = inner.body
        outer_loops = loops[: len(loops) - MAX_LOOPS + 1]
        variables = {loop.var for loop in outer_loops}
        if len(loops) <= MAX_LOOPS or not all(variables.isdisjoint(arith.free_vars(loop.extent)) for loop in outer_loops):
            return super().stmt(stmt)
        return _flat(outer_loops)


def _flat(loops: list[ir.For]) -> ir.Stmt:
    """Merge nested loops, given outermost first."""
    extents = [arith.wrap(loop.extent) for loop in loops]
    flat = arith.Var("flat")
    quotients = [flat, *(arith.Var(f"flat{number}") for number in range(1, len(loops)))]
    stmt = loops[-1].body
    for number, loop in enumerate(loops):  # the outermost is what is left of `flat` at the end
        quotient = quotients[len(loops) - 1 - number]
        stmt = _let(loop.var, quotient % extents[number] if number else quotient, stmt)
        if number < len(loops) - 1:
            stmt = _let(quotient, quotients[len(loops) - 2 - number] // extents[number + 1], stmt)
    return ir.For(flat, arith.wrap(arith.product(tuple(extents))), stmt)


def _let(variable: arith.Var, value: arith.Expr, body: ir.Stmt) -> ir.Stmt:
    return ir.Let(variable, ir.Index(dtype("int64"), value), body)
