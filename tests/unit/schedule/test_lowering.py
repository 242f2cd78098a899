"""What is left to lowerings: shrinking buffers, aligning them, interleaving virtual threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from inlaid.lowering.kernels.finish import finish
from inlaid.tensor import interp, ir
from inlaid.tensor.build import Builder
from inlaid.tensor.parse import parse
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.align import align_buffers
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype

Check = Callable[[ir.LoopProgram, ir.LoopProgram], None]


def shapes(program: ir.LoopProgram) -> dict[str, tuple[arith.Dim, ...]]:
    return {stmt.buffer.name: stmt.buffer.shape for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)}


def compacted(schedule: Schedule) -> ir.LoopProgram:
    return compact_buffers(simplify_program(flatten_blocks(schedule.program)))


def test_a_tile_is_all_that_a_cache_holds(matmul_program: ir.LoopProgram, check_equal: Check) -> None:
    s = Schedule(matmul_program)
    i, j, k = s.loops("product")
    outer, inner = s.split(i, (None, 4))
    s.reorder(outer, k, inner, j)
    s.compute_at(s.cache_read("product", "a", "local"), outer)
    program = compacted(s)
    assert shapes(program)["a_local"] == (4, 10)
    check_equal(matmul_program, program)


def test_rolling_buffer_holds_one_window(conv_program: ir.LoopProgram, check_equal: Check) -> None:
    s = Schedule(conv_program)
    n, o, h, q = s.loops("relu")
    s.reorder(n, h, o, q)
    s.compute_at("conv", h)
    s.compute_at("padded", h)
    s.rolling_buffer("padded")
    program = compacted(s)
    assert shapes(program) == {"padded": (1, 4, 3, 7), "conv": (1, 6, 1, 5)}
    check_equal(conv_program, program)


def test_buffers_indexed_by_values_keep_their_size() -> None:
    a, out = ir.Buffer("a", (4,), dtype("int64")), ir.Buffer("out", (4,), dtype("int64"))
    b = Builder()
    counts = b.alloc((4,), "int64", "counts")
    with b.loop(4, "i") as i:
        b.store(counts, i, 0)
    with b.loop(4, "j") as j:
        index = b.let(a[j], "place", (0, 3))
        b.store(counts, index, counts[index] + 1)
    with b.loop(4, "k") as k:
        b.store(out, k, counts[k])
    program = ir.LoopProgram("count", (a,), (out,), b.finish())
    compact = compact_buffers(program)
    assert shapes(compact) == shapes(program)
    (result,) = interp.run(compact, [np.array([1, 3, 3, 0])])
    np.testing.assert_array_equal(result, [1, 1, 0, 2])


def test_a_base_that_varies_inside_is_no_base() -> None:
    a, out = ir.Buffer("a", (4,), dtype("int64")), ir.Buffer("out", (4,), dtype("int64"))
    b = Builder()
    buffer = b.alloc((4,), "int64", "kept")
    with b.loop(4, "j") as j:
        index = b.let(a[j], "place")
        b.store(buffer, index, ir.as_expr(j))
        b.store(out, j, buffer[index])
    program = ir.LoopProgram("keep", (a,), (out,), b.finish())
    (result,) = interp.run(compact_buffers(program), [np.array([1, 3, 3, 0])])
    np.testing.assert_array_equal(result, [0, 1, 2, 3])


def test_storage_align_widens_the_final_size(matmul_program: ir.LoopProgram, check_equal: Check) -> None:
    s = Schedule(matmul_program)
    outer, _ = s.split(s.loops("product")[0], (None, 4))
    name = s.cache_read("product", "a", "local")
    s.compute_at(name, outer)
    s.storage_align(name, 0, 8, 1)
    program = align_buffers(compacted(s))
    assert shapes(program)[name] == (4, 17)
    assert not program.annotations
    assert align_buffers(program) is program
    check_equal(matmul_program, program)


def test_virtual_threads_are_interleaved(matmul_program: ir.LoopProgram, check_equal: Check) -> None:
    s = Schedule(matmul_program)
    i, j, k = s.loops("product")
    thread, inner = s.split(i, (2, None))
    s.vthread(thread)
    outer_k, inner_k = s.split(k, (None, 5))
    s.reorder(outer_k, inner, j, inner_k)
    s.compute_at(s.cache_read("product", "a", "local"), outer_k)
    program = lower_vthreads(compacted(s))
    assert {"a_local_0", "a_local_1"} <= shapes(program).keys()
    assert not [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VTHREAD]
    check_equal(matmul_program, program)


def test_threads_keep_their_own_buffers_in_tasks() -> None:
    """A buffer that a task allocates is one for each thread, so that tasks of two threads may overlap."""
    program = parse("""
program own(x: int32[2, 8]) -> (y: int32[2, 8]):
  for t in 2, vthread, "tasks" = true:
    alloc s: int32[8]
    for i in 8:
      s[i] = x[t, i]
    for i in 8:
      alloc r: int32[]
      r[] = (s[i] + 1)
      y[t, i] = r[]
""")
    lowered = lower_vthreads(program)
    assert set(shapes(lowered)) == {"s_0", "s_1", "r_0", "r_1"}
    x = np.arange(16, dtype=np.int32).reshape(2, 8)
    np.testing.assert_array_equal(interp.run(lowered, [x])[0], x + 1)
    assert isinstance(lowered.body, ir.Alloc)
    loops = [stmt for stmt in ir.walk_stmts(lowered.body) if isinstance(stmt, ir.For)]
    assert len(loops) == 4


def test_tasks_lie_inside_virtual_threads(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, j, _ = s.loops("product")
    with pytest.raises(ScheduleError, match="expected a tasks loop inside loop i1, got i0 outside it"):
        s.vthread(j, i)


def test_register_tile(matmul_program: ir.LoopProgram, check_equal: Check) -> None:
    """The micro-kernel of every dense library: a tile of accumulators in registers."""
    s = Schedule(matmul_program)
    registers = s.cache_write("product", "register")
    i, j, k = s.loops("product")
    i_0, j_0, i_1, j_1 = s.tile((i, j), (4, 4))
    s.reverse_compute_at(registers, j_0)
    s.reverse_compute_at("c", j_0)
    s.reorder(k, i_1, j_1)
    s.decompose_reduction("product", k)
    for block in ("product_init", "product", registers):
        *_, row, column = s.loops(block)
        s.unroll(row)
        s.vectorize(column)
    s.parallel(i_0)
    program = finish(s.program)
    assert shapes(program)["product_register"] == (4, 4)
    check_equal(matmul_program, program)
    assert unroll_loops(program) is program
