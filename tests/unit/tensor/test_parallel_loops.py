"""Loops of loop programs that no schedule knows: those whose iterations are independent run in parallel, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import ir
from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid.tensor.transform.parallel_loops import parallel_loops

HEAD = "program f(x: int32[6, 8], p: int64[6]) -> (y: int32[10, 8]):\n"
CLEAR = "  for a in 10:\n    for b in 8:\n      y[a, b] = int32(0)\n"
SCATTER = """
  for i in 6:
    let at = p[i] in 0..9:
      for j in 8:
        y[at, j] = (y[at, j] + x[i, j])
"""
TEMPORARY = """
  for i in 6:
    alloc t: int32[8]
    for j in 8:
      t[j] = (x[i, j] * 2)
    for k in 8:
      y[i, k] = t[(7 + (k * -1))]
"""


def program(text: str) -> ir.LoopProgram:
    return parse(HEAD + CLEAR + text.removeprefix("\n"))


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(-9, 9, (6, 8)).astype(np.int32), random.integers(0, 10, 6)]


def parallel(parallel_kernel: ir.LoopProgram) -> list[str]:
    loops = [stmt for stmt in ir.walk_stmts(parallel_kernel.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL]
    return [f"{loop.var} in {loop.extent}" for loop in loops]


@pytest.mark.parametrize(("text", "loops"), [(SCATTER, ["a_b in 80", "j in 8"]), (TEMPORARY, ["a_b in 80", "i in 6"])])
def test_independent_loops_run_outside(text: str, loops: list[str]) -> None:
    """What is looked up is looked up in each; updates of one element keep their order."""
    source = program(text)
    parallel_kernel = parallel_loops(source)
    assert parallel(parallel_kernel) == loops
    for seed in range(3):
        np.testing.assert_array_equal(run(parallel_kernel, inputs(), seed=seed)[0], run(source, inputs())[0])


@pytest.mark.parametrize(
    "text",
    [
        "  for i in 6:\n    let at = p[i] in 0..9:\n      y[at, 0] = x[i, 0]\n",
        "  for i in 6:\n    y[(i + 1), 0] = (y[i, 0] + 1)\n",
        "  for i in 6:\n    y[(i // 2), 0] = x[i, 0]\n",
        "  for i in 6:\n    y[i, 0] = y[0, 0]\n",
        "  for i in 6:\n    y[0, 0] = x[i, 0]\n",
        "  alloc t: int32[1]\n  for i in 6:\n    t[0] = x[i, 0]\n    y[i, 0] = t[0]\n",
    ],
)
def test_dependent_loops_stay(text: str) -> None:
    assert parallel(parallel_loops(program(text))) == ["a_b in 80"]


def test_threads_stay() -> None:
    source = parse(HEAD + '  for a in 10, thread, "threadIdx.x":\n    for b in 8:\n      y[a, b] = int32(0)\n')
    assert show(parallel_loops(source)) == show(source)
