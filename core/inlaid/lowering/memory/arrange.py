"""Order the calls of a region and assign arena offsets to its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.lowering.memory.calls import ByteRange, Calls, Root
from inlaid.lowering.memory.streams import stack_bytes, streamed
from inlaid.plugins.contract import StaticMemory
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelCall
from inlaid_runtime.arith import Dim
from inlaid_runtime.memory.order import best_order
from inlaid_runtime.memory.planner import plan
from inlaid_runtime.memory.tiers import plan_tiers
from inlaid_runtime.records import dataclass, replace

WORTH = 0.98
"""More kernels are merged only if memory shrinks to at most this fraction, since merging grows the code."""


@dataclass(frozen=True)
class Arrangement:
    """Calls in execution order, the byte offset of each root in its arena, by root number, and the arena's size in bytes. Roots in
    `quick` are in fast memory; `fast` is the bytes of fast memory in use."""

    region: Calls
    offsets: Mapping[int, Dim]
    size: Dim
    quick: frozenset[int] = frozenset()
    fast: int = 0


def arrange(
    kernels: Sequence[LoopProgram],
    calls: Sequence[KernelCall],
    inside: Sequence[ByteRange],
    roots: Mapping[int, Root],
    memory: StaticMemory | None,
) -> Arrangement:
    """Plan the arena for all buffers except inputs, outputs and constants. The caller provides the arena's memory.

    With a static `memory`, the arena also holds inputs and outputs, calls are reordered to minimize peak memory, results overlap
    their operands, and kernels are merged if that saves memory. Loops of all kernels must then run serially.

    `inside` gives the root and byte range of each buffer.
    """
    region = Calls(tuple(kernels), tuple(calls), tuple(inside), roots)
    if memory is None:
        owners = [number for number, root in roots.items() if root.storage == "arena"]
        arena = plan(region.lives(owners))
        return Arrangement(region, dict(zip(owners, arena.offsets, strict=True)), arena.size)
    memory = replace(
        memory, alignment=max([memory.alignment, *(param.dtype.bytes for kernel in kernels for param in kernel.params)])
    )
    if any(call.defines or call.predicates for call in calls) or not all(isinstance(root.bytes, int) for root in roots.values()):
        return _placed(region, memory)
    order = best_order(region.work(memory.alignment))
    region = replace(region, calls=tuple(calls[number] for number in order))
    best = _placed(region, memory)
    for item in streamed(region, memory.alignment):
        candidate = _placed(item, memory)
        best = candidate if _bytes(candidate) < _bytes(best) * WORTH else best
    return best


def _bytes(arrangement: Arrangement) -> int:
    """Return the total bytes of memory, including the stack."""
    assert isinstance(arrangement.size, int)
    return arrangement.size + arrangement.fast + stack_bytes(arrangement.region)


def _placed(region: Calls, memory: StaticMemory) -> Arrangement:
    """Plan static memory for calls in their given order."""
    owners = region.owners
    lives = region.lives(owners)
    indices = {number: index for index, number in enumerate(owners)}
    overlaps = {
        (indices[output_root], indices[input_root]): distance
        for (output_root, input_root), distance in region.head_starts().items()
        if output_root in indices and input_root in indices and lives[indices[output_root]].first == lives[indices[input_root]].last
    }
    touched = [region.touched(step) for step in range(len(region.calls))]
    uses = [sum(number in call for call in touched) for number in owners]
    tiers = plan_tiers(lives, uses, memory.fast, memory.alignment, overlaps)
    quick_roots = frozenset(owners[index] for index in tiers.in_fast)
    return Arrangement(region, dict(zip(owners, tiers.offsets, strict=True)), tiers.slow, quick_roots, tiers.fast)
