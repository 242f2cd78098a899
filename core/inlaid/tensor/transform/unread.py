"""Removes local buffers that are written but never read: C compilers warn about them, and some keep their loops."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith

_NOTHING = ir.Seq(())


def remove_unread_buffers(program: ir.LoopProgram) -> ir.LoopProgram:
    """Remove local buffers that are never read, the stores to them, and loops left empty. A buffer is kept if storing to it checks
    a data-dependent index, since the check may fail. The program must have no blocks."""
    while unread := _unread(program.body):
        program = _Remover(unread).program(program)
    return program


class _Remover(Rewriter):
    def __init__(self, unread_buffers: set[ir.Buffer]) -> None:
        super().__init__(stmt=self._reduced)
        self._unread_buffers = unread_buffers

    def _reduced(self, stmt: ir.Stmt) -> ir.Stmt | None:
        """Return the part of a statement to keep; None if the statement is unchanged."""
        match stmt:
            case ir.Store(buffer=buffer) if buffer in self._unread_buffers:
                return _NOTHING
            case ir.Intrinsic() if any(region.buffer in self._unread_buffers for region in stmt.touching(ir.AccessMode.WRITE)):
                return _NOTHING
            case ir.Alloc(buffer=buffer, body=body) if buffer in self._unread_buffers:
                return body
            case ir.For(extent=extent, body=body) if body is _NOTHING and not arith.reads_data(arith.wrap(extent)):
                return _NOTHING
            case ir.Seq(stmts=stmts) if _NOTHING in stmts:
                new_stmts = tuple(item for item in stmts if item is not _NOTHING)
                return new_stmts[0] if len(new_stmts) == 1 else ir.Seq(new_stmts) if new_stmts else _NOTHING
        return None


def _unread(body: ir.Stmt) -> set[ir.Buffer]:
    local: set[ir.Buffer] = set()
    read_buffers: set[ir.Buffer] = set()
    for stmt in ir.walk_stmts(body):
        values, indices = ir.statement_operands(stmt)
        index_exprs = [arith.wrap(index) for index in indices]
        exprs = (*values, *(payload for index in index_exprs for payload in ir.payloads(index)))
        loaded_buffers = {node.buffer for node in ir.walk_exprs(*exprs) if isinstance(node, ir.Load)}
        # A reduction that reads only itself does not count as a use.
        read_buffers |= loaded_buffers - {stmt.buffer} if isinstance(stmt, ir.Store) else loaded_buffers
        match stmt:
            case ir.Alloc(buffer=buffer):
                local.add(buffer)
            case ir.Intrinsic(regions=regions):
                # An intrinsic that writes a single buffer is removed with it.
                written_buffers = {region.buffer for region in stmt.touching(ir.AccessMode.WRITE)}
                has_effect = len(written_buffers) > 1 or _checks(values, index_exprs)
                read_buffers |= {region.buffer for region in regions} - (set() if has_effect else written_buffers)
            case ir.Store(buffer=buffer) if _checks(values, index_exprs):
                read_buffers.add(buffer)
    return local - read_buffers


def _checks(values: tuple[ir.Expr, ...], indices: list[arith.Expr]) -> bool:
    """Test whether evaluating `values` and `indices` checks a data-dependent index."""
    inner = (index for node in ir.walk_exprs(*values) for index in ir.index_operands(node))
    return any(arith.reads_data(index) for index in (*indices, *inner))
