"""Binds parallel loops to a grid of threads."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import guarded, mapped, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith

BLOCKS, THREADS = "blockIdx.x", "threadIdx.x"


def bind_parallel(program: ir.LoopProgram, block: int) -> ir.LoopProgram:
    """Bind the iterations of parallel loops to threads, `block` threads per block.

        for i in n, parallel: y[i] = ...
    becomes, for blocks of 64,
        for b in ceildiv(n, 64), blockIdx.x: for t in 64, threadIdx.x: if b * 64 + t < n: y[b * 64 + t] = ...
    and, for blocks of one thread,
        for i in n, blockIdx.x: y[i] = ...

    Parallel loops inside thread loops, under data-dependent control flow, with data-dependent extents, or in programs that define
    sizes are unchanged.
    """
    if program.defines:
        return program
    body = _bind(program.body, block)
    return program if body is program.body else simplify_program(replace(program, body=body))


def _bind(stmt: ir.Stmt, block: int) -> ir.Stmt:
    if _depends_on_data(stmt):
        return stmt
    match stmt:
        case ir.For(kind=ir.ForKind.THREAD):
            return stmt
        case ir.For(var=var, extent=extent, body=body, kind=ir.ForKind.PARALLEL):
            if any(isinstance(node, ir.For) and node.kind is ir.ForKind.THREAD for node in ir.walk_stmts(body)):
                return mapped(stmt, lambda inner: _bind(inner, block))
            if block == 1:
                return ir.For(var, extent, body, ir.ForKind.THREAD, BLOCKS)
            b, t = arith.Var(f"{var.name}_block"), arith.Var(f"{var.name}_thread")
            index = b * block + t
            inner = guarded(Rewriter({var: index}).stmt(body), arith.compare("<", index, extent))
            threads = ir.For(t, arith.Const(block), inner, ir.ForKind.THREAD, THREADS)
            return ir.For(b, arith.wrap(arith.ceildiv(extent, block)), threads, ir.ForKind.THREAD, BLOCKS)
    return mapped(stmt, lambda inner: _bind(inner, block))


def _depends_on_data(stmt: ir.Stmt) -> bool:
    """Test whether the control flow of a statement depends on data."""
    if isinstance(stmt, ir.While):
        return True
    if isinstance(stmt, (ir.For, ir.If, ir.Let)):
        values, indices = ir.statement_operands(stmt)
        reads = any(isinstance(node, ir.Load) for node in ir.walk_exprs(*values))
        return reads or any(map(arith.reads_data, map(arith.wrap, indices)))
    return False
