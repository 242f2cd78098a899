"""A primitive that cannot be applied says which loop, buffer or index is in the way, shows the program, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype


def fails(schedule: Schedule, match: str, attempt: Callable[[], object], marked: bool = True) -> None:
    before = schedule.program
    with pytest.raises(ScheduleError, match=match) as caught:
        attempt()
    assert schedule.program is before
    text = str(caught.value)
    assert f"program {before.name}(" in text
    assert ("^^^" in text) is marked


def test_loops(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, j, k = s.loops("product")
    other = s.loops("c")[0]
    fails(s, r"factors \(2, 2\) do not cover loop i0 of extent 8", lambda: s.split(i, (2, 2)))
    fails(s, "factors for loop i0 must be positive", lambda: s.split(i, (None, None)))
    fails(s, "loop k is not directly inside loop i0", lambda: s.fuse(i, k))
    fails(s, "must be nested in one another", lambda: s.reorder(i, other))
    fails(s, "needs distinct loops", lambda: s.reorder(i, i), marked=False)
    fails(s, "got 1 for 2 loops", lambda: s.tile((i, j), (2,)), marked=False)
    s.unroll(j)
    fails(s, "loop i1 is already unrolled", lambda: s.split(j, (None, 2)))
    s.split(i, (None, 2))
    fails(s, "unknown loop i0; an earlier primitive may have replaced it", lambda: s.unroll(i), marked=False)
    fails(s, "unknown block nowhere", lambda: s.loops("nowhere"), marked=False)


def test_marks(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, j, k = s.loops("product")
    fails(s, "loop k are not independent: block product reduces over k", lambda: s.parallel(k))
    fails(s, "loop k are not independent", lambda: s.vectorize(k))
    s.vectorize(j)
    fails(s, "loop i0 cannot be vectorized: loop i1 already is", lambda: s.vectorize(i))
    s.bind(i, "threadIdx.x")
    fails(s, "loop i1 cannot be bound to threadIdx.x: loop i0 already is", lambda: s.bind(j, "threadIdx.x"))
    fails(s, "loop i0 is already thread", lambda: s.parallel(i))


def test_iterations_that_overlap_are_not_independent(chain_program: ir.LoopProgram) -> None:
    s = Schedule(chain_program)
    outer, _ = s.split(s.loops("d")[0], (None, 4))
    s.compute_at("c", outer)
    s.parallel(outer)  # each iteration has a buffer of its own
    s = Schedule(chain_program)
    (i,) = s.loops("d")
    first, second = s.split(s.loops("c")[0], (4, 4))
    s.reorder(second, first)
    s.fuse(second, first)
    fails(s, "already", lambda: s.compute_at("d", i))


def test_symbolic_extents_cannot_be_unrolled() -> None:
    n = arith.SizeVar("n")
    out = ir.Buffer("out", (n,), dtype("int32"))
    i, v = arith.Var("i"), arith.Var("v")
    region = ir.BufferRegion(out, ((v, arith.ONE),))
    block = ir.Block("b", (ir.IterVar(v, n),), (i,), (), (region,), ir.Store(out, (v,), ir.const(0, "int32")))
    s = Schedule(ir.LoopProgram("p", (), (out,), ir.For(i, n, block)))
    fails(s, "the extent of loop i must be constant, got n; split it first", lambda: s.unroll(i))
    outer, inner = s.split(i, (None, 4))
    s.vectorize(inner)
    s.parallel(outer)


def test_blocks(matmul_program: ir.LoopProgram, conv_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, _, k = s.loops("product")
    fails(s, "cannot inline block product, which reduces; use compute_at", lambda: s.compute_inline("product"))
    fails(s, "cannot inline c, an output of the program", lambda: s.compute_inline("c"), marked=False)
    fails(s, "cannot inline block product, which reduces", lambda: s.reverse_compute_inline("c"))
    fails(s, "must not write an output of the program, found c; use reverse_compute_at", lambda: s.compute_at("c", i))
    fails(s, "block product is not complete inside loop k: k iterates over k", lambda: s.reverse_compute_at("c", k))
    fails(s, "block c has no init", lambda: s.decompose_reduction("c", s.loops("c")[0]))
    fails(s, "block c does not read a", lambda: s.cache_read("c", "a"))
    fails(s, "expected one buffer named nothing, found none", lambda: s.cache_read("c", "nothing"), marked=False)
    fails(s, "expected an intermediate buffer, got parameter a", lambda: s.set_scope("a", "shared"), marked=False)
    s = Schedule(conv_program)
    h = s.loops("padded")[2]
    fails(s, "block conv uses padded outside loop i2|reads more of padded", lambda: s.reverse_compute_at("conv", h))


def test_reductions(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, _, k = s.loops("product")
    outer, inner = s.split(k, (None, 2))
    fails(
        s,
        "loops around k_1 must not reduce block product; choose an outer loop",
        lambda: s.decompose_reduction("product", inner),
    )
    fails(s, "loop i0 must be part of the reduction of block product", lambda: s.rfactor("product", i))
    fails(s, "axis must be in .*, got 5", lambda: s.rfactor("product", outer, 5))


def test_layouts(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    fails(
        s,
        "elements that differ in j get the same index",
        lambda: s.transform_layout("product", "(i, j) -> (i, (j // 4))"),
        False,
    )
    fails(s, "must map 2 indices, the dimensions of product", lambda: s.transform_layout("product", "(i) -> (i)"), False)
    fails(s, "fill must be None for input a", lambda: s.transform_layout("a", "(i, j) -> ((i // 3), j, (i % 3))", 0), False)
    fails(s, "got 1, 16, 0|got 1, 0, 16", lambda: s.storage_align("product", 1, 16), False)
    fails(s, "owned buffers must be inputs, got c", lambda: s.pad("product", (1, 1, 4), ("c",)))
    s.split(s.loops("product")[0], (None, 2))
    fails(s, "pad before other primitives", lambda: s.pad("product", (1, 1, 4)))


def test_what_does_not_match_an_intrinsic_is_named(matmul_program: ir.LoopProgram) -> None:
    a, b, c = (ir.Buffer(name, (4,), dtype("int32")) for name in "abc")
    builder = Builder()
    with builder.loop(4, "i") as i:
        builder.store(c, i, c[i] + a[i] * b[i])
    vector = TensorIntrin("vector", ir.LoopProgram("vector", (a, b), (c,), builder.finish()))
    s = Schedule(matmul_program, (vector,))
    row, column, k = s.loops("product")
    outer, inner = s.split(column, (None, 4))
    s.reorder(row, outer, k, inner)
    fails(
        s,
        "loop i1_1 does not match intrinsic vector: expected index 1 of a to vary as index 0 of a",
        lambda: s.tensorize(inner, "vector"),
    )
    with pytest.raises(ScheduleError, match="unknown intrinsic other; known: vector"):
        s.tensorize(inner, "other")
    fails(s, "expected 1 loops, found 2", lambda: s.tensorize(k, "vector"))


def test_pipelines(matmul_program: ir.LoopProgram, chain_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program)
    i, _, k = s.loops("product")
    fails(s, "the buffer of block product must be allocated directly in a loop", lambda: s.double_buffer("product"))
    fails(s, "stages must hold a number >= 0 for each of 1 statements, got", lambda: s.software_pipeline(i, (0, 1)))
    fails(s, "product, which block product writes, must be allocated directly", lambda: s.rolling_buffer("product"))
    fails(s, "block c is not inside loop k", lambda: s.prefetch("c", "product", k, 1))
    s = Schedule(chain_program)
    outer, _ = s.split(s.loops("d")[0], (None, 4))
    s.compute_at("c", outer)
    fails(s, "stage 0 of loop i0_0 uses c, which stage 1 writes", lambda: s.software_pipeline(outer, (1, 0)))
