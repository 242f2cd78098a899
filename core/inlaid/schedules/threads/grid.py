"""Bind loops to the axes of a grid: decide the threads of a block and the elements of a thread."""

from __future__ import annotations

from inlaid.plugins.contract import Threads
from inlaid.schedules.shape import loop_extent
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import replace
from inlaid_runtime.types import MemoryScope

BLOCKS, THREADS = "blockIdx.x", "threadIdx.x"
SCOPE_OWNER = "block"
MAX_PIECES = 4
"""Maximum elements or vectors per thread. With more, register pressure grows and little thread overhead is saved."""
WAVES = 2
"""Minimum full waves of the grid if a thread computes several pieces, which bounds the loss by a partial last wave."""


def device_threads(context: KernelContext) -> Threads:
    """Return `Capabilities.threads` of the target, which is not None for the rules of this package."""
    threads = context.capabilities.threads
    assert threads is not None, "a rule for threads schedules for threads"
    return threads


def shared_scope(context: KernelContext) -> MemoryScope | None:
    """Return the memory scope that a block owns; None if the target declares no such scope."""
    return next((scope for scope in context.capabilities.scopes if scope.owner == SCOPE_OWNER), None)


def within_shared(context: KernelContext, thread_bytes: int, buffers: int) -> KernelContext:
    """Halve the context's maximum of threads per block until shared memory has `thread_bytes` bytes for each thread, and room to
    align `buffers` buffers. Returns the context unchanged without shared memory."""
    threads, scope = device_threads(context), shared_scope(context)
    if scope is None:
        return context
    block = threads.block
    while block > 1 and block * thread_bytes + buffers * scope.alignment > scope.capacity:
        block //= 2
    return replace(context, capabilities=replace(context.capabilities, threads=replace(threads, block=block)))


def exchanging(context: KernelContext) -> int:
    """Return the number of threads, adjacent along x, that can read one another's registers; 1 without shuffles."""
    threads = device_threads(context)
    return threads.subgroup if threads.shuffles else 1


def expected(extent: arith.Expr) -> int:
    """Return the value of a constant extent; the size hint of a symbolic extent."""
    return arith.size_hint(arith.unwrap(extent))


def decide_block(context: KernelContext) -> Decision:
    """Decide the threads per block. Default: the maximum, since there are no barriers. A smaller block leaves more registers."""
    threads = device_threads(context)
    sizes = [threads.block >> step for step in range(threads.block.bit_length()) if threads.block >> step >= threads.subgroup]
    return context.decide("block", reversed(sizes), threads.block)


def decide_pieces(context: KernelContext, pieces: int) -> Decision:
    """Decide how many of `pieces` elements a thread computes: as many as leave `WAVES` full waves, at most `MAX_PIECES`."""
    resident = device_threads(context).resident * WAVES
    options = [1 << step for step in range(MAX_PIECES.bit_length())]
    best = max(count for count in options if count == 1 or pieces >= count * resident)
    return context.decide("pieces", options, best)


def bind_flat(s: Schedule, loop: Var, block: int, pieces: int = 1) -> None:
    """Bind a loop to the blocks and threads of a grid:

    for i in n    becomes    for b in n / (pieces * block), blocks: for t in block, threads: for piece in pieces

    Adjacent threads take adjacent iterations. A constant extent below `block` shrinks the block.
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
    """Test whether a block stores one buffer and has no reduction axis."""
    spatial = all(item.kind is ir.IterKind.SPATIAL for item in block.iters)
    return spatial and block.init is None and isinstance(block.body, ir.Store)
