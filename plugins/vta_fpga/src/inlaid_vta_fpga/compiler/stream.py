"""Lowering of the scheduled layers of a region to a single instruction stream."""

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
    """A VTA program. uops: micro-ops, at DRAM byte address `uops_at`. sources[i]: source operators of instruction i."""

    instructions: tuple[Instruction, ...]
    uops: Uops
    uops_at: int
    sources: tuple[str, ...]


def lower_region(layers: Sequence[Scheduled], config: Config, uops_at: int, *, slots: int = 2, serial: bool = False) -> Stream:
    """Lower all layers of a region in order to one stream that ends with FINISH.

    uops_at: DRAM byte address of the micro-ops, after all buffers of the layers. slots: number of SRAM slots through which the
    tiles of a buffer rotate; with 1, loads do not run ahead. serial: no two modules run at the same time (baseline for latency
    hiding). Raises `ScheduleError` for statements that VTA cannot execute and for tiles that do not fit.
    """
    tasks = by_first_use([task for layer in layers for task in expand(layer, config)])
    allocate(tasks, config, slots)
    steps: list[Step] = []
    for task in tasks:
        steps += task.plan.steps(task.numbers, task.tiles, task.source)
    steps, uops = insert_uop_loads(chunk_last_stores(steps, config), uops_at, config)
    instructions, sources = insert_tokens(steps, config, uops_at, serial)
    return Stream(tuple(instructions), uops, uops_at, tuple(sources))
