"""Lowers virtual threads: interleaves their statements, so that one waits while another computes."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.primitives import TASKS
from inlaid.tensor.transform.lower_blocks import joined, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError


def lower_vthreads(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace loops over virtual threads by one copy of each task per thread, side by side inside the loops that they share.

        for t in 2, vthread: alloc b: for k in 8: { b[0] = a[t, k]; c[t] += b[0] }
    becomes
        alloc b_0: alloc b_1: for k in 8: { b_0[0] = a[0, k]; b_1[0] = a[1, k]; c[0] += b_0[0]; c[1] += b_1[0] }

    If the thread loop or a loop inside it is marked `TASKS`, tasks are the statements directly in the marked loop and the siblings
    of the loops around it; otherwise tasks are the innermost statements. Buffers are private to a thread. The program must have no
    blocks. Raises `ScheduleError` if the number of threads is not constant.
    """
    body = _lowered(program.body)
    return program if body is program.body else replace(program, body=body)


def _lowered(stmt: ir.Stmt) -> ir.Stmt:
    stmt = mapped(stmt, _lowered)
    if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.VTHREAD:
        return stmt
    extent = arith.simplify(stmt.extent)
    if not isinstance(extent, arith.Const):
        raise ScheduleError(f"the extent of virtual thread loop {stmt.var} must be constant, got {extent!r}")
    marked_loops = {item for item in ir.walk_stmts(stmt) if isinstance(item, ir.For) and (TASKS.name, True) in item.annotations}
    return _VirtualThreads(stmt.var, extent.value, marked_loops).stmt(stmt.body)


class _VirtualThreads:
    def __init__(self, var: arith.Var, count: int, marked_loops: set[ir.For]) -> None:
        self._marked_loops = marked_loops
        self._var = var
        self._count = count
        self._thread_buffers: list[dict[ir.Buffer, ir.Buffer]] = [{} for _ in range(count)]

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """Lower a statement for all threads."""
        match stmt:
            case ir.Seq(stmts=stmts):
                return joined(*map(self.stmt, stmts))
            case ir.For(extent=extent) if self._var not in arith.free_vars(extent) and self._shared(stmt):
                return mapped(stmt, self.stmt)
            case ir.Alloc(buffer=buffer, body=body):
                self._copy(buffer)
                result = self.stmt(body)
                for buffers in reversed(self._thread_buffers):
                    result = ir.Alloc(buffers[buffer], result)
                return result
        for node in ir.walk_stmts(stmt):
            if isinstance(node, ir.Alloc):
                self._copy(node.buffer)
        copies = (
            Rewriter({self._var: arith.Const(thread)}, self._thread_buffers[thread]).stmt(stmt) for thread in range(self._count)
        )
        return joined(*copies)

    def _shared(self, loop: ir.For) -> bool:
        """Test whether threads interleave inside a loop."""
        return not self._marked_loops or any(stmt in self._marked_loops for stmt in ir.walk_stmts(loop))

    def _copy(self, buffer: ir.Buffer) -> None:
        for thread, buffers in enumerate(self._thread_buffers):
            buffers[buffer] = ir.Buffer(f"{buffer.name}_{thread}", buffer.shape, buffer.dtype, buffer.scope)
