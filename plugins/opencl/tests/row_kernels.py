"""Row reductions in which threads of a subgroup exchange registers."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.schedules.threads.interpreter_checks import SHUFFLES, first_offer, kernel

from inlaid import ops
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.tensor import ir
from inlaid_runtime import arith

LANES = 8
N, M = arith.SizeVar("n", 1, 64), arith.SizeVar("m", 1, 512)
CASES = {
    "sum": lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False),
    "max": lambda x: ops.reduce_max(x, axes=(1,), keepdims=True),
    "argmax": lambda x: ops.argmax(x, axis=1),
    "softmax": lambda x: ops.softmax(x, axis=1),
    "whole": lambda x: ops.reduce_sum(x, axes=(0, 1), keepdims=False),
}
KERNELS = (
    ("sum", (5, 100), "float32", LANES),
    ("sum", (6, 64), "uint8", 32),
    ("max", (9, 63), "int16", 2),
    ("max", (N, 64), "float64", 32),
    ("argmax", (N, M), "float32", 4),
    ("softmax", (7, 130), "float16", 32),
    ("softmax", (N, M), "float32", LANES),
    ("whole", (8, 16), "int64", 32),
)
"""Operators, shapes, element types, and the threads that share a row."""


def row_programs() -> Iterator[tuple[ir.LoopProgram, ir.LoopProgram]]:
    """Yield each kernel of `KERNELS`, unscheduled and finished."""
    for name, shape, dtype, team in KERNELS:
        program = kernel(CASES[name], (shape, dtype))
        _, offer = first_offer(program, SHUFFLES, ThreadRowsRule(), team=team, pieces=1)
        yield program, finish(offer.schedule(program), able=SHUFFLES)
