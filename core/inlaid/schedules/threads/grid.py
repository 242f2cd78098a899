"""Loops onto the axes of a grid: how many threads a block has, and how many elements a thread."""

from __future__ import annotations

from inlaid import arith
from inlaid.arith import Var
from inlaid.plugins.contract import Threads
from inlaid.schedules.rule import Decision, KernelContext
from inlaid.schedules.shape import loop_extent
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import MemoryScope

BLOCKS, THREADS = "blockIdx.x", "threadIdx.x"
SCOPE_OWNER = "block"
MOST = 4
"""Pieces of work that a thread takes at most: more save little of what a thread costs, and take registers."""
WAVES = 2
"""How often the device should still be filled where a thread takes several pieces: the last wave is then seldom half empty."""


def threads_of(context: KernelContext) -> Threads:
    """The threads of the target, which has some."""
    threads = context.capabilities.threads
    assert threads is not None, "a rule for threads schedules for threads"
    return threads


def shared_scope(context: KernelContext) -> MemoryScope | None:
    """The memory that the threads of a block share; None where they share none."""
    return next((scope for scope in context.capabilities.scopes if scope.owner == SCOPE_OWNER), None)


def exchanging(context: KernelContext) -> int:
    """How many threads, neighbours along x, read one another's registers; 1 where none do."""
    threads = threads_of(context)
    return threads.subgroup if threads.shuffles else 1


def expected(extent: arith.Expr) -> int:
    """A size, or what is assumed of a symbolic one."""
    return arith.size_hint(arith.unwrap(extent))


def decide_block(context: KernelContext) -> Decision:
    """Threads of a block: all that there may be, since blocks wait for nothing here; fewer leave more registers to each."""
    threads = threads_of(context)
    sizes = [threads.block >> step for step in range(threads.block.bit_length()) if threads.block >> step >= threads.subgroup]
    return context.decide("block", reversed(sizes), threads.block)


def decide_pieces(context: KernelContext, pieces: int) -> Decision:
    """Pieces of work for a thread, of some number in all: as many as still fill the device `WAVES` times, at most `MOST`."""
    resident = threads_of(context).resident * WAVES
    options = [1 << step for step in range(MOST.bit_length())]
    best = max(count for count in options if count == 1 or pieces >= count * resident)
    return context.decide("pieces", options, best)


def bind_flat(s: Schedule, loop: Var, block: int, pieces: int = 1) -> None:
    """
    for i in n    becomes    for b in n / (pieces * block), blocks: for t in block, threads: for piece in pieces

    where neighbouring threads take neighbouring iterations. A loop of fewer iterations has a thread for each.
    """
    extent = loop_extent(s, loop)
    count = block
    if isinstance(extent, arith.Const):
        count = max(min(block, extent.value), 1)
        pieces = max(min(pieces, extent.value // count), 1)
    if pieces == 1:
        outer, inner = s.split(loop, (None, count))
    else:
        outer, piece, inner = s.split(loop, (None, pieces, count))
        s.reorder(outer, inner, piece)
    s.bind(outer, BLOCKS)
    s.bind(inner, THREADS)


def is_elementwise(block: ir.Block) -> bool:
    """Whether a block computes each element of one buffer by itself."""
    spatial = all(item.kind is ir.IterKind.SPATIAL for item in block.iters)
    return spatial and block.init is None and isinstance(block.body, ir.Store)
