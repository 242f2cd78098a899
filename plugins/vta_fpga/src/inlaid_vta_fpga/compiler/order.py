"""Reordering of adjacent loads by first use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from inlaid_vta_fpga.compiler.dma import Transfer
from inlaid_vta_fpga.compiler.tasks import Task, Tile
from inlaid_vta_fpga.isa.config import Memory


def by_first_use(tasks: Sequence[Task]) -> list[Task]:
    """Sort adjacent loads by first use, so that the loads of the first virtual thread precede the loads of the second."""
    reader: dict[Tile, int] = {}
    for number, task in enumerate(tasks):
        if not _loads(task):
            for tile in task.tiles:
                reader.setdefault(tile, number)
    ordered: list[Task] = []
    for loads, run in groupby(tasks, _loads):
        group = list(run)
        ordered += sorted(group, key=lambda task: reader.get(task.tiles[0], len(tasks))) if loads else group
    return ordered


def _loads(task: Task) -> bool:
    return isinstance(task.plan, Transfer) and task.plan.memory is not Memory.OUT
