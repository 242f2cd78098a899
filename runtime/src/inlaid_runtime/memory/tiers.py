"""Plans two memories: a fast one of limited size, and a slow one for the buffers that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.memory.planner import Arena, HeadStarts, Lifetime, aligned, plan
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class Tiers:
    """A plan for two memories: offsets in the order of the buffers, the numbers of the buffers in fast memory, and the sizes of
    both memories in bytes."""

    offsets: tuple[Dim, ...]
    in_fast: frozenset[int]
    fast: int
    slow: Dim


def plan_tiers(
    buffers: Sequence[Lifetime], uses: Sequence[int], fast: int, alignment: int, head_starts: HeadStarts | None = None
) -> Tiers:
    """Place buffers in a fast memory of `fast` bytes (0: no fast memory) and in a slow one. Buffers with the smallest size per use
    come first; `uses` counts how often each buffer is read or written whole. Buffers of symbolic size go to slow memory."""
    in_fast: list[int] = []
    fast_plan = _part(buffers, in_fast, alignment, head_starts)
    static_buffers = [number for number, buffer in enumerate(buffers) if isinstance(buffer.size, int) and buffer.size]
    for number in sorted(
        static_buffers, key=lambda item: (arith.evaluate(aligned(buffers[item].size), {}) / max(uses[item], 1), item)
    ):
        if arith.evaluate(aligned(buffers[number].size, alignment), {}) > fast:
            continue
        candidate = _part(buffers, [*in_fast, number], alignment, head_starts)
        if isinstance(candidate.size, int) and candidate.size <= fast:
            in_fast.append(number)
            fast_plan = candidate
    in_slow = [number for number in range(len(buffers)) if number not in in_fast]
    slow_plan = _part(buffers, in_slow, alignment, head_starts)
    offsets = {**dict(zip(in_fast, fast_plan.offsets, strict=True)), **dict(zip(in_slow, slow_plan.offsets, strict=True))}
    assert isinstance(fast_plan.size, int)
    return Tiers(tuple(offsets[number] for number in range(len(buffers))), frozenset(in_fast), fast_plan.size, slow_plan.size)


def _part(buffers: Sequence[Lifetime], numbers: Iterable[int], alignment: int, head_starts: HeadStarts | None) -> Arena:
    """Plan some of the buffers, by number."""
    positions = {number: position for position, number in enumerate(numbers)}
    part_head_starts = {
        (positions[over], positions[under]): start
        for (over, under), start in (head_starts or {}).items()
        if over in positions and under in positions
    }
    return plan([buffers[number] for number in positions], alignment, part_head_starts or None)
