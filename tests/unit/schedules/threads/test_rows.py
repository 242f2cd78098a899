"""Reductions by teams of threads: the same values, without races, and no barrier too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.tensor import ir
from inlaid.tensor.transform.launches import split_launches
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError

from .interpreter_checks import (
    CLASSES,
    EMBEDDED,
    GPU,
    SHUFFLES,
    barriers_in,
    check_against_interpreter,
    first_offer,
    kernel,
    planted_divergence,
    planted_races,
)

RULE = ThreadRowsRule()
TARGETS = {**CLASSES, "shuffles": SHUFFLES}
N, M = arith.SizeVar("n"), arith.SizeVar("m")
CHECKED = settings(max_examples=15, deadline=None)
COLUMNS = st.sampled_from([4, 5, 7, 8, 31, 32, 33, 100])
TEAMS = st.sampled_from([1, 2, 4, 8, 32])


def total(x, axis=1):
    return ops.reduce_sum(x, axes=(axis,), keepdims=False)


KERNELS = {
    "sum": (lambda x: total(x), 0.0),
    "max": (lambda x: ops.reduce_max(ops.neg(x), axes=(1,), keepdims=True), 0.0),
    "argmax": (lambda x: ops.argmax(x, axis=1), 0.0),
    "scaled": (lambda x: ops.div(x, ops.add(ops.reduce_max(ops.abs(x), axes=(1,), keepdims=True), x)), 0.0),
    "softmax": (lambda x: ops.softmax(x, axis=1), 1e-5),
    "log_softmax": (lambda x: ops.log_softmax(x, axis=1), 1e-5),
    "whole": (lambda x: ops.reduce_sum(x, axes=(0, 1), keepdims=False), 0.0),
    "columns": (lambda x: total(x, 0), 0.0),
    "softmax of columns": (lambda x: ops.softmax(x, axis=0), 1e-5),
    "argmin of columns": (lambda x: ops.argmin(x, axis=0), 0.0),
}


@CHECKED
@given(
    st.sampled_from(sorted(KERNELS)),
    st.integers(2, 9),
    COLUMNS,
    TEAMS,
    st.sampled_from(["float32", "float64", "int32", "float16", "int8", "uint64"]),
    st.sampled_from([GPU, SHUFFLES]),
)
def test_any_shape_and_team(name, rows, columns, team, dtype, able):
    body, tolerance = KERNELS[name]
    if "float" not in dtype and ("softmax" in name or name in ("scaled", "max")):
        dtype = "float32"
    if dtype == "float16":
        tolerance = max(tolerance, 1e-2)
    check_against_interpreter(kernel(body, ((rows, columns), dtype)), able, rule=RULE, tolerance=tolerance, team=team)


@pytest.mark.parametrize("able", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_any_size(name, able):
    body, tolerance = KERNELS[name]
    sizes = [{N: n, M: m} for n, m in ((1, 1), (3, 70), (9, 5), (33, 33))] + ([] if "arg" in name else [{N: 0, M: 3}, {N: 3, M: 0}])
    program = kernel(body, ((N, M), "float32"))
    team = 1 if able is EMBEDDED else 8
    check_against_interpreter(program, able, sizes, RULE, tolerance=tolerance, team=team)


NORMS = {
    "layer_norm": (lambda x, g, b: ops.layer_norm(x, g, b, axis=1), [(6, 20), (20,), (20,)]),
    "layer_norm of any rows": (lambda x, g, b: ops.layer_norm(x, g, b, axis=1), [(N, 20), (20,), (20,)]),
    "rms_norm": (lambda x, g: ops.rms_norm(x, g, axis=1), [(6, 20), (20,)]),
}


@pytest.mark.parametrize("able", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, able):
    body, shapes = NORMS[name]
    program = kernel(body, *((shape, "float32") for shape in shapes))
    split = check_against_interpreter(program, able, [{N: n} for n in (1, 7)], RULE, tolerance=1e-5)
    assert len(split.kernels) == 1


@pytest.mark.parametrize("able", TARGETS.values(), ids=TARGETS)
def test_a_reduced_value_meets_an_input_of_its_row(able):
    """The sum plus an input per row is read twice, so that it stays a block of its own."""

    def body(x, y):
        shifted_sum = ops.add(total(x), y)
        return ops.add(ops.exp(shifted_sum), shifted_sum)

    program = kernel(body, ((5, 40), "float32"), ((5,), "float32"))
    check_against_interpreter(program, able, (), RULE, tolerance=1e-5)


def normalized(axes):
    """(x - mean) / deviation * g + b over axes."""

    def body(x, g, b):
        mean = ops.mul(ops.reduce_sum(x, axes=axes, keepdims=True), graph.constant(np.float32(0.03125)))
        centered = ops.sub(x, mean)
        variance = ops.mul(
            ops.reduce_sum(ops.mul(centered, centered), axes=axes, keepdims=True), graph.constant(np.float32(0.03125))
        )
        root = ops.sqrt(ops.add(variance, graph.constant(np.float32(1e-5))))
        return ops.add(ops.mul(ops.div(centered, root), g), b)

    return body


@pytest.mark.parametrize("able", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(
    ("axes", "shape", "scale"),
    [
        ((2, 3), (2, 3, 8, 4), (3, 1, 1)),
        ((2, 3), (N, 3, N, 4), (3, 1, 1)),
        ((0, 2, 3), (4, 3, 8, 4), (3, 1, 1)),
        ((0, 2, 3), (N, 3, 8, 8), (3, 1, 1)),
        ((2, 3, 4), (2, 4, 3, 8, 4), (4, 3, 1, 1)),
        ((1,), (2, 8, 5), (8, 1)),
    ],
)
def test_norms_of_images(axes, shape, scale, able):
    """By instances, batches, groups and channels."""
    program = kernel(normalized(axes), (shape, "float32"), (scale, "float32"), (scale, "float32"))
    assert len(check_against_interpreter(program, able, [{N: 3}], RULE, tolerance=1e-4).kernels) == 1


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("able", "team"), [(GPU, 8), (SHUFFLES, 8), (SHUFFLES, 32)], ids=["gpu", "shuffles", "several subgroups"])
@pytest.mark.parametrize("name", ["sum", "argmax", "softmax", "whole", "columns", "softmax of columns"])
def test_each_barrier_is_needed(name, able, team, symbolic):
    """None can go, nor be reached by some threads alone."""
    body, tolerance = KERNELS[name]
    team = 8 if "columns" in name else team
    program = kernel(body, ((N, M) if symbolic else (6, 100), "float32"))
    split = check_against_interpreter(program, able, {N: 6, M: 100} if symbolic else {}, RULE, tolerance=tolerance, team=team)
    assert barriers_in(split) >= 2
    assert planted_races(split) == planted_divergence(split) == []


@pytest.mark.parametrize("team", [4, 8, 32])
def test_only_several_subgroups_wait_for_the_block(team):
    """Of a softmax of rows of one subgroup, all barriers are within it, and nothing is in memory that the block shares."""
    split = check_against_interpreter(
        kernel(KERNELS["softmax"][0], ((6, 100), "float32")), SHUFFLES, (), RULE, tolerance=1e-5, team=team
    )
    (launch,) = split.kernels.values()
    statements = list(ir.walk_stmts(launch.program.body))
    scopes = {stmt.buffer.scope for stmt in statements if isinstance(stmt, ir.Alloc)}
    block_barriers = sum(isinstance(stmt, ir.Barrier) and not stmt.over for stmt in statements)
    assert (block_barriers, scopes) == ((4, {"register", "subgroup", "shared"}) if team == 32 else (0, {"register", "subgroup"}))


def test_no_more_threads_than_a_subgroup_has():
    """Scheduled for subgroups of 8, split for others."""
    program = kernel(KERNELS["sum"][0], ((6, 100), "float32"))
    finished = finish(first_offer(program, SHUFFLES, RULE, team=8)[1].schedule(program), able=SHUFFLES)
    for lanes in (8, 16):
        split_launches(finished, SHUFFLES.scopes, lanes)
    with pytest.raises(ScheduleError, match=r"expected a divisor of 4 as extent of threadIdx.x, found 8"):
        split_launches(finished, SHUFFLES.scopes, 4)
    with pytest.raises(ScheduleError, match="the target does not declare scope 'subgroup'"):
        split_launches(finished, SHUFFLES.scopes)


@pytest.mark.parametrize("name", ["sum", "softmax"])
def test_no_barriers_without_shared_memory(name):
    body, _ = KERNELS[name]
    split = check_against_interpreter(kernel(body, ((6, 100), "float32")), CLASSES["embedded"], rule=RULE, tolerance=1e-5)
    assert barriers_in(split) == 0


@pytest.mark.parametrize(("rows", "columns", "team"), [(3, 1000, 32), (16, 1000, 16), (1000, 1000, 8), (1000, 20, 4), (3, 3, 1)])
def test_teams_are_as_large_as_fills_the_device(rows, columns, team):
    """256 threads are resident, 8 of them run in lock step; each has four elements at least."""
    _, offer = first_offer(kernel(lambda x: ops.softmax(x, axis=1), ((rows, columns), "float32")), GPU, RULE)
    assert [decision.value for decision in offer.decisions if decision.name == "team"] == [team]


@CHECKED
@given(
    st.sampled_from(["sum", "max", "scaled", "whole", "columns"]),
    st.integers(1, 3),
    st.integers(1, 300),
    st.sampled_from([1, 4, 8]),
    st.sampled_from([2, 4, 16]),
    st.booleans(),
)
def test_few_long_rows_are_cut_in_pieces(name, rows, columns, team, pieces, symbolic):
    body, tolerance = KERNELS[name]
    shape = (columns, rows) if "columns" in name else (rows, columns)
    if not symbolic and (1 in shape or columns < 4):
        return
    program = kernel(body, ((N, M) if symbolic else shape, "float32"))
    sizes = {N: shape[0], M: shape[1]} if symbolic else {}
    split = check_against_interpreter(program, GPU, sizes, RULE, tolerance=tolerance, team=team, pieces=pieces)
    assert len(split.kernels) == 2


@pytest.mark.parametrize(("rows", "columns", "pieces"), [(1, 100000, 8), (2, 100000, 4), (8, 100000, 1), (1, 5000, 2), (1, 999, 1)])
def test_rows_are_cut_as_the_device_is_filled(rows, columns, pieces):
    _, offer = first_offer(kernel(lambda x: total(x), ((rows, columns), "float32")), GPU, RULE)
    assert [decision.value for decision in offer.decisions if decision.name == "pieces"] == [pieces]


@pytest.mark.parametrize(
    ("columns", "dtype", "lanes"), [(64, "float32", {4}), (62, "float32", {2}), (63, "float32", set()), (64, "float16", {8})]
)
def test_rows_are_read_in_vectors_that_divide_them(columns, dtype, lanes):
    split = check_against_interpreter(
        kernel(lambda x: ops.softmax(x, axis=1), ((5, columns), dtype)), GPU, rule=RULE, tolerance=1e-2
    )
    (launch,) = split.kernels.values()
    loops = [stmt for stmt in ir.walk_stmts(launch.program.body) if isinstance(stmt, ir.For)]
    assert {loop.extent.value for loop in loops if loop.kind is ir.ForKind.VECTORIZED} == lanes
