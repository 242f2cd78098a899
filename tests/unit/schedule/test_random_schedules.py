"""Any schedule that the primitives accept keeps the interpreter's answer, as blocks, as plain loops, and replayed from its trace.

Integers, and floats that hold small integers, are exact in every order: equality is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp, ir, primitives, te
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.lower import lower
from inlaid.tensor.parse import parse
from inlaid.tensor.schedule import Schedule, replay
from inlaid.tensor.text import show
from inlaid.tensor.transform.align import align_buffers
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.paths import sites
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var
from inlaid_runtime.errors import ScheduleError

Draw = Callable[[st.SearchStrategy], object]


# --- programs ---------------------------------------------------------------------------------------------------------


def elementwise(size: int, dtype: str) -> ir.LoopProgram:
    a, b = te.placeholder((size, 6), dtype, "a"), te.placeholder((6,), dtype, "b")
    c = te.compute((size, 6), lambda i, j: a[i, j] + b[j], "c")
    d = te.compute((size, 6), lambda i, j: te.maximum(c[i, j], 0), "d")
    e = te.compute((6, size), lambda i, j: d[j, i] * 2 - c[j, i], "e")
    return lower([e], [a, b], "elementwise")


def stencil(size: int, dtype: str) -> ir.LoopProgram:
    a = te.placeholder((size + 4,), dtype, "a")
    b = te.compute((size + 4,), lambda i: a[i] * 3, "b")
    c = te.compute((size + 2,), lambda i: b[i] + b[i + 1] - b[i + 2], "c")
    d = te.compute((size,), lambda i: c[i] + c[i + 2], "d")
    return lower([d], [a], "stencil")


def row_sums(size: int, dtype: str) -> ir.LoopProgram:
    a = te.placeholder((5, size), dtype, "a")
    k = te.reduce_axis(size, "k")
    total = te.compute((5,), lambda i: te.sum_(a[i, k], k), "total")
    k2 = te.reduce_axis(size, "k2")
    maxima = te.compute((5,), lambda i: te.max_(a[i, k2] - total[i], k2), "most")
    out = te.compute((5, size), lambda i, j: a[i, j] * maxima[i] + total[i], "out")
    return lower([out, total], [a], "row_sums")


def matmul(size: int, dtype: str) -> ir.LoopProgram:
    a, b = te.placeholder((6, size), dtype, "a"), te.placeholder((size, 9), dtype, "b")
    k = te.reduce_axis(size, "k")
    product = te.compute((6, 9), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "product")
    shifted = te.compute((6, 9), lambda i, j: product[i, j] + 1, "shifted")
    c = te.compute((6, 9), lambda i, j: te.maximum(shifted[i, j], 0), "c")
    return lower([c], [a, b], "matmul")


def convolution(size: int, dtype: str) -> ir.LoopProgram:
    x, w = te.placeholder((2, size, 5), dtype, "x"), te.placeholder((3, 2, 3, 2), dtype, "w")

    def padded(c: Var, h: Var, q: Var) -> ir.Expr:
        rows = arith.logical_and(arith.compare("<=", 1, h), arith.compare("<=", h, size))
        return te.select(arith.logical_and(rows, arith.compare("<", q, 5)), x[c, h - 1, q], 0)

    p = te.compute((2, size + 2, 6), padded, "p")
    c, r, s = te.reduce_axis(2, "c"), te.reduce_axis(3, "r"), te.reduce_axis(2, "s")
    conv = te.compute((3, size, 5), lambda o, h, q: te.sum_(p[c, h + r, q + s] * w[o, c, r, s], (c, r, s)), "conv")
    relu = te.compute((3, size, 5), lambda o, h, q: te.maximum(conv[o, h, q], 0), "relu")
    return lower([relu], [x, w], "convolution")


def argmax(size: int, dtype: str) -> ir.LoopProgram:
    a = te.placeholder((4, size), dtype, "a")
    k = te.reduce_axis(size, "k")

    def combine(old: tuple[ir.Expr, ...], new: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        better = (old[0] < new[0]) | (old[0].equal(new[0]) & (new[1] < old[1]))  # the same in every order
        return te.select(better, new[0], old[0]), te.select(better, new[1], old[1])

    reducer = te.comm_reducer(combine, lambda types: (te.const(-100, types[0]), te.const(-1, types[1])), "argmax")
    value, index = te.compute((4,), lambda i: reducer((a[i, k], ir.as_expr(k, ir.as_dtype("int64"))), k), "argmax")
    plus = te.compute((4,), lambda i: index[i] + 1, "plus")
    return lower([value, plus], [a], "argmax")


def symbolic(size: int, dtype: str) -> ir.LoopProgram:
    n = SizeVar("n", 1)
    a, b = te.placeholder((n, 5), dtype, "a"), te.placeholder((5, 7), dtype, "b")
    k = te.reduce_axis(5, "k")
    product = te.compute((n, 7), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "product")
    out = te.compute((n, 7), lambda i, j: te.maximum(product[i, j], 0) + a[i, 0], "out")
    return lower([out], [a, b], "symbolic")


PROGRAMS = (symbolic, elementwise, stencil, row_sums, matmul, convolution, argmax)


# --- schedules --------------------------------------------------------------------------------------------------------


def one_step(schedule: Schedule, data: st.DataObject) -> None:
    """Apply a primitive at random, to places at random."""
    draw = data.draw
    block = draw(st.sampled_from(schedule.blocks))
    loops = schedule.loops(block)
    buffers = sorted(
        {region.buffer.name for site in sites(schedule.program.body) for region in (*site.block.reads, *site.block.writes)}
    )
    loop = draw(st.sampled_from(loops)) if loops else None
    other = schedule.loops(draw(st.sampled_from(schedule.blocks)))
    target = draw(st.sampled_from(other)) if other else None
    scope = draw(st.sampled_from(["", "local"]))
    small = draw(st.integers(1, 4))
    actions: dict[str, Callable[[], object]] = {
        "compute_inline": lambda: schedule.compute_inline(block),
        "reverse_compute_inline": lambda: schedule.reverse_compute_inline(block),
        "cache_read": lambda: schedule.cache_read(block, draw(st.sampled_from(buffers)), scope),
        "cache_write": lambda: schedule.cache_write(block, scope),
        "set_scope": lambda: schedule.set_scope(draw(st.sampled_from(buffers)), scope),
        "double_buffer": lambda: schedule.double_buffer(block),
        "rolling_buffer": lambda: schedule.rolling_buffer(block),
    }
    if target is not None:
        actions["compute_at"] = lambda: schedule.compute_at(block, target)
        actions["reverse_compute_at"] = lambda: schedule.reverse_compute_at(block, target)
    if loop is not None:
        actions |= {
            "split": lambda: schedule.split(loop, (None, small)),
            "fuse": lambda: schedule.fuse(*loops[: 1 + small]),
            "reorder": lambda: schedule.reorder(*draw(st.permutations(loops))),
            "parallel": lambda: schedule.parallel(loop),
            "vectorize": lambda: schedule.vectorize(loop),
            "unroll": lambda: schedule.unroll(loop),
            "vthread": lambda: schedule.vthread(loop, draw(st.sampled_from([None, *loops]))),
            "bind": lambda: schedule.bind(loop, "threadIdx.x"),
            "decompose_reduction": lambda: schedule.decompose_reduction(block, loop),
            "rfactor": lambda: schedule.rfactor(block, loop, draw(st.integers(0, 1))),
            "blockize": lambda: schedule.blockize(loop),
            "prefetch": lambda: schedule.prefetch(block, draw(st.sampled_from(buffers)), loop, small),
        }
    often = [name for name in ("split", "reorder", "compute_at", "reverse_compute_at") if name in actions]
    name = draw(st.sampled_from([*actions, *often, *often]))
    with contextlib.suppress(ScheduleError):
        actions[name]()


def plain(program: ir.LoopProgram) -> ir.LoopProgram:
    """The program as a code generator gets it."""
    program = compact_buffers(simplify_program(flatten_blocks(program)))
    program = simplify_program(lower_vthreads(align_buffers(program)))
    return simplify_program(unroll_loops(program))


def answers(program: ir.LoopProgram, size: int) -> list[np.ndarray]:
    """What a program gives for small integers; `size` is the value of a symbolic dimension."""
    rng = np.random.default_rng(0)
    arrays = []
    for buffer in program.inputs:
        shape = tuple(dim if isinstance(dim, int) else size for dim in buffer.shape)
        arrays.append(rng.integers(-4, 5, shape).astype(buffer.dtype.numpy))
    return interp.run(program, arrays, intrinsics=primitives.SEMANTICS)


@pytest.mark.parametrize("make", PROGRAMS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_schedule_keeps_the_answer(make: Callable[[int, str], ir.LoopProgram], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    program = make(size, data.draw(st.sampled_from(["int32", "float32"])))
    schedule = Schedule(program)
    for _ in range(data.draw(st.integers(1, 8))):
        one_step(schedule, data)
    expected = answers(program, size)
    again = replay(program, str(schedule.trace))
    assert str(again.trace) == str(schedule.trace)
    assert structurally_equal(parse(show(schedule.program)), schedule.program)
    for variant in (schedule.program, plain(schedule.program), again.program):
        for expected_output, actual in zip(expected, answers(variant, size), strict=True):
            np.testing.assert_array_equal(actual, expected_output, err_msg=str(schedule.trace))
