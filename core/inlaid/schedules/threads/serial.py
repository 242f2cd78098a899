"""Serial kernels: one thread runs the loops of operators that have no parallel form."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.region import Utilization
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.parallel_loops import parallel_loops
from inlaid_runtime.types import ROW_MAJOR

_PARALLEL_KINDS = (ir.ForKind.THREAD, ir.ForKind.PARALLEL)


class SerialRule:
    """Leaves any kernel serial, as the last fallback. Reports list serial kernels, since they leave the device idle."""

    name = "serial"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer row-major layouts and the unscheduled program."""
        layouts = (ROW_MAJOR,) * len(program.params)
        return Offer(layouts, Traced(lambda: Schedule(program)), utilization=Utilization.SERIAL)


def runs_serially(program: ir.LoopProgram) -> bool:
    """Test whether a scheduled kernel keeps a serial loop outside threads after `parallel_loops`. Loops around launches do not
    count, since the host runs them."""
    return _serial(parallel_loops(compact_buffers(simplify_program(flatten_blocks(program)))).body)


def _serial(stmt: ir.Stmt) -> bool:
    if isinstance(stmt, ir.For) and stmt.kind in _PARALLEL_KINDS:
        return False
    if isinstance(stmt, (ir.For, ir.While)):
        return not any(isinstance(node, ir.For) and node.kind in _PARALLEL_KINDS for node in ir.walk_stmts(stmt.body)) or _serial(
            stmt.body
        )
    return any(map(_serial, ir.substatements(stmt)))
