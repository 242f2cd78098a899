"""Kernels of which one thread runs loops: their operators have no parallel form on grids of threads."""

from __future__ import annotations

from inlaid.schedules.rule import Given, KernelContext, Offer, Traced
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.parallel_loops import parallel_loops
from inlaid.types import ROW_MAJOR

_SPREAD = (ir.ForKind.THREAD, ir.ForKind.PARALLEL)


class SerialRule:
    """Takes every kernel. Reports name kernels by this rule: they use a small part of a device."""

    name = "serial"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Row-major buffers throughout."""
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: Schedule(program)))


def runs_serially(program: ir.LoopProgram) -> bool:
    """Whether one thread runs loops of a scheduled kernel, once independent ones are found. Loops around those over threads do not
    count: the host runs them."""
    return _serial(parallel_loops(compact_buffers(simplify_program(flatten_blocks(program)))).body)


def _serial(stmt: ir.Stmt) -> bool:
    if isinstance(stmt, ir.For) and stmt.kind in _SPREAD:
        return False
    if isinstance(stmt, (ir.For, ir.While)):
        return not any(isinstance(node, ir.For) and node.kind in _SPREAD for node in ir.walk_stmts(stmt.body)) or _serial(stmt.body)
    return any(map(_serial, ir.substatements(stmt)))
