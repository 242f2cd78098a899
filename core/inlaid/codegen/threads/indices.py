"""The type of a kernel's indices."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges

_LIMIT = 1 << 31


def index_type(program: ir.LoopProgram, ranges: Ranges) -> str:
    """int32_t where it holds every index, and every part of one, else int64_t."""
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
    """The place of an element in a row-major buffer."""
    flat: arith.Expr = arith.ZERO
    for extent, index in zip(buffer.shape, indices, strict=True):
        flat = arith.add(arith.mul(flat, extent), index)
    return flat
