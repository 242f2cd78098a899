"""Placement of polls for signals: often enough that Ctrl-C ends a run within 50 ms, rarely enough to cost no time.

Generated code calls `inlaid_poll`, which reads the cycle counter and calls Python every few milliseconds. Cycles are predicted.
Slow memory may multiply the actual cycles; `CHUNK` and `INTERVAL` leave a margin for this.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.capabilities import TILES
from inlaid_x86.fork import ISSUED, Sizes, issued, remaining_budget
from inlaid_x86.llvm.kernel import Polls

CHUNK = 1e7
"""Maximum cycles without a poll. Regions that take fewer cycles do not poll."""
STEP = 1e5
"""Minimum cycles between polls. A poll takes about 40 cycles."""
_USUAL = 4096
"""Assumed iterations of a loop of unknown extent."""


def cycles(kernel: ir.LoopProgram, width: int) -> float:
    """Predict the cycles of a kernel, limited to `CHUNK`."""
    return CHUNK - max(_remaining(kernel.body, width, {}), 0.0)


def polled_loops(kernel: ir.LoopProgram, width: int) -> dict[ir.For, Polls]:
    """Choose the loops of a kernel that poll, and how often. In a kernel of at least `CHUNK` cycles, the outermost loops with
    iterations of less than `CHUNK` cycles poll. Kernels that use AMX tiles do not poll, since a call does not preserve tiles."""
    if any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == TILES.name for stmt in ir.walk_stmts(kernel.body)):
        return {}
    polls: dict[ir.For, Polls] = {}
    _choose_loops(kernel.body, width, polls, {})
    return polls


def _choose_loops(stmt: ir.Stmt, width: int, polls: dict[ir.For, Polls], sizes: Sizes) -> None:
    if isinstance(stmt, ir.For):
        if stmt.kind is ir.ForKind.VECTORIZED or _remaining(stmt, width, sizes) > 0:
            return
        budget = _remaining(stmt.body, width, sizes)
        count = len(polls)
        if budget <= 0:
            _choose_loops(stmt.body, width, polls, sizes)
        if len(polls) == count:  # no inner loop polls: iterations are short, or long with short parts only
            interval = max(int(STEP / max(CHUNK - budget, 1.0)), 1)
            operations = issued(stmt.body, width, _USUAL, sizes)
            polls[stmt] = Polls(interval) if isinstance(operations, arith.Const) else Polls(int(STEP * ISSUED), operations)
    elif not isinstance(stmt, ir.While):
        for inner in ir.substatements(stmt):
            _choose_loops(inner, width, polls, sizes)


def _remaining(stmt: ir.Stmt, width: int, sizes: Sizes) -> float:
    return remaining_budget(stmt, 1.0, CHUNK, width, _USUAL, sizes)


def checkpoints(calls: Sequence[float]) -> frozenset[int] | None:
    """Choose the calls after which a region polls. `calls`: cycles of each call. Returns None if the region need not poll."""
    if sum(calls) < CHUNK:
        return None
    polled_calls, passed = set(), 0.0
    for number, call_cycles in enumerate(calls):
        passed += call_cycles
        if passed >= STEP:
            polled_calls.add(number)
            passed = 0.0
    return frozenset(polled_calls)
