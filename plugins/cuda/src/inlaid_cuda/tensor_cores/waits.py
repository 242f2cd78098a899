"""Loop pass that inserts waits for asynchronous instructions before each barrier.

Before a barrier, a thread waits for its copies (`cp.async`). It also makes its writes to shared memory visible to the asynchronous
proxy, through which `wgmma` reads. The barrier then makes the writes visible to other threads. Copies that a thread has issued
since the last barrier are a group. In a loop that fetches a tile several steps ahead, the newest groups stay pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_accesses
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith

COPY, WGMMA = "cuda.copy.", "cuda.wgmma."
"""Name prefixes of intrinsics: copies, and warpgroup products that read shared memory written by threads."""
FENCE = "cuda.fence_async_proxy"
_AWAIT = "cuda.await_copies"
MAX_STAGES = 4
"""Maximum tiles of an operand in shared memory."""


def with_waits(program: ir.LoopProgram) -> ir.LoopProgram:
    """Insert a wait before each barrier, and after each loop in which groups of copies stay pending.

        for q in 6: { copy tile q + 2 to s[(q + 2) % 3]; use s[q % 3]; barrier }
    becomes
        for q in 6: { copy tile q + 2 to s[(q + 2) % 3]; use s[q % 3]; await_copies.1; barrier }; await_copies.0; barrier
    """
    names = [stmt.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic)]
    copies = any(name.startswith(COPY) for name in names)
    fences = [ir.Intrinsic(FENCE, ())] if any(name.startswith(WGMMA) for name in names) else []
    if not copies and not fences:
        return program

    def waiting(pending: int) -> list[ir.Stmt]:
        return [*([ir.Intrinsic(f"{_AWAIT}.{pending}", ())] if copies else []), *fences]

    loops = [stmt for stmt in ir.walk_stmts(program.body) if copies and isinstance(stmt, ir.For)]
    pending = {loop.var: pending_count for loop in loops if (pending_count := _pending(loop))}
    pending_at_barrier = {_last(loop): pending[loop.var] for loop in loops if loop.var in pending}

    def insert_wait(stmt: ir.Stmt) -> ir.Stmt | None:
        if isinstance(stmt, ir.Barrier):
            return joined(*waiting(pending_at_barrier.get(stmt, 0)), stmt)
        if isinstance(stmt, ir.For) and stmt.var in pending:
            return joined(stmt, *waiting(0), ir.Barrier())
        return None

    return Rewriter(stmt=insert_wait).program(program)


def _pending(loop: ir.For) -> int:
    """Return the number of copy groups that may stay pending at the barrier at the end of each iteration of a loop. Returns 0
    unless the loop has exactly one barrier, copies to element (loop + d) % s of ring buffers, and otherwise accesses only element
    loop % s.

    Copies issued before the loop are complete, since a barrier precedes the first use. Each iteration issues one group. The next
    iteration uses the group issued d - 1 iterations ago.
    """
    barriers = [stmt for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Barrier)]
    if loop.kind is not ir.ForKind.SERIAL or len(barriers) != 1 or _last(loop) is not barriers[0]:
        return 0
    accesses = [(stmt, region) for stmt in ir.walk_stmts(loop.body) for region, _ in statement_accesses(stmt)]
    rings = {_target(stmt).buffer for stmt, _ in accesses if _is_copy(stmt)}
    copy_distances: set[int] = set()
    analyzer = arith.Analyzer({loop.var: (0, arith.unwrap(loop.extent - 1))})
    for stmt, region in accesses:
        if region.buffer in rings:
            size, (first, extent) = region.buffer.shape[0], region.ranges[0]
            if not isinstance(size, int) or size < 3 or extent != arith.ONE:
                return 0
            is_written = _is_copy(stmt) or isinstance(stmt, ir.Store)
            distances = [d for d in range(1, size) if analyzer.equal(first, (loop.var + d) % size)] if is_written else []
            if (is_written and not distances) or (not is_written and not analyzer.equal(first, loop.var % size)):
                return 0
            copy_distances.update(distances)
    return min(copy_distances, default=1) - 1


def _last(loop: ir.For) -> ir.Stmt:
    return loop.body.stmts[-1] if isinstance(loop.body, ir.Seq) else loop.body


def _is_copy(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Intrinsic) and stmt.name.startswith(COPY)


def _target(stmt: ir.Stmt) -> ir.BufferRegion:
    assert isinstance(stmt, ir.Intrinsic)
    return stmt.regions[1]


def emitters() -> Mapping[str, Emitter]:
    """Return the emitters of waits, keyed by intrinsic name."""

    def call(text: str) -> Emitter:
        def emit(places: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
            return [text]

        return emit

    awaits = {f"{_AWAIT}.{pending}": call(f"inlaid_await_copies<{pending}>();") for pending in range(MAX_STAGES)}
    return {FENCE: call("inlaid_fence_async_proxy();"), **awaits}
