"""The integer type of a kernel's indices."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid_runtime import arith

_LIMIT = 1 << 31


def index_type(program: ir.LoopProgram, ranges: Ranges) -> str:
    """Choose int32_t if every index and all its subexpressions fit, else int64_t."""
    for stmt in ir.walk_stmts(program.body):
        for expr in _indices(stmt):
            for part in arith.walk(expr):
                low, high = ranges.indices.bounds(part)
                if low is None or high is None or low < -_LIMIT or high >= _LIMIT:
                    return "int64_t"
    return "int32_t"


def _indices(stmt: ir.Stmt) -> Iterator[arith.Expr]:
    values, indices = ir.statement_operands(stmt)
    yield from map(arith.wrap, indices)
    if isinstance(stmt, ir.Store):
        yield flat_index(stmt.buffer, stmt.indices)
    for node in ir.walk_exprs(*values):
        yield from ir.index_operands(node)
        if isinstance(node, ir.Load):
            yield flat_index(node.buffer, node.indices)


def flat_index(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> arith.Expr:
    """Return the row-major flat index of an element."""
    flat: arith.Expr = arith.ZERO
    for extent, index in zip(buffer.shape, indices, strict=True):
        flat = arith.add(arith.mul(flat, extent), index)
    return flat
