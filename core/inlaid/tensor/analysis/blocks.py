"""The blocks of a program, and their numbers of iterations."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith


def collect_blocks(program: ir.LoopProgram) -> list[ir.Block]:
    """Return the blocks of a program in order."""
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block)]


def block_size(block: ir.Block) -> arith.Expr:
    """Return the number of iterations of a block."""
    return arith.simplify(arith.wrap(arith.product(tuple(arith.unwrap(item.extent) for item in block.iters))))
