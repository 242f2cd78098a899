"""Prefetches of a product's panels are far apart, but never many at once."""

from __future__ import annotations

import pytest

from inlaid.plugins import CostConstants
from inlaid.schedules.matmul import between_prefetches
from inlaid.schedules.register_tile import Tile
from inlaid.tensor import te
from inlaid.tensor.lower import lower
from inlaid.tensor.schedule import Schedule


@pytest.mark.parametrize(
    ("depth", "tiles", "loops"),
    [
        (64, 32, 2),
        (64, 3, 2),  # 12 lines per eight steps, over three tiles
        (64, 2, 1),  # six prefetches at once
        (60, 32, 1),  # not whole groups
        (8, 32, 1),  # a single group
    ],
)
def test_prefetches_are_spread(depth: int, tiles: int, loops: int) -> None:
    a, b = te.placeholder((16, depth), "float32", "a"), te.placeholder((depth, 24), "float32", "b")
    k = te.reduce_axis(depth, "k")
    c = te.compute((16, 24), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "c")
    s = Schedule(lower((c,), [a, b], "product"))
    assert len(between_prefetches(s, s.loops("c")[-1], Tile(8, 3, 4), tiles, CostConstants())) == loops
