"""Blocks of device memory for tensors whose sizes only a run tells.

Their places cannot be planned in bytes, but their lifetimes are known: tensors that never live at once share a block, which has
memory of its own and grows to the largest of them. What other blocks and the arena hold stays where it is.
"""

from __future__ import annotations

from inlaid.artifact.plan import Plan
from inlaid.artifact.touched import lifetimes


def blocks_of(plan: Plan) -> dict[int, int]:
    """The number of the block of each dynamic value on a device, from 0 on for each device: as few as lifetimes allow. Outputs on
    devices have blocks of their own, for callers that do not know their sizes and take copies after the plan's last step."""
    planned = ("dynamic", "output")
    owners, lives = lifetimes(plan.values, plan.instructions, lambda value: value.storage in planned and bool(value.device))
    for _, number in plan.outputs:
        if number in owners:
            lives[owners[number]] = -1, len(plan.instructions)
    places: dict[int, int] = {}
    ends: dict[str, list[int]] = {}
    for owner, (first, last) in sorted(lives.items(), key=lambda item: item[1]):
        taken = ends.setdefault(plan.values[owner].device, [])
        place = next((number for number, end in enumerate(taken) if end < first), len(taken))
        taken[place : place + 1] = [last]
        places[owner] = place
    return {number: places[owner] for number, owner in owners.items()}
