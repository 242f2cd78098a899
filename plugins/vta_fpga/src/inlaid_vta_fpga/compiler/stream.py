"""From the scheduled layers of a region to one instruction stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from inlaid_vta_fpga.compiler.dma import Transfer
from inlaid_vta_fpga.compiler.expand import Scheduled, expand
from inlaid_vta_fpga.compiler.sram import allocate
from inlaid_vta_fpga.compiler.tasks import Step, Task, Tile
from inlaid_vta_fpga.compiler.tokens import ordered
from inlaid_vta_fpga.compiler.uops import resident
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Instruction, Uops

__all__ = ["Scheduled", "Stream", "lower_region"]


@dataclass(frozen=True)
class Stream:
    """A program of VTA: `uops` lie at byte address `uops_at` in DRAM; `sources[i]` names the operators of instruction i."""

    instructions: tuple[Instruction, ...]
    uops: Uops
    uops_at: int
    sources: tuple[str, ...]


def lower_region(layers: Sequence[Scheduled], config: Config, uops_at: int, *, slots: int = 2, serial: bool = False) -> Stream:
    """The stream of a region: all layers in order, up to FINISH.

    `uops_at`: where micro-ops go in DRAM, behind all buffers of the layers. `slots`: places in SRAM that the tiles of one buffer
    take turns in; 1 leaves no room for loads to run ahead. `serial`: modules take turns, the baseline for latency hiding. Raises
    `ScheduleError` for what VTA has no instruction for, and for tiles that do not fit.
    """
    tasks: list[Task] = []
    for layer in layers:
        found = expand(layer, config)
        for tile in {tile for task in found for tile in task.tiles}:
            tile.first += len(tasks)
            tile.last += len(tasks)
        tasks += found
    tasks = by_first_use(tasks)
    allocate(tasks, config, slots)
    steps: list[Step] = []
    for task in tasks:
        steps += task.plan.steps(task.numbers, task.tiles, task.source)
    steps, uops = resident(steps, uops_at, config)
    instructions, sources = ordered(steps, config, uops_at, serial)
    return Stream(tuple(instructions), uops, uops_at, tuple(sources))


def by_first_use(tasks: Sequence[Task]) -> list[Task]:
    """Tasks with adjacent loads in the order in which other tasks need them: all that the first of two virtual threads waits for
    comes before what the second one does. Tiles' uses are counted anew."""
    reader: dict[Tile, int] = {}
    for number, task in enumerate(tasks):
        if not _loads(task):
            for tile in task.tiles:
                reader.setdefault(tile, number)
    found: list[Task] = []
    for loads, run in groupby(tasks, _loads):
        group = list(run)
        found += sorted(group, key=lambda task: reader.get(task.tiles[0], len(tasks))) if loads else group
    for tile in reader:
        tile.first = -1
    for number, task in enumerate(found):
        for tile in task.tiles:
            tile.first = number if tile.first < 0 else tile.first
            tile.last = number
    return found


def _loads(task: Task) -> bool:
    return isinstance(task.plan, Transfer) and task.plan.memory is not Memory.OUT
