"""Assigns tensors whose sizes become known during a run to blocks of device memory.

Lifetimes of such tensors can be planned, byte offsets cannot. Tensors of disjoint lifetimes share a block, a buffer that grows to
the size of the largest tensor. If a block grows, other blocks and the arena stay in place.
"""

from __future__ import annotations

from inlaid_runtime.artifact.plan import Plan
from inlaid_runtime.artifact.touched import lifetimes


def assign_blocks(plan: Plan) -> dict[int, int]:
    """Return the block number of each dynamic value on a device, first fit by lifetime; numbers start at 0 for each device.

    An output on a device shares its block with no other value: a caller that does not know the size copies it after all steps."""
    planned = ("dynamic", "output")
    owners, lives = lifetimes(plan.values, plan.instructions, lambda value: value.storage in planned and bool(value.device))
    for _, number in plan.outputs:
        if number in owners:
            lives[owners[number]] = -1, len(plan.instructions)
    block_numbers: dict[int, int] = {}
    ends: dict[str, list[int]] = {}
    for owner, (first, last) in sorted(lives.items(), key=lambda item: item[1]):
        block_ends = ends.setdefault(plan.values[owner].device, [])
        block = next((number for number, end in enumerate(block_ends) if end < first), len(block_ends))
        block_ends[block : block + 1] = [last]
        block_numbers[owner] = block
    return {number: block_numbers[owner] for number, owner in owners.items()}
