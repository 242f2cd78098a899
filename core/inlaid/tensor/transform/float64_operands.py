"""Marks programs in which float64 occurs only in intermediate results."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime.records import replace
from inlaid_runtime.types import dtype

INTERMEDIATE_FLOAT64 = ("float64", "intermediate")
"""Annotation of a program without float64 operands. Its kernels compute what would be float64 in float32 and integers instead."""


def mark_intermediate_float64(program: ir.LoopProgram) -> ir.LoopProgram:
    """Annotate a program if no parameter has float64 elements, with `INTERMEDIATE_FLOAT64`. The parameters must be the operator's
    operands and results, without scratch buffers, which may hold intermediate results."""
    if any(buffer.dtype is dtype("float64") for buffer in program.params):
        return program
    return replace(program, annotations=(*program.annotations, INTERMEDIATE_FLOAT64))
