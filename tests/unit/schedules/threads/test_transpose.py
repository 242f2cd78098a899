"""Transposes by threads: through a padded tile in shared memory, with one barrier."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.plugins import MemoryScope
from inlaid.schedules.threads.transpose import ThreadTransposeRule
from inlaid.tensor import ir
from inlaid_runtime import arith

from .interpreter_checks import (
    EMBEDDED,
    GPU,
    barriers_in,
    check_against_interpreter,
    first_offer,
    kernel,
    planted_divergence,
    planted_races,
)

RULE = ThreadTransposeRule()
N, M = arith.SizeVar("n"), arith.SizeVar("m")
CHECKED = settings(max_examples=20, deadline=None)


def tiles(split):
    """The shapes of what blocks share."""
    allocs = (stmt for item in split.kernels.values() for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.Alloc))
    return [stmt.buffer.shape for stmt in allocs if stmt.buffer.scope == "shared"]


@CHECKED
@given(st.integers(4, 40), st.integers(4, 40), st.sampled_from(["float32", "int8", "float64"]), st.sampled_from([8, 16, 32]))
def test_any_matrix(rows, columns, dtype, side):
    program = kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((rows, columns), dtype))
    split = check_against_interpreter(program, GPU, rule=RULE, side=side)
    assert barriers_in(split) == 1 and planted_races(split) == planted_divergence(split) == []


@pytest.mark.parametrize("perm", [perm for perm in itertools.permutations(range(4)) if perm[-1] != 3])
def test_any_permutation_that_moves_the_innermost_axis(perm):
    split = check_against_interpreter(kernel(lambda x: ops.transpose(x, perm=perm), ((4, 5, 9, 6), "float32")), GPU, rule=RULE)
    assert barriers_in(split) == 1


def test_axes_of_one_element_have_no_loops():
    transposed = kernel(lambda x: ops.relu(ops.transpose(x, perm=(0, 2, 1))), ((1, 9, 5), "float32"))
    assert barriers_in(check_against_interpreter(transposed, GPU, rule=RULE)) == 1
    merged = kernel(lambda x: ops.reshape(ops.transpose(x, perm=(0, 2, 1, 3)), shape=(1, 8, 6)), ((1, 6, 2, 4), "float32"))
    check_against_interpreter(merged, GPU)


@pytest.mark.parametrize("perm", [(1, 0), (0, 2, 1), (2, 0, 1)])
def test_any_sizes(perm):
    shape = (N, M) if len(perm) == 2 else (N, 5, M)
    program = kernel(lambda x: ops.transpose(x, perm=perm), (shape, "float32"))
    sizes = [{N: n, M: m} for n, m in ((0, 3), (3, 0), (1, 1), (2, 17), (19, 8), (33, 9))]
    assert barriers_in(check_against_interpreter(program, GPU, sizes, RULE)) == 1


def test_columns_of_a_tile_lie_in_different_banks():
    split = check_against_interpreter(kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((40, 40), "float32")), GPU, rule=RULE)
    assert tiles(split) == [(8, 9)]


def test_what_follows_is_computed_where_it_is_written():
    program = kernel(
        lambda x, y, z: ops.relu(ops.add(ops.add(ops.transpose(x, perm=(1, 0)), ops.transpose(z, perm=(1, 0))), y)),
        ((12, 20), "float32"), ((20, 12), "float32"), ((12, 20), "float32"),
    )  # fmt: skip
    split = check_against_interpreter(program, GPU, rule=RULE)
    assert len(split.kernels) == 1 and len(tiles(split)) == 2 and barriers_in(split) == 1


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda x: ops.transpose(x, perm=(1, 0)), (3, 50)),
        (lambda x: ops.transpose(x, perm=(1, 0, 2)), (6, 7, 8)),
        (lambda x: ops.add(x, ops.transpose(x, perm=(1, 0))), (9, 9)),
        (lambda x: ops.relu(x), (9, 9)),
    ],
)
def test_the_rest_is_left_to_others(body, shape):
    program = kernel(body, (shape, "float32"))
    assert first_offer(program, GPU)[0] == "elementwise"
    check_against_interpreter(program, GPU)


def test_without_shared_memory():
    program = kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((9, 20), "float32"))
    assert first_offer(program, EMBEDDED)[0] == "elementwise"
    check_against_interpreter(program, EMBEDDED)


@pytest.mark.parametrize(("capacity", "sides"), [(32 << 10, {32, 16, 8}), (2200, {16, 8}), (600, {8}), (500, set())])
def test_tiles_fit_the_memory_that_is_shared(capacity, sides):
    able = replace(GPU, scopes=(MemoryScope("shared", "block", capacity, 16),))
    program = kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((40, 50), "float64"))
    name, offer = first_offer(program, able)
    assert {side for decision in offer.decisions if decision.name == "side" for side in decision.legal} == sides
    assert (name == "transpose") == bool(sides)
    check_against_interpreter(program, able)
