"""Kernels of threads, held to the verifier of races."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.tensor import ir
from inlaid.tensor.analysis.races import check_races
from inlaid_runtime.errors import ScheduleError

DOUBT = "cannot prove"
"""What the verifier says of indices that it cannot compare."""


def check_race_free(program: ir.LoopProgram, offsets: Mapping[ir.Buffer, int]) -> None:
    """Raise `ScheduleError` for a race that is found. A doubt is left to the interpreter, which permutes threads."""
    try:
        check_races(program, offsets)
    except ScheduleError as error:
        if DOUBT not in error.message:
            raise
