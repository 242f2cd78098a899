"""Which loops and branches become regions, and that they mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.partitioning import Partitioned, partition, verify_partition
from inlaid.partitioning.control import absorb_control
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .fakes import fake_candidates, taking

F32, I64 = "float32", "int64"
TRUE = ir.constant(np.array(True))
X = ir.var("x", TensorType((4, 3), F32))
H = ir.var("h", TensorType((3,), F32))
N = ir.var("n", TensorType((), I64))
STEP = ir.var("step", TensorType((), I64))
S = ir.var("s", TensorType((3,), F32))
ROW = ir.var("row", TensorType((3,), F32))
FEEDS = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "h": np.float32([1, -2, 3]), "n": np.int64(3)}


def results(loop: ir.Expr, count: int) -> ir.Expr:
    return ir.tuple_([ir.tuple_item(loop, index) for index in range(count)])


def cut(body: ir.Expr, *names: str, able: tuple[int, ...] = (0,)) -> tuple[Partitioned, list[ir.Loop]]:
    """A function of x, h and n cut for a target of some operators and its loops absorbed; and the loops that are in no region."""
    module = ir.Module({"main": ir.function([X, H, N], body)})
    before = partition(module, fake_candidates({"a": taking(*names)}))
    after = absorb_control(before, able, able)
    verify_partition(module, after)
    homes = {name for placement in after.placements for name in placement.regions}
    assert homes <= set(after.regions) and not homes - set(before.regions)
    expected, actual = evaluate(module, FEEDS), evaluate(after.module, FEEDS)
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, b)
    outside = [expr for name in set(after.module.functions) - set(after.regions) for expr in ir.post_order(after.module[name])]
    return after, [expr for expr in outside if isinstance(expr, ir.Loop)]


def scan(value: ir.Expr, output: ir.Expr) -> ir.Expr:
    return results(ir.loop(ir.function([STEP, S, ROW], ir.tuple_([TRUE, value, output])), state=[H], scanned=[X]), 2)


def test_a_loop_of_one_region_is_a_region() -> None:
    partitioning, left = cut(scan(ops.add(ops.mul(S, ROW), H), ops.add(S, ROW)), "add", "mul")
    assert not left and len(partitioning.regions) == 1
    (name,) = partitioning.regions
    # The state, what is scanned, and h once more, which every round reads.
    assert len(partitioning.module[name].params) == 3


def test_bound_values_are_handed_to_every_round() -> None:
    let_var = ir.var("held", H.type)
    body = scan(ops.add(ops.mul(S, ROW), let_var), ROW)
    partitioning, left = cut(ir.let(let_var, ops.neg(H), body), "add", "mul", "neg")
    assert not left and len(partitioning.regions) == 2


def test_a_state_that_goes_round_as_it_is() -> None:
    _, left = cut(scan(S, ops.add(S, ROW)), "add")
    assert not left


def test_one_of_several_results_of_a_region_is_handed_to_every_round() -> None:
    double, half = ops.mul(H, H), ops.add(H, H)
    body = ir.function([STEP, S, ROW], ir.tuple_([TRUE, ops.add(S, double), ops.mul(ROW, double)]))
    loop = ir.loop(body, state=[half], scanned=[X])
    partitioning, left = cut(ir.tuple_([*(ir.tuple_item(loop, index) for index in range(2)), double]), "add", "mul")
    assert not left and len(partitioning.regions) == 2


def test_rounds_that_the_run_counts() -> None:
    body = ir.function([STEP, S], ir.tuple_([ops.less(STEP, N), ops.add(S, H)]))
    for trips, condition in ((N, None), (None, ops.less(ir.constant(np.int64(0)), N)), (N, TRUE)):
        _, left = cut(results(ir.loop(body, state=[H], trip_count=trips, condition=condition), 1), "add", "less")
        assert not left


def test_targets_that_cannot_run_loops_keep_regions_of_rounds() -> None:
    _, left = cut(scan(ops.add(S, ROW), ROW), "add", able=())
    assert len(left) == 1


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (ops.mul(ops.add(S, ROW), S), ("add",)),  # of two targets
        (S, ("add",)),  # of none
    ],
)
def test_bodies_that_are_more_or_less_than_a_region(value: ir.Expr, names: tuple[str, ...]) -> None:
    _, left = cut(scan(value, ROW), *names)
    assert len(left) == 1


def test_loops_that_work_out_sizes() -> None:
    """Outputs as many as data says, and a state that grows."""
    counted = ir.function([STEP], ir.tuple_([TRUE, ops.mul(H, ops.cast(STEP, dtype=F32))]))
    _, left = cut(results(ir.loop(counted, trip_count=N), 1), "mul", "cast")
    assert len(left) == 1
    state = ir.var("grows", TensorType((SizeVar("?k"),), F32))
    growing = ir.function([STEP, state], ir.tuple_([TRUE, ops.concat(state, state, axis=0)]))
    _, left = cut(results(ir.loop(growing, state=[H], trip_count=N), 1), "concat")
    assert len(left) == 1


def choices(partitioning: Partitioned) -> int:
    """How many branches are in no region."""
    outside = [
        expr
        for name in set(partitioning.module.functions) - set(partitioning.regions)
        for expr in ir.post_order(partitioning.module[name])
    ]
    return sum(isinstance(expr, ir.If) for expr in outside)


EARLY = ops.less(N, ir.constant(np.int64(4)))


def test_a_branch_and_what_is_around_it_are_a_region() -> None:
    value = ir.if_(EARLY, ops.add(H, H), H)
    partitioning, _ = cut(ops.add(value, ir.if_(EARLY, value, ops.add(value, H))), "add", "less")
    assert len(partitioning.regions) == 1 and not choices(partitioning)


def test_a_branch_that_only_chooses() -> None:
    partitioning, _ = cut(ops.add(ir.if_(EARLY, H, ir.constant(np.ones(3, np.float32))), H), "add", "less")
    assert len(partitioning.regions) == 1 and not choices(partitioning)


def test_a_branch_in_a_loop_joins_it() -> None:
    even = ops.less(STEP, N)
    value = ir.if_(even, ops.add(S, ROW), ir.if_(ops.less(ir.constant(np.int64(9)), STEP), S, ops.add(S, S)))
    partitioning, left = cut(scan(ops.add(value, ROW), ROW), "add", "less")
    assert not left and len(partitioning.regions) == 1 and not choices(partitioning)


def test_branches_that_stay() -> None:
    """Of arms of two targets, of one that works out sizes, and of a target that has no branches."""
    partitioning, _ = cut(ir.if_(EARLY, ops.add(H, H), ops.neg(H)), "add", "less")
    assert choices(partitioning) == 1
    grown = ir.if_(EARLY, ops.concat(H, H, axis=0), H)
    partitioning, _ = cut(grown, "concat", "less")
    assert choices(partitioning) == 1
    partitioning, _ = cut(ir.if_(EARLY, ops.add(H, H), H), "add", "less", able=())
    assert choices(partitioning) == 1
