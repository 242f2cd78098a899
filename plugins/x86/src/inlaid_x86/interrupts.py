"""Where code asks whether a signal has come: so often that Ctrl-C ends a run soon, so rarely that it costs nothing.

Code asks by `inlaid_poll`, which reads the cycle counter and calls Python every few milliseconds. Cycles are predicted, and may be
several times more where memory is slow: `CHUNK` and `INTERVAL` leave room for that below 50 ms.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid import arith
from inlaid.tensor import ir
from inlaid_x86.capabilities import TILES
from inlaid_x86.fork import ISSUED, Sizes, issued, left
from inlaid_x86.llvm.kernel import Polls

CHUNK = 1e7
"""Cycles that may pass without a poll: regions that take less have none."""
STEP = 1e5
"""Cycles that are worth a poll, which takes about 40."""
_USUAL = 4096
"""Iterations of a loop whose length is not known before it runs."""


def cycles(kernel: ir.LoopProgram, width: int) -> float:
    """Predicted cycles of a kernel, `CHUNK` at most."""
    return CHUNK - max(_left(kernel.body, width, {}), 0.0)


def polled_loops(kernel: ir.LoopProgram, width: int) -> dict[ir.For, Polls]:
    """The loops of a kernel that poll, and when: the outermost ones whose iterations take less than `CHUNK`, in a kernel that takes
    more. Kernels that use tiles have none, since a call does not preserve tiles."""
    if any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == TILES.name for stmt in ir.walk_stmts(kernel.body)):
        return {}
    found: dict[ir.For, Polls] = {}
    _find(kernel.body, width, found, {})
    return found


def _find(stmt: ir.Stmt, width: int, found: dict[ir.For, Polls], sizes: Sizes) -> None:
    if isinstance(stmt, ir.For):
        if stmt.kind is ir.ForKind.VECTORIZED or _left(stmt, width, sizes) > 0:
            return
        rest = _left(stmt.body, width, sizes)
        before = len(found)
        if rest <= 0:
            _find(stmt.body, width, found, sizes)
        if len(found) == before:  # where an iteration is long: one of several parts, each short
            known = max(int(STEP / max(CHUNK - rest, 1.0)), 1)
            operations = issued(stmt.body, width, _USUAL, sizes)
            found[stmt] = Polls(known) if isinstance(operations, arith.Const) else Polls(int(STEP * ISSUED), operations)
    elif not isinstance(stmt, ir.While):
        for inner in ir.substatements(stmt):
            _find(inner, width, found, sizes)


def _left(stmt: ir.Stmt, width: int, sizes: Sizes) -> float:
    return left(stmt, 1.0, CHUNK, width, _USUAL, sizes)


def checkpoints(calls: Sequence[float]) -> frozenset[int] | None:
    """The calls of a region after which it polls, by the cycles of each; None for a region that polls nowhere."""
    if sum(calls) < CHUNK:
        return None
    found, passed = set(), 0.0
    for number, taken in enumerate(calls):
        passed += taken
        if passed >= STEP:
            found.add(number)
            passed = 0.0
    return frozenset(found)
