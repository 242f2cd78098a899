"""Vectors that may be cut short: one question for all lanes, and single lanes only where the answer is no."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid.tensor.transform.lane_guards import hoist_lane_guards
from inlaid_runtime import arith

TEXT = """
program f(x: float32[n], a: int64[]) -> (y: float32[n]):
  size n: 0..
  for t in ((n + 3) // 4), thread, "threadIdx.x":
    for v in 4, vectorized:
      if index(bool, {}):
        y[((t * 4) + v)] = (x[((t * 4) + v)] + 1.0)
"""
N = arith.SizeVar("n", 0)


def test_asks_once() -> None:
    program = parse(TEXT.format("(((t * 4) + v) < n)"))
    split = hoist_lane_guards(program)
    assert show(split).splitlines()[3:] == [
        "    if index(bool, (((t * 4) + 3) < n)):",
        "      for v in 4, vectorized:",
        "        y[((t * 4) + v)] = (x[((t * 4) + v)] + 1.0)",
        "    else:",
        "      for v in 4:",
        "        if index(bool, (((t * 4) + v) < n)):",
        "          y[((t * 4) + v)] = (x[((t * 4) + v)] + 1.0)",
    ]
    for count in range(10):
        x = np.arange(count, dtype=np.float32)
        for variant in (program, split):
            np.testing.assert_array_equal(run(variant, [x, np.array(0)])[0], x + 1)


@pytest.mark.parametrize("condition", ["(t < n)", "(5 < ((t * 4) + v))", "(((t * 4) + v) < checked(a[], 0, 9))", "((v % 2) == 0)"])
def test_leaves_what_the_last_lane_does_not_decide(condition: str) -> None:
    program = parse(TEXT.format(condition))
    assert show(hoist_lane_guards(program)) == show(program)


def test_registers_stay_vectors() -> None:
    """A lane of a register is no element of its own, so what is cut short keeps its lanes."""
    text = TEXT.replace(
        "    for v in 4", '    alloc r: float32[4] in "register"\n    for u in 4, vectorized:\n      r[u] = x[0]\n    for v in 4'
    )
    program = parse(text.format("(((t * 4) + v) < n)").replace("(x[((t * 4) + v)] + 1.0)", "(r[v] + 1.0)"))
    split = hoist_lane_guards(program)
    assert "for v in 4:" not in show(split) and show(split).count("for v in 4, vectorized") == 2
    x = np.arange(1, 7, dtype=np.float32)
    np.testing.assert_array_equal(run(split, [x, np.array(0)])[0], np.full(6, 2))
