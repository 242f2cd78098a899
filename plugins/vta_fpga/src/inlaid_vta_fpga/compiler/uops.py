"""Placement of micro-op kernels. DRAM holds one copy of each kernel. A LOAD precedes each use of a kernel that is not in SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlaid_vta_fpga.compiler.micro import resident_uops
from inlaid_vta_fpga.compiler.tasks import Step
from inlaid_vta_fpga.isa.config import UOP_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Gemm, Load, Uops


@dataclass(eq=False)
class _Page:
    """Kernels that one LOAD copies to SRAM. start, base: first micro-op in DRAM and in SRAM; base is -1 if not resident."""

    start: int
    size: int = 0
    base: int = -1


def insert_uop_loads(steps: Sequence[Step], address: int, config: Config) -> tuple[list[Step], Uops]:
    """Insert a LOAD UOP before each step whose kernel is not resident. Returns the steps and the micro-ops at DRAM `address`.

    Equal kernels share their micro-ops. Consecutive new kernels of the same source form a page, loaded by one LOAD. The UOP memory
    is used as a ring buffer of pages.
    """
    capacity = resident_uops(config)
    page_by_kernel, words = _pages(steps, max(1, capacity // 2))
    result: list[Step] = []
    resident: list[_Page] = []
    end = 0
    for step in steps:
        if isinstance(step.instruction, (Gemm, Alu)) and step.kernel is not None:
            page, offset = page_by_kernel[step.kernel.tobytes()]
            if page.base < 0:
                start = 0 if end + page.size > capacity else end
                end = start + page.size
                for other in resident:
                    if other.base < end and start < other.base + other.size:
                        other.base = -1
                page.base = start
                resident = [*(other for other in resident if other.base >= 0), page]
                load = Load(Memory.UOP, start, address // UOP_BYTES + page.start, 1, page.size, page.size)
                result.append(Step(load, step.source))
            begin = page.base + offset
            step.instruction = replace(step.instruction, uop_begin=begin, uop_end=begin + len(step.kernel))
        result.append(step)
    return result, words


def _pages(steps: Sequence[Step], capacity: int) -> tuple[dict[bytes, tuple[_Page, int]], Uops]:
    """Return the page of each kernel with the offset of the kernel in it, and all micro-ops in page order."""
    page_by_kernel: dict[bytes, tuple[_Page, int]] = {}
    words: list[Uops] = []
    page, source = _Page(0), None
    for step in steps:
        if step.kernel is None or step.kernel.tobytes() in page_by_kernel:
            continue
        if source != step.source or page.size + len(step.kernel) > capacity:
            page, source = _Page(page.start + page.size), step.source
        page_by_kernel[step.kernel.tobytes()] = page, page.size
        page.size += len(step.kernel)
        words.append(step.kernel)
    return page_by_kernel, np.concatenate(words) if words else np.zeros(0, np.uint32)
