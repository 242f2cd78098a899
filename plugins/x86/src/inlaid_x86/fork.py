"""Cost model that decides which parallel loops run on several threads. It applies to the loops of all schedule rules."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import mapped
from inlaid_runtime import arith

WORTH_CYCLES = 3000.0
"""Minimum single-thread cycles of a loop that runs in parallel: 1 us at 3 GHz. Starting a job for a spinning worker and waiting for
it takes a median of 0.35 us. Measured on loops over cached arrays on a Zen 5, one thread against two: 0.7 against 0.65 us, 1.3
against 1.0 us, 6.1 against 2.4 us."""
ISSUED = 2
"""Vector operations, loads and stores that a core issues per cycle."""
INTRINSIC = 2.0
"""Assumed cycles of a tensor intrinsic, including its loads."""
Sizes = dict[ir.Expr | arith.Expr, int]
"""Memo of the number of operations in each stored value, and of the maximum iterations of each loop extent. The analyses of one
program share it, since they revisit inner loops."""


def serialize_short_loops(program: ir.LoopProgram, width: int) -> ir.LoopProgram:
    """Make parallel loops serial if they take less than `WORTH_CYCLES` on one thread. width: vector width in bits. A loop of
    unknown extent stays parallel."""
    return replace(program, body=_shorten(program.body, width))


def _shorten(stmt: ir.Stmt, width: int) -> ir.Stmt:
    if isinstance(stmt, ir.For):
        if stmt.kind is ir.ForKind.VECTORIZED:
            return stmt
        if stmt.kind is ir.ForKind.PARALLEL:
            return stmt if remaining_budget(stmt, 1.0, WORTH_CYCLES, width) <= 0 else replace(stmt, kind=ir.ForKind.SERIAL)
    return mapped(stmt, lambda inner: _shorten(inner, width))


def remaining_budget(stmt: ir.Stmt, times: float, budget: float, width: int, usual: int = 0, sizes: Sizes | None = None) -> float:
    """Subtract the cycles of running a statement `times` times from a budget. Stops early once the budget is used up.

    usual: assumed extent of loops of unknown extent. If 0, such a loop or an intrinsic uses up the budget. sizes: memo."""
    sizes = {} if sizes is None else sizes
    match stmt:
        case ir.For(extent=arith.Const(value=extent), body=body, kind=kind):
            if kind is ir.ForKind.VECTORIZED:
                return remaining_budget(body, times * max(extent * _bits(body) / width, 1.0), budget, width, usual, sizes)
            return remaining_budget(body, times * extent, budget, width, usual, sizes)
        case ir.For(extent=extent, body=body) if usual:
            return remaining_budget(body, times * _max_iterations(extent, usual, sizes), budget, width, usual, sizes)
        case ir.While(body=body) if usual:
            return remaining_budget(body, times * usual, budget, width, usual, sizes)
        case ir.Intrinsic() if usual:
            return budget - times * INTRINSIC
        case ir.Store(value=value):
            return budget - times * _operations(value, sizes) / ISSUED
        case ir.For() | ir.While() | ir.Intrinsic():
            return 0.0  # unknown cost
    for inner in ir.substatements(stmt):
        if budget > 0:
            budget = remaining_budget(inner, times, budget, width, usual, sizes)
    return budget


def _operations(value: ir.Expr, sizes: Sizes) -> int:
    """Return the number of operations to compute and store a value."""
    if value not in sizes:
        sizes[value] = 1 + len(list(ir.walk_exprs(value)))
    return sizes[value]


def issued(stmt: ir.Stmt, width: int, usual: int, sizes: Sizes) -> arith.Expr:
    """Return the number of operations of a statement as an expression of symbolic sizes. usual: assumed extent of loops whose
    extent depends on anything but symbolic sizes. sizes: see `remaining_budget`."""
    match stmt:
        case ir.For(extent=arith.Const(value=extent), body=body, kind=ir.ForKind.VECTORIZED):
            return max(extent * _bits(body) // width, 1) * issued(body, width, usual, sizes)
        case ir.For(extent=extent, body=body):
            if arith.reads_data(extent) or not all(isinstance(size, arith.SizeVar) for size in arith.free_vars(extent)):
                extent = arith.Const(_max_iterations(extent, usual, sizes))
            return arith.simplify(extent * issued(body, width, usual, sizes))
        case ir.While(body=body):
            return arith.simplify(usual * issued(body, width, usual, sizes))
        case ir.Store(value=value):
            return arith.Const(_operations(value, sizes))
        case ir.Intrinsic():
            return arith.Const(int(ISSUED * INTRINSIC))
    return arith.simplify(sum((issued(inner, width, usual, sizes) for inner in ir.substatements(stmt)), arith.ZERO))


def _max_iterations(extent: arith.Expr, usual: int, sizes: Sizes) -> int:
    """Return the maximum iterations of a loop, limited to `usual`."""
    if extent not in sizes:
        upper_bound = arith.bounds(extent)[1]
        sizes[extent] = usual if upper_bound is None else max(min(usual, upper_bound), 0)
    return sizes[extent]


def _bits(stmt: ir.Stmt) -> int:
    """Return the element size in bits of the first store in a statement."""
    return next((inner.buffer.dtype.bytes * 8 for inner in ir.walk_stmts(stmt) if isinstance(inner, ir.Store)), 8)
