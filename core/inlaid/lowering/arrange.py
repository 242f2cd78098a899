"""When the calls of a region run, and where its buffers lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inlaid.arith import Dim
from inlaid.lowering.calls import Calls, Part, Root
from inlaid.lowering.streams import stack_of, streamed
from inlaid.memory.order import best_order
from inlaid.memory.planner import plan
from inlaid.memory.tiers import plan_tiers
from inlaid.plugins.contract import StaticMemory
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelCall

WORTH = 0.98
"""Of the memory that is left when more kernels become one: code grows, so that a gain must be worth it."""


@dataclass(frozen=True)
class Arrangement:
    """The calls in order, the offsets of roots that have places in the arena, by number, and the bytes of the arena. Those of the
    roots that are `quick` are in fast memory, of which `fast` bytes are taken."""

    region: Calls
    offsets: Mapping[int, Dim]
    size: Dim
    quick: frozenset[int] = frozenset()
    fast: int = 0


def arrange(
    kernels: Sequence[LoopProgram],
    calls: Sequence[KernelCall],
    inside: Sequence[Part],
    roots: Mapping[int, Root],
    memory: StaticMemory | None,
) -> Arrangement:
    """Places for what is neither input, output nor constant, in an arena that the caller provides.

    With a `memory` that is scarce, inputs and outputs have places as well; calls run in the order that takes least of it; results
    lie over what they are computed from; and kernels become one where that saves memory. Kernels then run one iteration after the
    other.

    `inside` says of each buffer where it lies.
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
        found = _placed(item, memory)
        best = found if _bytes(found) < _bytes(best) * WORTH else best
    return best


def _bytes(arrangement: Arrangement) -> int:
    """Of all memory, the stack's included."""
    assert isinstance(arrangement.size, int)
    return arrangement.size + arrangement.fast + stack_of(arrangement.region)


def _placed(region: Calls, memory: StaticMemory) -> Arrangement:
    """Places in scarce memory, calls in their order."""
    owners = region.owners
    lives = region.lives(owners)
    places = {number: place for place, number in enumerate(owners)}
    shared = {
        (places[over], places[under]): distance
        for (over, under), distance in region.head_starts().items()
        if over in places and under in places and lives[places[over]].first == lives[places[under]].last
    }
    touched = [region.touched(step) for step in range(len(region.calls))]
    uses = [sum(number in call for call in touched) for number in owners]
    tiers = plan_tiers(lives, uses, memory.fast, memory.alignment, shared)
    quick = frozenset(owners[place] for place in tiers.in_fast)
    return Arrangement(region, dict(zip(owners, tiers.offsets, strict=True)), tiers.slow, quick, tiers.fast)
