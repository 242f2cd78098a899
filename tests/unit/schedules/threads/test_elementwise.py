"""Element-wise kernels for threads: the same values, whole vectors wherever elements lie side by side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.schedules.threads.elementwise import ElementwiseRule
from inlaid.tensor import ir
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, GPU, check_against_interpreter, first_offer, kernel, make_launches

RULE = ElementwiseRule()
N, M = arith.SizeVar("n"), arith.SizeVar("m")
DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int64", "int32")
CHECKED = settings(max_examples=20, deadline=None)


def vectors(split):
    """The lengths of vectorized loops in all kernels."""
    loops = [stmt for item in split.kernels.values() for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.For)]
    return sorted({loop.extent.value for loop in loops if loop.kind is ir.ForKind.VECTORIZED})


@CHECKED
@given(st.lists(st.integers(0, 9), max_size=3), st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.sampled_from([1, 2, 4]))
def test_casts_of_any_shape(shape, source, target, pieces):
    program = kernel(lambda x: ops.cast(ops.add(x, x), dtype=target), (shape, source))
    check_against_interpreter(program, GPU, rule=RULE, pieces=pieces)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("pieces", [1, 4])
def test_any_sizes(able, pieces):
    sizes = [{N: n, M: m} for n, m in ((0, 3), (1, 1), (3, 0), (5, 13), (11, 16), (70, 3))]
    for types in ([((N, M), "float32")] * 2, [((N, 8), "float32"), ((8,), "float32")], [((N, 3), "int32"), ((N, 1), "int32")]):
        program = kernel(lambda x, y: ops.maximum(ops.add(x, y), x), *types)
        symbols = {dim for shape, _ in types for dim in shape}
        check_against_interpreter(
            program, able, [{k: v for k, v in size.items() if k in symbols} for size in sizes], RULE, pieces=pieces
        )


def test_choices_and_broadcasts():
    program = kernel(lambda c, x, y: ops.where(c, x, y), ((6, 12), "bool"), ((12,), "float32"), ((6, 1), "float32"))
    assert vectors(check_against_interpreter(program, GPU, rule=RULE)) == [4]


@pytest.mark.parametrize(("columns", "lanes"), [(12, [4]), (6, [2]), (7, [])])
def test_rows_that_are_looked_up(columns, lanes):
    program = kernel(lambda x, i: ops.take(x, i, axis=0), ((9, columns), "float32"), ((N,), "int64"))
    for count in (0, 1, 25):
        places = np.random.default_rng(count).integers(-9, 9, count)
        arrays = [np.arange(9 * columns, dtype=np.float32).reshape(9, columns), places]
        assert vectors(check_against_interpreter(program, GPU, {N: count}, RULE, arrays)) == lanes


@pytest.mark.parametrize(
    ("dtype", "lanes"), [("float64", [2]), ("float32", [4]), ("float16", [8]), ("int8", [16]), ("bool", [16])]
)  # fmt: skip
def test_vectors_fill_what_a_thread_should_load(dtype, lanes):
    split = make_launches(kernel(lambda x: ops.equal(x, x) if dtype == "bool" else ops.add(x, x), ((N,), dtype)), GPU, RULE)
    assert vectors(split) == lanes


@pytest.mark.parametrize(
    ("begin", "end", "stride", "lanes"), [(1, 61, 1, []), (0, 64, 2, []), (8, 60, 1, [4]), (2, 60, 1, [2])]
)  # fmt: skip
def test_accesses_that_start_anywhere_are_single(begin, end, stride, lanes):
    """A slice may begin between two vectors."""
    program = kernel(lambda x: ops.strided_slice(x, begin=(begin,), end=(end,), strides=(stride,)), ((64,), "float32"))
    assert vectors(check_against_interpreter(program, GPU, rule=RULE)) == lanes


def test_what_indices_decide_is_single():
    program = kernel(lambda x: ops.pad(x, pads=(4, 4), mode="edge"), ((64,), "float32"))
    assert vectors(check_against_interpreter(program, GPU, rule=RULE)) == []


def test_several_results_are_several_launches():
    program = kernel(lambda x: graph.tuple_((ops.relu(x), ops.neg(x))), ((5, 8), "float32"))
    assert len(check_against_interpreter(program, GPU, rule=RULE).kernels) == 2


@pytest.mark.parametrize(("count", "pieces"), [(1 << 10, 1), (1 << 13, 4), (1 << 12, 2)])
def test_threads_take_several_pieces_where_the_device_stays_full(count, pieces):
    """256 threads are resident, and take vectors of four."""
    name, offer = first_offer(kernel(lambda x: ops.relu(x), ((count,), "float32")), GPU)
    assert name == "elementwise"
    assert {decision.name: decision.value for decision in offer.decisions}["pieces"] == pieces


def test_declines_reductions():
    program = kernel(lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), ((4, 9), "float32"))
    with pytest.raises(AssertionError, match="elementwise takes the kernel"):
        first_offer(program, GPU, RULE)
