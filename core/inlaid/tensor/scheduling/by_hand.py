"""Kernels that the user has already scheduled by hand."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_runtime.types import ROW_MAJOR

BY_HAND = "by_hand"
"""Key of the program annotation that marks a hand-scheduled kernel."""


def scheduled(program: ir.LoopProgram) -> ir.LoopProgram:
    """Mark a program as hand-scheduled, for `ByHandRule`."""
    return replace(program, annotations=(*program.annotations, (BY_HAND, True)))


class ByHandRule:
    """Accepts kernels marked by `scheduled`, with row-major parameters, and leaves them unchanged."""

    name = "by_hand"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer the kernel unchanged. Declines kernels without the mark."""
        if (BY_HAND, True) not in program.annotations:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), lambda source: source)
