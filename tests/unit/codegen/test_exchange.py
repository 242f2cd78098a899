"""Reads of a subgroup's registers as shuffles: where these stand, and what is refused."""

from __future__ import annotations

import pytest

from inlaid.codegen.threads.exchange import shuffled
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid_runtime.errors import Unsupported

HEAD = """
program f(x: int32[4, 8]) -> (y: int32[4, 8]):
  alloc p: int32[4, 8] in "subgroup"
  alloc q: int32[4] in "subgroup"
  for r in 4, thread, "threadIdx.y":
    for t in 8, thread, "threadIdx.x":
"""
BOTH = """
      p[r, t] = x[r, t]
      barrier over "threadIdx.x"
      if index(bool, (t == 0)):
        q[r] = (p[r, t] + p[r, 5])
        q[r] = (q[r] + p[r, (t + 6)])
      barrier
      for k in 2:
        y[r, t] = (q[r] + p[r, ((t + 1) % 8)])
"""
WRITTEN = """\
program f(x: int32[4, 8]) -> (y: int32[4, 8]):
  for r in 4, thread, "threadIdx.y":
    for t in 8, thread, "threadIdx.x":
      alloc p: int32[] in "register"
      alloc q: int32[] in "register"
      alloc p_of: int32[] in "register"
      alloc p_of_1: int32[] in "register"
      alloc q_of: int32[] in "register"
      alloc p_of_2: int32[] in "register"
      p[] = int32(0)
      q[] = int32(0)
      p[] = x[r, t]
      p_of[] = call(int32, "shuffle", p[], index(int32, 5), int32(8))
      p_of_1[] = call(int32, "shuffle", p[], index(int32, (t + 6)), int32(8))
      if index(bool, (t == 0)):
        q[] = (p[] + p_of[])
        q[] = (q[] + p_of_1[])
      barrier
      q_of[] = call(int32, "shuffle", q[], index(int32, 0), int32(8))
      p_of_2[] = call(int32, "shuffle", p[], index(int32, ((t + 1) % 8)), int32(8))
      for k in 2:
        y[r, t] = (q_of[] + p_of_2[])
"""


def test_shuffles_stand_at_barriers():
    assert f"{show(shuffled(parse(HEAD + BOTH)))}\n" == WRITTEN


def test_without_subgroups_it_is_the_same_program():
    program = parse(WRITTEN)
    assert shuffled(program) is program


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("p[r, t] = int32(1)\n      p[r, ((t * -1) + 7)] = int32(2)", "must store adjacent elements"),
        (
            "p[r, t] = int32(1)\n      barrier\n      p[((r * -1) + 3), t] = int32(2)",
            "expected one element for each thread, found several",
        ),
        ("q[r] = int32(1)", "adjacent threads must store adjacent elements, or only the first thread must store"),
        ("p[r, t] = int32(1)\n      barrier\n      y[r, t] = p[((r * -1) + 3), t]", "found thread"),
        ("if index(bool, (t == 0)):\n        q[r] = int32(1)\n      barrier\n      y[r, t] = q[3]", "found thread"),
        ("if index(bool, (t == 0)):\n        q[1] = int32(1)\n      barrier\n      y[r, t] = q[3]", "found thread 2"),
        ("p[r, t] = int32(1)\n      y[r, t] = p[r, 3]", "expected a barrier before"),
        (
            "for k in 2:\n        y[r, t] = p[r, 3]\n        barrier\n        p[r, t] = int32(1)",
            "expected a barrier before",
        ),
    ],
)
def test_what_is_refused(body, problem):
    with pytest.raises(Unsupported, match=problem):
        shuffled(parse(f"{HEAD}      {body}"))
