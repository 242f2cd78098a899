"""Offsets of buffers above one another share their sums."""

from __future__ import annotations

import itertools

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.memory.planner import Lifetime, plan


def test_the_number_of_nodes_grows_linearly() -> None:
    """Each of 400 buffers of sizes of their own is live to the end: the last offset is a sum of 399 sizes."""
    sizes = [SizeVar(f"n{number}") for number in range(400)]
    arena = plan([Lifetime(size * 64, number, 400) for number, size in enumerate(sizes)])
    nodes = arith.post_order(*(arith.wrap(offset) for offset in arena.offsets), arith.wrap(arena.size))
    assert len(nodes) < 30 * len(sizes)
    values = {size: number % 7 for number, size in enumerate(sizes)}
    spans = sorted((arith.evaluate(offset, values), 64 * values[size]) for offset, size in zip(arena.offsets, sizes, strict=True))
    assert all(start + length <= following for (start, length), (following, _) in itertools.pairwise(spans))
    assert arith.evaluate(arena.size, values) == 64 * sum(values.values())
