"""Rows are shared out to threads in the same way in every kernel."""

from __future__ import annotations

import pytest

from inlaid.schedules.shape import axis_loops, loop_extent, share_rows
from inlaid.tensor import ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.schedule import Schedule


def _parallel_extent(rows: int, threads: int) -> tuple[int, int]:
    """The extents of the parallel loop and of the loop over rows inside of it, 1 for none."""
    x = te.placeholder((2, 3, rows, 5), "float32", "x")
    y = te.compute(x.shape, lambda n, c, h, w: x[n, c, h, w] + 1.0, "y")
    s = Schedule(lower((y,), [x], "add"))
    n, c, h, _ = axis_loops(s, "y")
    share_rows(s, [n], h, [c], threads)
    loops = [stmt for stmt in ir.walk_stmts(s.program.body) if isinstance(stmt, ir.For)]
    assert [loop.kind for loop in loops[1:]] == [ir.ForKind.SERIAL] * (len(loops) - 1)
    assert loops[0].kind is ir.ForKind.PARALLEL
    extents = [int(repr(loop_extent(s, loop.var))) for loop in loops]
    return extents[0], extents[1] if len(extents) == 3 else 1


@pytest.mark.parametrize(
    ("rows", "threads", "expected"),
    [(8, 2, (2 * 2 * 3, 4)), (6, 3, (2 * 3 * 3, 2)), (8, 0, (2 * 4 * 3, 2)), (7, 2, (2 * 3 * 7, 1))],
)
def test_runs_of_rows_are_outside_of_channels(rows: int, threads: int, expected: tuple[int, int]) -> None:
    assert _parallel_extent(rows, threads) == expected
