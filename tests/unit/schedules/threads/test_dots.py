"""Sums of products of few rows: threads of a block share out the depth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.dots import SKINNY_ROWS, SYMBOLIC_ROWS
from inlaid.schedules.threads.product import ProductRule
from inlaid.tensor import interp
from inlaid.tensor.transform.launches import split_launches
from inlaid_runtime import arith

from .interpreter_checks import (
    EMBEDDED,
    GPU,
    THREADS,
    barriers_in,
    check_against_interpreter,
    first_offer,
    inputs_for,
    kernel,
    planted_races,
)

F32 = "float32"
RULE = ProductRule()
CHECKED = settings(max_examples=10, deadline=None)
ROWS, K, N = (arith.SizeVar(name, 0, 300) for name in ("rows", "k", "n"))


def along_columns(a, b):
    return ops.relu(ops.matmul(a, b))


def along_depth(a, b):
    return ops.relu(ops.matmul(a, ops.transpose(b, perm=(1, 0))))


KERNELS = {
    "one row": kernel(along_columns, ((1, 200), F32), ((200, 50), F32)),
    "rows of weights": kernel(along_depth, ((1, 200), F32), ((50, 200), F32)),
    "three rows": kernel(along_depth, ((3, 130), F32), ((50, 130), F32)),
    "last places": kernel(along_columns, ((3, 199), F32), ((199, 51), F32)),
    "one column": kernel(along_columns, ((45, 140), F32), ((140, 1), F32)),
    "batch": kernel(along_columns, ((2, 1, 130), F32), ((2, 130, 20), F32)),
    "integers": kernel(
        lambda a, b: ops.matmul(a, ops.transpose(b, perm=(1, 0)), out_dtype="int32"), ((2, 160), "uint8"), ((20, 160), "int8")
    ),
    "bias": kernel(lambda a, b, c: ops.add(along_depth(a, b), c), ((2, 128), F32), ((20, 128), F32), ((20,), F32)),
}


@pytest.mark.parametrize("program", KERNELS.values(), ids=KERNELS)
def test_computes_the_same(program):
    split = check_against_interpreter(program, GPU, rule=RULE)
    assert len(split.kernels) == 1 and barriers_in(split) == 1
    assert not planted_races(split)


@CHECKED
@given(st.integers(1, SKINNY_ROWS), st.integers(64, 300), st.integers(1, 70), st.sampled_from([along_columns, along_depth]))
def test_dots_of_any_size(m, k, n, make):
    shapes = (((m, k), F32), ((k, n) if make is along_columns else (n, k), F32))
    program = kernel(make, *shapes)
    if m * n > 1:
        check_against_interpreter(program, GPU, rule=RULE)


def test_depths_and_columns_need_not_be_known():
    sizes = [{K: 77, N: 33}, {K: 0, N: 5}, {K: 300, N: 0}, {K: 1, N: 1}]
    check_against_interpreter(kernel(along_depth, ((2, K), F32), ((N, K), F32)), GPU, sizes, RULE)
    check_against_interpreter(kernel(along_columns, ((2, K), F32), ((K, N), F32)), GPU, sizes, RULE)


@pytest.mark.parametrize("make", [along_columns, along_depth])
def test_a_number_of_rows_that_is_not_known_has_a_version_for_few(make):
    program = kernel(make, ((ROWS, 128), F32), ((128, 40) if make is along_columns else (40, 128), F32))
    _, offer = first_offer(program, GPU, RULE)
    (version,) = offer.versions
    split = split_launches(finish(version.schedule(program), able=GPU), GPU.scopes)
    for rows in (0, 1, SYMBOLIC_ROWS, SYMBOLIC_ROWS + 1):
        assert arith.evaluate(version.condition, {ROWS: rows}) == (rows <= SYMBOLIC_ROWS)
        inputs = inputs_for(program, {ROWS: rows}, rows)
        meaning = {name: item.program for name, item in split.kernels.items()}
        actual = interp.run(split.host, inputs, {ROWS: rows}, meaning, rows)[0]
        np.testing.assert_array_equal(actual, interp.run(program, inputs, {ROWS: rows})[0])


@CHECKED
@given(st.data())
def test_other_legal_decisions_compute_the_same(data):
    program = KERNELS[data.draw(st.sampled_from(["one row", "three rows"]))]
    _, offer = first_offer(program, GPU, RULE)
    shares = data.draw(st.sampled_from(offer.decisions[0].legal))
    check_against_interpreter(program, GPU, rule=RULE, shares=shares)


def test_small_devices_share_out_fewer():
    tight = replace(GPU, scopes=(replace(GPU.scopes[0], capacity=128),))
    check_against_interpreter(KERNELS["one row"], tight, rule=RULE)


def test_without_shared_memory_parts_are_added_up_by_a_second_kernel():
    large = replace(EMBEDDED, threads=replace(THREADS, resident=1 << 14))
    split = check_against_interpreter(kernel(along_depth, ((1, 1600), F32), ((40, 1600), F32)), large, rule=RULE)
    assert len(split.kernels) == 2 and not barriers_in(split)
