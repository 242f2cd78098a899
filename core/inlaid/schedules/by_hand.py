"""Kernels that whoever compiles them has scheduled already."""

from __future__ import annotations

from dataclasses import replace

from inlaid.schedules.rule import InputInfo, KernelContext, Offer
from inlaid.tensor import ir
from inlaid.types import ROW_MAJOR

BY_HAND = "by_hand"
"""Key of the program annotation that says so."""


def scheduled(program: ir.LoopProgram) -> ir.LoopProgram:
    """The program, marked as one that `ByHandRule` takes as it is."""
    return replace(program, annotations=(*program.annotations, (BY_HAND, True)))


class ByHandRule:
    """Takes kernels that are marked by `scheduled`, over row-major parameters, and leaves them as they are."""

    name = "by_hand"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> Offer | None:
        """Declines all others."""
        if (BY_HAND, True) not in program.annotations:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), lambda source: source)
