"""Move gathers before element-wise operators on the gathered table, such as the dequantization of an embedding:

take(dequantize(table, scale), indices)    =>    dequantize(take(table, indices), scale)

A language model's table has many more rows than one run reads, so fewer elements are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Function, call
from inlaid.graph.operator import Operator
from inlaid.graph.uses import UseCounts, rewrite
from inlaid_runtime.arith import Dim, size_hint
from inlaid_runtime.types import TensorType


def early_take(function: Function) -> Function:
    """Gather before element-wise operators whose other operands are scalars, if the gathered result has fewer elements than the
    table. Symbolic sizes are replaced by hints. Returns the same object if nothing changes."""
    return rewrite(function, _moved)


def _moved(expr: Expr, uses: UseCounts) -> Expr | None:
    """Rewrite take(f(table, scalars), indices) to f(take(table, indices), scalars), recursively; None without a match."""
    if not isinstance(expr, Call) or expr.callee is not ops.take:
        return None
    computed, indices = expr.args
    if not isinstance(computed, Call) or not isinstance(computed.callee, Operator) or not computed.callee.elementwise:
        return None
    positions = [number for number, arg in enumerate(computed.args) if _shape(arg) != ()]
    if len(positions) != 1 or not uses.single(computed) or _elements(expr) >= _elements(computed):
        return None
    if len(_shape(expr) or ()) < len(_shape(computed) or ()):
        return None  # attributes may name an axis that the result does not have
    table = call(ops.take, [computed.args[positions[0]], indices], expr.attrs, expr.span)
    rewritten = _moved(table, uses)
    args = list(computed.args)
    args[positions[0]] = table if rewritten is None else rewritten
    return call(computed.callee, args, computed.attrs, computed.span)


def _shape(expr: Expr) -> Sequence[Dim] | None:
    return expr.type.shape if isinstance(expr.type, TensorType) else None


def _elements(expr: Expr) -> int:
    return prod(map(size_hint, _shape(expr) or ()))
