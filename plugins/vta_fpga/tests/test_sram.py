"""Places of tiles: in range, apart while in use, and by turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype
from inlaid_vta_fpga.compiler.sram import allocate
from inlaid_vta_fpga.compiler.tasks import Plan, Task, Tile
from inlaid_vta_fpga.isa.config import Config, Memory

CONFIG = Config()


class Nothing:
    """A plan that is never lowered."""

    buffers = ()

    def bind(self, env: object) -> tuple[int, ...]:
        return ()

    def steps(self, *arguments: object) -> list[object]:
        return []


PLAN: Plan = Nothing()  # type: ignore[assignment]


def make_tiles(sizes: list[int]) -> list[ir.Buffer]:
    return [ir.Buffer(f"b{n}", (size, 16), dtype("int8"), "vta.inp") for n, size in enumerate(sizes)]


def make_tasks(buffers: list[ir.Buffer], order: list[int], life: int) -> list[Task]:
    """Tasks that each begin to use a tile, which stays in use for some tasks."""
    tiles = [Tile(buffers[n], Memory.INP, int(str(buffers[n].shape[0]))) for n in order]
    return [Task(PLAN, (), tuple(tiles[max(0, n - life) : n + 1]), "") for n in range(len(tiles))]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tiles_in_use_are_apart(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 600), min_size=1, max_size=5))
    order = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=30))
    tasks = make_tasks(make_tiles(sizes), order, data.draw(st.integers(0, 2)))
    try:
        allocate(tasks, CONFIG, data.draw(st.integers(1, 3)))
    except ScheduleError:
        assert sum(sizes) > 1000
        return
    for task in tasks:
        places = sorted((tile.base, tile.base + tile.size) for tile in task.tiles)
        assert places[0][0] >= 0
        assert places[-1][1] <= CONFIG.depth(Memory.INP)
        assert all(a[1] <= b[0] for a, b in pairwise(places))


def test_tiles_take_turns() -> None:
    """Two places for each buffer, side by side; the small one's at the end."""
    tasks = make_tasks(make_tiles([850, 3]), [1, 0, 0, 1, 0, 0], 0)
    allocate(tasks, CONFIG, 2)
    assert [task.tiles[0].base for task in tasks] == [1792, 0, 850, 1795, 0, 850]


def test_another_size_finds_room_for_all_turns() -> None:
    tasks = make_tasks(make_tiles([480, 1, 1000]), [0, 0, 0, 1, 2, 2, 2, 2], 0)
    allocate(tasks, CONFIG, 2)
    assert len({task.tiles[0].base for task in tasks[4:]}) == 2


def test_too_much_at_once_is_refused() -> None:
    with pytest.raises(
        ScheduleError, match="expected at most 2048 elements of INP in use at once, found 2100: b0 of 1500, b1 of 600"
    ):
        allocate(make_tasks(make_tiles([1500, 600]), [0, 1], 1), CONFIG, 2)
