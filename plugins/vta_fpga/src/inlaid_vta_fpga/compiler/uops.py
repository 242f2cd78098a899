"""Micro-op kernels: one copy of each in DRAM, loaded where it is not resident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlaid_vta_fpga.compiler.fold import MOST_UOPS
from inlaid_vta_fpga.compiler.tasks import Step
from inlaid_vta_fpga.isa.config import UOP_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Gemm, Load, Uops

MOST_RESIDENT = 2048
"""Micro-op addresses that every core has: the Chisel core has no more."""


@dataclass(eq=False)
class _Page:
    """Kernels that are loaded together: `start` in DRAM and `base` in SRAM, in micro-ops; no base where they are not resident."""

    start: int
    size: int = 0
    base: int = -1


def resident(steps: Sequence[Step], address: int, config: Config) -> tuple[list[Step], Uops]:
    """The steps with LOAD UOP where a kernel is not resident, and the micro-ops that lie at a byte address in DRAM.

    Equal kernels share their micro-ops. Kernels of one source that are met for the first time make up a page, which one LOAD
    brings; pages take turns in the memory as in a ring.
    """
    room = min(MOST_RESIDENT, config.depth(Memory.UOP))
    pages, where, words = _pages(steps, min(MOST_UOPS, room))
    found: list[Step] = []
    live: list[_Page] = []
    end = 0
    for step in steps:
        if step.kernel is None:
            found.append(step)
            continue
        page, offset = where[step.kernel.tobytes()]
        if page.base < 0:
            end = 0 if end + page.size > room else end
            for other in [item for item in live if item.base < end + page.size and end < item.base + item.size]:
                other.base = -1
                live.remove(other)
            page.base, end = end, end + page.size
            live.append(page)
            place = page.base, address // UOP_BYTES + page.start, 1, page.size, page.size
            found.append(Step(Load(Memory.UOP, *place), step.source))
        instruction = step.instruction
        assert isinstance(instruction, (Gemm, Alu))
        begin = page.base + offset
        step.instruction = replace(instruction, uop_begin=begin, uop_end=begin + len(step.kernel))
        found.append(step)
    del pages
    return found, np.concatenate(words) if words else np.zeros(0, np.uint32)


def _pages(steps: Sequence[Step], most: int) -> tuple[list[_Page], dict[bytes, tuple[_Page, int]], list[Uops]]:
    """The pages, the page and the place in it of each kernel, and the micro-ops in order."""
    pages: list[_Page] = []
    where: dict[bytes, tuple[_Page, int]] = {}
    words: list[Uops] = []
    source = None
    for step in steps:
        if step.kernel is None or step.kernel.tobytes() in where:
            continue
        size = len(step.kernel)
        if not pages or source != step.source or pages[-1].size + size > most:
            pages.append(_Page(sum(page.size for page in pages[-1:]) + (pages[-1].start if pages else 0)))
        source = step.source
        where[step.kernel.tobytes()] = pages[-1], pages[-1].size
        pages[-1].size += size
        words.append(step.kernel)
    return pages, where, words
