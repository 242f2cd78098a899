"""Matrix products on grids of threads: tiles through shared memory and in registers, for any sizes and orders of dimensions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.plugins import MemoryScope
from inlaid.schedules.threads.product import ProductRule
from inlaid.tensor import ir
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, EMBEDDED, GPU, check_against_interpreter, first_offer, kernel, make_launches, planted_races

F32 = "float32"
RULE = ProductRule()
CHECKED = settings(max_examples=12, deadline=None)
B, M, K, N = (arith.SizeVar(name, 0, 64) for name in "bmkn")


def relu_matmul(a, b):
    return ops.relu(ops.matmul(a, b))


def turned(x):
    return ops.transpose(x, perm=(1, 0))


def heads(a, b):
    """What attention makes of a projection: heads before rows."""
    return ops.transpose(ops.reshape(ops.matmul(a, b), shape=(2, 7, 3, 4)), perm=(0, 2, 1, 3))


KERNELS = {
    "whole tiles": kernel(relu_matmul, ((64, 32), F32), ((32, 64), F32)),
    "last tiles": kernel(relu_matmul, ((13, 19), F32), ((19, 37), F32)),
    "one row": kernel(relu_matmul, ((1, 40), F32), ((40, 50), F32)),
    "one column": kernel(relu_matmul, ((45, 40), F32), ((40, 1), F32)),
    "batch": kernel(relu_matmul, ((3, 9, 8), F32), ((3, 8, 6), F32)),
    "broadcast": kernel(relu_matmul, ((2, 1, 9, 8), F32), ((3, 8, 6), F32)),
    "right transposed": kernel(lambda a, b: ops.matmul(a, turned(b)), ((9, 16), F32), ((20, 16), F32)),
    "left transposed": kernel(lambda a, b: ops.matmul(turned(a), b), ((16, 9), F32), ((16, 20), F32)),
    "integers": kernel(lambda a, b: ops.matmul(a, b, out_dtype="int32"), ((9, 16), "uint8"), ((16, 20), "int8")),
    "halves": kernel(relu_matmul, ((9, 16), "float16"), ((16, 20), "float16")),
    "bfloat16": kernel(relu_matmul, ((9, 16), "bfloat16"), ((16, 20), "bfloat16")),
    "doubles": kernel(relu_matmul, ((9, 16), "float64"), ((16, 20), "float64")),
    "heads": kernel(heads, ((2, 7, 16), F32), ((16, 12), F32)),
    "bias and residual": kernel(
        lambda a, b, c, d: ops.add(ops.relu(ops.add(ops.matmul(a, b), c)), d),
        ((9, 16), F32),
        ((16, 20), F32),
        ((20,), F32),
        ((9, 20), F32),
    ),
    "deep": kernel(relu_matmul, ((12, 200), F32), ((200, 11), F32)),
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("name", KERNELS)
def test_computes_the_same(name, able):
    split = check_against_interpreter(KERNELS[name], able, rule=RULE)
    assert not planted_races(split), "each barrier is needed"


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("name", KERNELS)
def test_parts_are_added_up_by_a_second_kernel(name, able):
    split = check_against_interpreter(KERNELS[name], able, rule=RULE, parts=2)
    assert len(split.kernels) == 2


@pytest.mark.parametrize("stages", [1, 2])
def test_a_tile_may_be_fetched_while_the_one_before_is_used(stages):
    split = check_against_interpreter(KERNELS["deep"], GPU, rule=RULE, parts=1, stages=stages)
    assert not planted_races(split)
    (program,) = (item.program for item in split.kernels.values())
    (steps,) = (stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.var.name == "q")
    assert sum(isinstance(stmt, ir.Barrier) for stmt in ir.walk_stmts(steps)) == 3 - stages


@CHECKED
@given(st.integers(6, 40), st.integers(2, 40), st.integers(6, 40), st.sampled_from(list(CLASSES.values())))
def test_products_of_any_size(m, k, n, able):
    check_against_interpreter(kernel(relu_matmul, ((m, k), F32), ((k, n), F32)), able, rule=RULE)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_are_no_product(rows, able):
    """A tile has a row, whose position is not compared with an extent of 0: it would be read and stored out of bounds."""
    for depth in (5, 1031):
        check_against_interpreter(kernel(relu_matmul, ((rows, depth), F32), ((depth, 67), F32)), able)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("parts", [1, 2])
def test_sizes_need_not_be_known(able, parts):
    sizes = [{M: 5, K: 7, N: 9}, {M: 0, K: 3, N: 9}, {M: 5, K: 0, N: 9}, {M: 33, K: 1, N: 1}, {M: 8, K: 16, N: 64}]
    check_against_interpreter(kernel(relu_matmul, ((M, K), F32), ((K, N), F32)), able, sizes, RULE, parts=parts)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_batches_need_not_be_known(able):
    program = kernel(relu_matmul, ((B, M, 8), F32), ((B, 8, N), F32))
    check_against_interpreter(program, able, [{B: 2, M: 5, N: 9}, {B: 0, M: 5, N: 9}, {B: 1, M: 1, N: 1}], RULE)


@CHECKED
@given(st.data())
def test_other_legal_decisions_compute_the_same(data):
    able = data.draw(st.sampled_from([GPU, EMBEDDED]))
    program = KERNELS[data.draw(st.sampled_from(["last tiles", "right transposed", "integers"]))]
    _, offer = first_offer(program, able, RULE)
    tile = data.draw(st.sampled_from(next(item.legal for item in offer.decisions if item.name == "tile")))
    check_against_interpreter(program, able, rule=RULE, tile=tile)


def test_tiles_fit_into_shared_memory():
    wide = kernel(relu_matmul, ((256, 64), F32), ((64, 256), F32))
    for capacity in (64, 1 << 10, 2 << 10, 32 << 10):
        able = replace(GPU, scopes=(MemoryScope("shared", "block", capacity, 16),))
        make_launches(wide, able, RULE)


def test_shared_tiles_leave_a_bank_free():
    """Lines of a shared tile are longer than the tile, so that threads that store a column of it meet in few banks."""
    split = make_launches(KERNELS["whole tiles"], GPU, RULE)
    (program,) = (item.program for item in split.kernels.values())
    shared = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.scope == "shared"]
    assert len(shared) == 2 and all(buffer.shape[-1] % 8 == 4 for buffer in shared)


@pytest.mark.parametrize("program", [
    kernel(lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), ((64, 50), F32)),
    kernel(relu_matmul, ((64, 1), F32), ((1, 64), F32)),
    kernel(relu_matmul, ((1, 64), F32), ((64, 1), F32)),
])  # fmt: skip
def test_other_kernels_are_declined(program):
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(program, GPU, RULE)
