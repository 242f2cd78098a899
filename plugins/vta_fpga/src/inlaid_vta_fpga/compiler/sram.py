"""Places of tiles in SRAM: where the longest unused elements are, so that loads run ahead of compute as far as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from inlaid import arith
from inlaid.errors import ScheduleError
from inlaid.memory.planner import Lifetime, plan
from inlaid.tensor import ir
from inlaid_vta_fpga.compiler.tasks import Task, Tile
from inlaid_vta_fpga.isa.config import Config, Memory

_SMALL = 8
"""Tiles below this share of a memory are small."""


def allocate(tasks: Sequence[Task], config: Config, slots: int) -> None:
    """Give each tile of the tasks a base.

    A tile takes elements that no tile in use has. The tiles of one buffer take turns in up to `slots` places, so that few distinct
    micro-op kernels are needed; a new place is where the last use is longest ago. Where that leaves no room, the memory
    planner gives each buffer one place, over the whole of the region.
    """
    tiles: dict[Memory, dict[Tile, None]] = {}
    for number, task in enumerate(tasks):
        for tile in task.tiles:
            tiles.setdefault(tile.memory, {})[tile] = None
            tile.first = number if tile.first < 0 else tile.first
            tile.last = number
    for memory, found in tiles.items():
        if not _allocate_slots(list(found), config.depth(memory), slots):
            _allocate_planned(list(found), memory, config.depth(memory))


def _allocate_slots(tiles: Sequence[Tile], depth: int, slots: int) -> bool:
    """Places in the order of first uses; False where one does not fit."""
    used = np.full(depth, -1, np.int64)  # the last use of each element, by tiles that have places
    places: dict[ir.Buffer, list[int]] = {}
    for tile in tiles:
        known = places.setdefault(tile.buffer, [])
        free = [(at, base) for base in known if (at := int(used[base : base + tile.size].max())) < tile.first]
        if not free or len(known) < slots:
            for several in range(
                1 if known else slots, 0, -1
            ):  # the first time neighbours for all turns, so that memory stays whole
                found = _longest_unused(used, tile, several * tile.size)
                if found is not None:
                    turns = [found[1] + turn * tile.size for turn in range(several)]
                    known += turns
                    free.append(found)
                    used[turns[0] : turns[-1] + tile.size] = tile.first - 1
                    break
        if not free:
            return False
        tile.base = min(free)[1]
        used[tile.base : tile.base + tile.size] = tile.last
    return True


def _longest_unused(used: np.ndarray[tuple[int], np.dtype[np.int64]], tile: Tile, size: int) -> tuple[int, int] | None:
    """The last use and the start of the run of elements that is unused for longest. Small tiles, which may stay for long, go to the
    end of memory."""
    start = len(used) - len(used) // _SMALL
    for low in [start, 0] if size <= len(used) - start else [0]:
        if size <= len(used) - low:
            last = np.lib.stride_tricks.sliding_window_view(used[low:], size).max(axis=1)
            base = int(last.argmin())
            if last[base] < tile.first:
                return int(last[base]), low + base
    return None


def _allocate_planned(tiles: Sequence[Tile], memory: Memory, depth: int) -> None:
    """One place for each buffer by the planner, or as many as tiles of it are in use at once."""
    lives: dict[tuple[ir.Buffer, int], tuple[int, int, int]] = {}
    turns: dict[Tile, tuple[ir.Buffer, int]] = {}
    for tile in tiles:
        turn = next(turn for turn in count() if lives.get((tile.buffer, turn), (0, 0, -1))[2] < tile.first)
        turns[tile] = key = tile.buffer, turn
        size, first, _ = lives.get(key, (0, tile.first, -1))
        lives[key] = max(size, tile.size), first, tile.last
    arena = plan([Lifetime(*life) for life in lives.values()], 1)
    found = arith.evaluate(arena.size, {})
    if found > depth:
        sizes = sorted(((size, buffer.name) for (buffer, _), (size, _, _) in lives.items()), reverse=True)
        names = ", ".join(f"{name} of {size}" for size, name in sizes[:4])
        expected = f"expected at most {depth} elements of {memory.name} in use at once"
        raise ScheduleError(f"{expected}, found {found}: {names}", remedy="use smaller tiles")
    bases = dict(zip(lives, (arith.evaluate(at, {}) for at in arena.offsets), strict=True))
    for tile in tiles:
        tile.base = bases[turns[tile]]
