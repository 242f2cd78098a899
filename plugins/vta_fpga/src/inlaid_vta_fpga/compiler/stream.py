"""From the scheduled layers of a region to one instruction stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlaid_vta_fpga.compiler.drain import chunk_last_stores
from inlaid_vta_fpga.compiler.expand import Scheduled, expand
from inlaid_vta_fpga.compiler.order import by_first_use
from inlaid_vta_fpga.compiler.sram import allocate
from inlaid_vta_fpga.compiler.tasks import Step
from inlaid_vta_fpga.compiler.tokens import insert_tokens
from inlaid_vta_fpga.compiler.uops import insert_uop_loads
from inlaid_vta_fpga.isa.config import Config
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
    tasks = by_first_use([task for layer in layers for task in expand(layer, config)])
    allocate(tasks, config, slots)
    steps: list[Step] = []
    for task in tasks:
        steps += task.plan.steps(task.numbers, task.tiles, task.source)
    steps, uops = insert_uop_loads(chunk_last_stores(steps, config), uops_at, config)
    instructions, sources = insert_tokens(steps, config, uops_at, serial)
    return Stream(tuple(instructions), uops, uops_at, tuple(sources))
