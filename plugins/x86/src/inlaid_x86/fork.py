"""Which parallel loops are worth other threads: the one place that decides it, whatever rule made them parallel."""

from __future__ import annotations

from dataclasses import replace

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import mapped

WORTH_CYCLES = 3000.0
"""Cycles of work, on one thread, from which on a loop is shared out: a microsecond at 3 GHz. Opening a job for a worker that spins
and waiting for its end takes 0.35 us in the median. Loops that read and write arrays in the cache, on two threads of a Zen 5, took
0.65 us where they took 0.7 alone, 1.0 where 1.3, 2.4 where 6.1."""
ISSUED = 2
"""Vector operations, loads and stores together, that a core does a cycle."""
INTRINSIC = 2.0
"""Cycles of a tensor intrinsic, its loads included."""
Sizes = dict[ir.Expr, int]
"""Operations of stores, by the values that they store: kept while a program is looked at, each nest of which is asked for again."""


def serialize_short_loops(program: ir.LoopProgram, width: int) -> ir.LoopProgram:
    """The program with those parallel loops serial that take one thread less than `WORTH_CYCLES`. `width` is that of vectors, in
    bits. A loop whose length is not known before it runs stays parallel."""
    return replace(program, body=_shorten(program.body, width))


def _shorten(stmt: ir.Stmt, width: int) -> ir.Stmt:
    if isinstance(stmt, ir.For):
        if stmt.kind is ir.ForKind.VECTORIZED:
            return stmt
        if stmt.kind is ir.ForKind.PARALLEL:
            return stmt if remaining_budget(stmt, 1.0, WORTH_CYCLES, width) <= 0 else replace(stmt, kind=ir.ForKind.SERIAL)
    return mapped(stmt, lambda inner: _shorten(inner, width))


def remaining_budget(stmt: ir.Stmt, times: float, budget: float, width: int, usual: int = 0, sizes: Sizes | None = None) -> float:
    """What is left of a budget of cycles when a statement has run so often. Looks no further once nothing is. `usual` stands for
    lengths of loops that are not known before they run, and cycles of a tensor intrinsic are guessed; 0: they take all there is.
    `sizes` is where what is counted of stores is kept."""
    sizes = {} if sizes is None else sizes
    match stmt:
        case ir.For(extent=arith.Const(value=extent), body=body, kind=kind):
            if kind is ir.ForKind.VECTORIZED:
                return remaining_budget(body, times * max(extent * _bits(body) / width, 1.0), budget, width, usual, sizes)
            return remaining_budget(body, times * extent, budget, width, usual, sizes)
        case ir.For(extent=extent, body=body) if usual:
            return remaining_budget(body, times * _most(extent, usual), budget, width, usual, sizes)
        case ir.While(body=body) if usual:
            return remaining_budget(body, times * usual, budget, width, usual, sizes)
        case ir.Intrinsic() if usual:
            return budget - times * INTRINSIC
        case ir.Store(value=value):
            return budget - times * _size(value, sizes) / ISSUED
        case ir.For() | ir.While() | ir.Intrinsic():
            return 0.0  # nobody knows
    for inner in ir.substatements(stmt):
        if budget > 0:
            budget = remaining_budget(inner, times, budget, width, usual, sizes)
    return budget


def _size(value: ir.Expr, sizes: Sizes) -> int:
    """Operations of a store of a value."""
    if value not in sizes:
        sizes[value] = 1 + sum(1 for _ in ir.walk_exprs(value))
    return sizes[value]


def issued(stmt: ir.Stmt, width: int, usual: int, sizes: Sizes) -> arith.Expr:
    """Operations of a statement in terms of sizes, of which a core issues `ISSUED` a cycle. `usual` is for loops whose length
    depends on anything but sizes; `sizes` as of `remaining_budget`."""
    match stmt:
        case ir.For(extent=arith.Const(value=extent), body=body, kind=ir.ForKind.VECTORIZED):
            return max(extent * _bits(body) // width, 1) * issued(body, width, usual, sizes)
        case ir.For(extent=extent, body=body):
            if arith.reads_data(extent) or not all(isinstance(size, arith.SizeVar) for size in arith.free_vars(extent)):
                extent = arith.Const(_most(extent, usual))
            return arith.simplify(extent * issued(body, width, usual, sizes))
        case ir.While(body=body):
            return arith.simplify(usual * issued(body, width, usual, sizes))
        case ir.Store(value=value):
            return arith.Const(_size(value, sizes))
        case ir.Intrinsic():
            return arith.Const(int(ISSUED * INTRINSIC))
    return arith.simplify(sum((issued(inner, width, usual, sizes) for inner in ir.substatements(stmt)), arith.ZERO))


def _most(extent: arith.Expr, usual: int) -> int:
    """Iterations of a loop, `usual` at most."""
    most = arith.bounds(extent)[1]
    return usual if most is None else max(min(usual, most), 0)


def _bits(stmt: ir.Stmt) -> int:
    """Bits of what the first store of a statement stores."""
    return next((inner.buffer.dtype.bytes * 8 for inner in ir.walk_stmts(stmt) if isinstance(inner, ir.Store)), 8)
