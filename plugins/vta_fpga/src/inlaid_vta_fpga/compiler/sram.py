"""Allocation of tiles in SRAM. Least recently used elements are reused first, so that loads can run far ahead of compute."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.memory.planner import Lifetime, plan
from inlaid_vta_fpga.compiler.tasks import Task, Tile
from inlaid_vta_fpga.isa.config import Config, Memory

_SMALL = 8
"""A tile of less than 1/_SMALL of a memory is small."""


def allocate(tasks: Sequence[Task], config: Config, slots: int) -> None:
    """Allocate the tiles of the tasks: set the `base` of each tile.

    Tiles that are live at the same time do not overlap. The tiles of a buffer rotate through up to `slots` slots, which keeps the
    number of distinct micro-op kernels small. A new slot takes the least recently used elements. If the tiles do not fit, the
    memory planner instead allocates slots of buffers for the whole region.
    """
    tiles: dict[Memory, dict[Tile, None]] = {}
    for number, task in enumerate(tasks):
        for tile in task.tiles:
            tiles.setdefault(tile.memory, {})[tile] = None
            tile.first = number if tile.first < 0 else tile.first
            tile.last = number
    for memory, memory_tiles in tiles.items():
        if not _allocate_slots(list(memory_tiles), config.depth(memory), slots):
            _allocate_planned(list(memory_tiles), memory, config.depth(memory))


def _allocate_slots(tiles: Sequence[Tile], depth: int, slots: int) -> bool:
    """Allocate slots of tiles in order of first use. Returns False if a tile does not fit."""
    last_uses = np.full(depth, -1, np.int64)  # last use of each element by the tiles allocated so far
    bases_by_buffer: dict[ir.Buffer, list[int]] = {}
    for tile in tiles:
        slot_bases = bases_by_buffer.setdefault(tile.buffer, [])
        free = [(last_use, base) for base in slot_bases if (last_use := int(last_uses[base : base + tile.size].max())) < tile.first]
        if not free or len(slot_bases) < slots:
            for slot_count in range(
                1 if slot_bases else slots, 0, -1
            ):  # first try adjacent slots for the whole buffer, which avoids fragmentation
                run = _longest_unused(last_uses, tile, slot_count * tile.size)
                if run is not None:
                    new_bases = [run[1] + slot * tile.size for slot in range(slot_count)]
                    slot_bases += new_bases
                    free.append(run)
                    last_uses[new_bases[0] : new_bases[-1] + tile.size] = tile.first - 1
                    break
        if not free:
            return False
        tile.base = min(free)[1]
        last_uses[tile.base : tile.base + tile.size] = tile.last
    return True


def _longest_unused(last_uses: np.ndarray[tuple[int], np.dtype[np.int64]], tile: Tile, size: int) -> tuple[int, int] | None:
    """Return the last use and the start of the least recently used run of `size` elements; None if no run is free. Small tiles tend
    to live long, so they are allocated at the end of memory if possible."""
    start = len(last_uses) - len(last_uses) // _SMALL
    for low in [start, 0] if size <= len(last_uses) - start else [0]:
        if size <= len(last_uses) - low:
            last = np.lib.stride_tricks.sliding_window_view(last_uses[low:], size).max(axis=1)
            base = int(last.argmin())
            if last[base] < tile.first:
                return int(last[base]), low + base
    return None


def _allocate_planned(tiles: Sequence[Tile], memory: Memory, depth: int) -> None:
    """Let the memory planner allocate the slots. A buffer gets as many slots as it has tiles that are live at the same time."""
    lifetimes: dict[tuple[ir.Buffer, int], tuple[int, int, int]] = {}
    slots: dict[Tile, tuple[ir.Buffer, int]] = {}
    for tile in tiles:
        slot = next(slot for slot in count() if lifetimes.get((tile.buffer, slot), (0, 0, -1))[2] < tile.first)
        slots[tile] = key = tile.buffer, slot
        size, first, _ = lifetimes.get(key, (0, tile.first, -1))
        lifetimes[key] = max(size, tile.size), first, tile.last
    arena = plan([Lifetime(*life) for life in lifetimes.values()], 1)
    total = arith.evaluate(arena.size, {})
    if total > depth:
        sizes = sorted(((size, buffer.name) for (buffer, _), (size, _, _) in lifetimes.items()), reverse=True)
        names = ", ".join(f"{name} of {size}" for size, name in sizes[:4])
        expected = f"expected at most {depth} elements of {memory.name} in use at once"
        raise ScheduleError(f"{expected}, found {total}: {names}", remedy="use smaller tiles")
    bases = dict(zip(lifetimes, (arith.evaluate(at, {}) for at in arena.offsets), strict=True))
    for tile in tiles:
        tile.base = bases[slots[tile]]
