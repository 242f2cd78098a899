"""The schedule of kernels that no other rule knows: element-wise chains merged, outer loops parallel, inner loops vectors."""

from __future__ import annotations

from inlay import arith
from inlay.arith import Var
from inlay.errors import ScheduleError
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.schedules.shape import blocks_of
from inlay.tensor import ir
from inlay.tensor.schedule import Schedule
from inlay.types import ROW_MAJOR

PARALLEL_WORK = 1 << 15
"""Iterations of a block from which on threads are worth waking."""
CHUNKS = 64
"""Parallel iterations that are enough for any number of threads: more loops are not merged for it."""


class GenericRule:
    """Takes every kernel."""

    name = "generic"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Row-major buffers throughout."""
        return Offer((ROW_MAJOR,) * len(program.params), lambda source: _schedule(source, context))


def _schedule(program: ir.LoopProgram, context: KernelContext) -> ir.LoopProgram:
    s = Schedule(program)
    for name in [block.name for block in blocks_of(program)]:
        block = next(block for block in blocks_of(s.program) if block.name == name)
        if _worth_inlining(s.program, block):
            s.compute_inline(name)
    if context.threads != 1:
        for block in blocks_of(s.program):
            if _iterations(block) >= PARALLEL_WORK:
                _parallel(s, block)
    return s.program


def _worth_inlining(program: ir.LoopProgram, block: ir.Block) -> bool:
    """Whether an element-wise block has one reader, which reads each element once: nothing is computed twice then."""
    if block.init is not None or not isinstance(block.body, ir.Store) or block.body.buffer in program.params:
        return False
    if any(item.kind is not ir.IterKind.SPATIAL for item in block.iters):
        return False
    buffer = block.body.buffer
    others = [item for item in blocks_of(program) if item is not block]
    readers = [item for item in others if any(region.buffer is buffer for region in item.reads)]
    if len(readers) != 1 or any(region.buffer is buffer for item in others for region in item.writes):
        return False
    reader = readers[0]
    if not isinstance(reader.body, ir.Store):
        return False
    loads = [node for node in ir.walk_exprs(reader.body.value) if isinstance(node, ir.Load) and node.buffer is buffer]
    return len(loads) == 1 and (reader.init is None or _size(block) == _size(reader))


def _size(block: ir.Block) -> arith.Expr:
    return arith.simplify(arith.wrap(arith.product(tuple(arith.unwrap(item.extent) for item in block.iters))))


def _iterations(block: ir.Block) -> int:
    """How often a block runs; for symbolic extents, enough."""
    size = _size(block)
    return size.value if isinstance(size, arith.Const) else PARALLEL_WORK


def _parallel(s: Schedule, block: ir.Block) -> None:
    """Run the outer spatial loops of a block in parallel, as many of them as make enough chunks."""
    loops = s.loops(block.name)
    spatial = {binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.SPATIAL}
    chosen: list[Var] = []
    chunks = 1
    for loop in loops:
        if loop not in spatial or chunks >= CHUNKS:
            break
        extent = _extent(s.program, loop)
        chosen.append(loop)
        chunks *= extent.value if isinstance(extent, arith.Const) else CHUNKS
    if not chosen or chunks == 1:
        return
    try:
        s.parallel(s.fuse(*chosen) if len(chosen) > 1 else chosen[0])
    except ScheduleError:
        # The block's iterations depend on one another, as those of a loop program of its own may.
        return


def _extent(program: ir.LoopProgram, loop: Var) -> arith.Expr:
    return next(stmt.extent for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.var is loop)
