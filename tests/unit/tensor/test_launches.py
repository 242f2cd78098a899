"""Programs split into host and kernels: the host runs, launches in its order, grids at the sizes that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor.analysis.races import check_races
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid.tensor.transform.launches import SplitProgram, split_launches
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import MemoryScope

from .fork_join import NAMED, SCOPES, named_case

N = arith.SizeVar("n", 1, 64)
SEVERAL = """
program norm(x: float32[(2 * n)]) -> (y: float32[(2 * n)], total: float32[]):
  size n: 1..64
  alloc d: float32[(2 * n)]
  for b in (((2 * n) + 7) // 8), thread, "blockIdx.x":
    alloc s: float32[8] in "shared"
    for t in 8, thread, "threadIdx.x":
      if index(bool, (((b * 8) + t) < (2 * n))):
        s[t] = x[((b * 8) + t)]
    for u in 8, thread, "threadIdx.x":
      if index(bool, (((b * 8) + u) < (2 * n))):
        d[((b * 8) + u)] = (s[u] + s[0])
  total[] = float32(0.0)
  for i in (2 * n):
    total[] = (total[] + d[i])
  for step in 3:
    if index(bool, (step < n)):
      for c in (n + (step * -1)), thread, "blockIdx.x":
        for v in 2, thread, "threadIdx.x":
          d[((2 * c) + v)] = (d[((2 * c) + v)] + cast(float32, index(int64, step)))
  for e in n, thread, "blockIdx.x":
    for w in 2, thread, "threadIdx.x":
      y[((2 * e) + w)] = (d[((2 * e) + w)] - total[])
"""


def kernel_programs(split: SplitProgram) -> dict:
    return {name: kernel.program for name, kernel in split.kernels.items()}


def test_several_launches() -> None:
    """Sizes and host loops give the grid; buffers of the device stay between launches."""
    program = parse(SEVERAL)
    split = split_launches(program, SCOPES)
    assert show(split.host).splitlines()[2:] == [
        "  alloc d: float32[(n * 2)]",
        '  intrinsic "norm_0" on read x[0 +: (n * 2)], update d[0 +: (n * 2)]',
        '  intrinsic "norm_1" on read d[0 +: (n * 2)], update total[]',
        "  for step in 3:",
        "    if index(bool, (step < n)):",
        '      intrinsic "norm_2" on update d[0 +: (n * 2)] with index(int64, step)',
        '  intrinsic "norm_3" on read d[0 +: (n * 2)], read total[], write y[0 +: (n * 2)]',
    ]
    first, alone, steps, last = split.kernels.values()
    assert [arith.evaluate(first.grid["blockIdx.x"], {N: n}) for n in (1, 4, 5)] == [1, 1, 2]
    assert first.threads == {"threadIdx.x": arith.Const(8)} and {buffer.name for buffer in first.offsets} == {"s"}
    assert alone.grid == alone.threads == {} and last.grid == {"blockIdx.x": N}
    (step,) = arith.free_vars(steps.grid["blockIdx.x"]) - {N}
    assert arith.evaluate(steps.grid["blockIdx.x"], {N: 5, step: 2}) == 3
    for kernel in split.kernels.values():
        verify(kernel.program)
        check_races(kernel.program, kernel.offsets)
    for n in (1, 3, 8):
        x = np.arange(2 * n, dtype=np.float32)
        for left, right in zip(
            run(program, [x], {N: n}), run(split.host, [x], {N: n}, kernel_programs(split), seed=n), strict=True
        ):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", NAMED)
def test_one_launch(name: str) -> None:
    program, inputs, right, _ = named_case(name)
    split = split_launches(program, SCOPES)
    np.testing.assert_array_equal(run(split.host, inputs, intrinsics=kernel_programs(split))[0], right)
    for kernel in split.kernels.values():
        check_races(kernel.program, kernel.offsets)


def test_places_are_those_of_the_phases() -> None:
    """Buffers of different phases share bytes also where one nest of threads runs all phases."""
    text = """
program phases(x: int32[8]) -> (y: int32[8]):
  for b in 1, thread, "blockIdx.x":
    alloc s: int32[8] in "shared"
    alloc t: int32[8] in "shared"
    for i in 8, thread, "threadIdx.x":
      s[i] = x[i]
    for j in 8, thread, "threadIdx.x":
      y[j] = s[(7 + (j * -1))]
    for k in 8, thread, "threadIdx.x":
      t[k] = y[k]
    for m in 8, thread, "threadIdx.x":
      y[m] = t[(7 + (m * -1))]
"""
    (kernel,) = split_launches(parse(text), (MemoryScope("shared", "block", 32),)).kernels.values()
    assert set(kernel.offsets.values()) == {0} and len(kernel.offsets) == 2
    with pytest.raises(ScheduleError, match="expected at most 31 bytes in use at once, found 32"):
        split_launches(parse(text), (MemoryScope("shared", "block", 31),))


def test_parts_of_threads_fit_their_scope() -> None:
    """What counts is the part that a thread has."""
    text = """
program own(x: int32[8]) -> (y: int32[8]):
  for b in 1, thread, "blockIdx.x":
    alloc r: int32[8, 2] in "local"
    for i in 8, thread, "threadIdx.x":
      r[i, 1] = x[i]
    for j in 8, thread, "threadIdx.x":
      y[j] = r[j, 1]
"""
    (kernel,) = split_launches(parse(text), (MemoryScope("local", "thread", 8),)).kernels.values()
    assert [buffer.shape for buffer in kernel.offsets] == [(1, 2)]
    with pytest.raises(ScheduleError, match="expected at most 7 bytes in use at once, found 8"):
        split_launches(parse(text), (MemoryScope("local", "thread", 7),))


HEAD = "program f(x: int64[8]) -> (y: int64[8]):\n"
NEST = 'for {0} in 8, thread, "threadIdx.x":\n      y[{0}] = x[{0}]\n'


@pytest.mark.parametrize(
    "control",
    [
        "  if (x[0] < 3):\n    ",
        "  while (y[0] < 3):\n    ",
        "  let m = x[0] in 0..7:\n    ",
        "  for k in checked(x[0], 0, 7):\n    ",
    ],
)
def test_data_decides_nothing_on_the_host(control: str) -> None:
    with pytest.raises(ScheduleError, match="a launch must not depend on data; move the branch or loop inside the grid"):
        split_launches(parse(HEAD + control + NEST.format("t")), SCOPES)


def test_values_of_the_host_are_arguments() -> None:
    text = (
        HEAD
        + "  let m = index(int64, 3) in 0..7:\n    "
        + NEST.format("t").replace("y[t] = x[t]", "y[t] = (x[t] + index(int64, m))")
    )
    split = split_launches(parse(text), SCOPES)
    x = np.arange(8, dtype=np.int64)
    np.testing.assert_array_equal(run(split.host, [x], intrinsics=kernel_programs(split))[0], x + 3)


def test_sizes_are_known_before_a_launch() -> None:
    text = """
program counts(x: int64[4]) -> (y: int64[?m], m: int64[]):
  size ?m: 0..4 = m
  m[] = x[0]
  for i in ?m, thread, "threadIdx.x":
    y[i] = x[i]
"""
    with pytest.raises(ScheduleError, match=r"must depend on sizes known before it, found \?m, which the program computes"):
        split_launches(parse(text), SCOPES)
