"""The interpreter runs the threads of a phase in no order of use to a program: races give wrong answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import full_region
from inlaid.tensor.interp import run
from inlaid.tensor.interp.thread_order import ThreadOrder
from inlaid.tensor.parse import parse
from inlaid.tensor.primitives import TensorIntrin

SEEDS = range(20)
AXES = ("threadIdx.x", "blockIdx.x")


def neighbors(count: int, axis: str, step: int, phases: bool) -> ir.LoopProgram:
    """Each thread stores twice its element, and reads what the thread `step` further on stores: in the same phase, or the next."""
    boundary = f'\n  for u in {count}, thread, "{axis}":' if phases else ""
    reader = "u" if phases else "t"
    return parse(f"""
program neighbors(x: float32[{count}]) -> (y: float32[{count}], s: float32[{count + 2}]):
  s[0] = float32(0.0)
  s[{count + 1}] = float32(0.0)
  for t in {count}, thread, "{axis}":
    s[(t + 1)] = (x[t] * 2.0){boundary}
    y[{reader}] = s[({reader} + {1 + step})]
""")


def right(count: int, step: int) -> np.ndarray:
    padded = np.zeros(count + 2, np.float32)
    padded[1:-1] = 2 * make_input(count)
    return padded[1 + step :][:count] if step >= 0 else padded[:count]


def make_input(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.float32)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("count", [3, 4, 32])
def test_a_race_is_wrong_in_whichever_direction(count: int, step: int, axis: str) -> None:
    """With every seed, the default one among them."""
    racing = neighbors(count, axis, step, phases=False)
    for seed in SEEDS:
        assert not np.array_equal(run(racing, [make_input(count)], seed=seed)[0], right(count, step))
    assert np.array_equal(run(racing, [make_input(count)])[0], run(racing, [make_input(count)], seed=0)[0], equal_nan=True)


@pytest.mark.parametrize("step", [-1, 1])
def test_two_threads_race_with_some_seeds(step: int) -> None:
    racing = neighbors(2, "threadIdx.x", step, phases=False)
    verdicts = [np.array_equal(run(racing, [make_input(2)], seed=seed)[0], right(2, step)) for seed in SEEDS]
    assert any(verdicts) and not all(verdicts)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("count", [2, 3, 32])
def test_phases_keep_their_order(count: int, step: int, axis: str) -> None:
    program = neighbors(count, axis, step, phases=True)
    for seed in SEEDS:
        np.testing.assert_array_equal(run(program, [make_input(count)], seed=seed)[0], right(count, step))


@pytest.mark.parametrize("kind", ['thread, "threadIdx.x"', "parallel"])
def test_iterations_that_fold_into_one_place_race(kind: str) -> None:
    """Also where the loops inside run on whole arrays."""
    program = parse(f"""
program fold(x: float32[4, 32]) -> (y: float32[32]):
  for i in 32:
    y[i] = float32(0.0)
  for t in 4, {kind}:
    for j in 32:
      y[j] = ((y[j] * 2.0) + x[t, j])
""")
    x = np.arange(128, dtype=np.float32).reshape(4, 32)
    for seed in SEEDS:
        assert not np.array_equal(run(program, [x], seed=seed)[0], x.T @ np.array([8, 4, 2, 1], np.float32))


def test_each_phase_has_an_order_of_its_own() -> None:
    """The order in which threads run, phase by phase."""
    program = parse("""
program orders() -> (y: int32[8, 16], next: int32[]):
  for p in 8:
    next[] = int32(0)
    for t in 16, thread, "threadIdx.x":
      y[p, t] = next[]
      next[] = (next[] + 1)
""")
    first, again, other = (run(program, [], seed=seed)[0] for seed in (5, 5, 6))
    assert len({tuple(row) for row in first.tolist()}) == 8
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_threads_of_an_intrinsic_follow_the_seed() -> None:
    count = 8
    body = neighbors(count, "threadIdx.x", -1, phases=False)
    x, y, s = (ir.Buffer(buffer.name, buffer.shape, buffer.dtype) for buffer in body.params)
    call = ir.LoopProgram("call", (x,), (y, s), TensorIntrin("race", body).on(*map(full_region, (x, y, s))))
    results = {run(call, [make_input(count)], intrinsics={"race": body}, seed=seed)[0].tobytes() for seed in SEEDS}
    assert len(results) > 1


def test_orders_are_neither_ascending_nor_descending() -> None:
    for seed, count in itertools.product(range(50), range(6)):
        order = ThreadOrder(seed).next(count)
        assert sorted(order) == list(range(count))
        steps = {later > earlier for earlier, later in itertools.pairwise(order)}
        assert count < 3 or steps == {True, False}
