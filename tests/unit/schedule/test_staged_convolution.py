"""A packed convolution on decoupled access-execute hardware: three memories, a tensor intrinsic, two virtual threads and tokens."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest

from inlaid.tensor import interp, ir, te
from inlaid.tensor.analysis.memory_scopes import check_scopes
from inlaid.tensor.analysis.stages import Stage, Staged
from inlaid.tensor.analysis.tokens import check_tokens
from inlaid.tensor.lower import lower
from inlaid.tensor.parse import parse
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.tokens import insert_tokens
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import MemoryScope

GEMM = TensorIntrin(
    "gemm",
    parse("""
program gemm(a: int8[4], w: int8[4, 4]) -> (c: int32[4]):
  for o in 4:
    for k in 4:
      c[o] = (c[o] + (cast(int32, a[k]) * cast(int32, w[o, k])))
"""),
)
STAGES = (Stage("load", ("vta.inp", "vta.wgt")), Stage("compute", ("vta.acc",)), Stage("store", ("",)))
SCOPES = tuple(MemoryScope(name, "device", size) for name, size in (("vta.inp", 256), ("vta.wgt", 512), ("vta.acc", 512)))


def convolution() -> ir.LoopProgram:
    """3x3, 8 channels to 8, in blocks of 4."""
    x, w = te.placeholder((2, 6, 6, 4), "int8", "x"), te.placeholder((2, 2, 3, 3, 4, 4), "int8", "w")
    axes = ci, ky, kx, k = tuple(te.reduce_axis(extent, name) for extent, name in ((2, "ci"), (3, "ky"), (3, "kx"), (4, "k")))
    conv = te.compute(
        (2, 4, 4, 4),
        lambda co, i, j, o: te.sum_(x[ci, i + ky, j + kx, k].astype("int32") * w[co, ci, ky, kx, o, k].astype("int32"), axes),
        "conv",
    )
    return lower([te.compute((2, 4, 4, 4), lambda co, i, j, o: te.maximum(conv[co, i, j, o], 0), "relu")], [x, w], "packed")


def scheduled(program: ir.LoopProgram, threads: bool = True) -> ir.LoopProgram:
    """Halves of the channels as two virtual threads, whose tasks are the loads and the products of a block of input channels."""
    s = Schedule(program, (GEMM,))
    stored = s.cache_write("relu", "vta.acc")
    s.set_scope("conv", "vta.acc")
    thread, row, *_ = s.loops(stored)
    outer, _ = s.split(row, (None, 2))
    s.compute_at("relu", outer)
    s.compute_at("conv", outer)
    *_, i, j, o, ci, ky, kx, k = s.loops("conv")
    s.reorder(ci, ky, kx, i, j, o, k)
    s.decompose_reduction("conv", ci)
    for buffer, scope in (("x", "vta.inp"), ("w", "vta.wgt")):
        s.compute_at(s.cache_read("conv", buffer, scope), ci)
    s.tensorize(o, "gemm")
    if threads:
        s.vthread(thread, ci)
    return lower_vthreads(compact_buffers(simplify_program(flatten_blocks(s.program))))


def test_a_convolution_on_stages_that_run_apart() -> None:
    program = convolution()
    plain = scheduled(program)
    check_scopes(plain, SCOPES)
    staged = insert_tokens(plain, STAGES, SCOPES)
    random = np.random.default_rng(0)
    arrays = [random.integers(-8, 8, [int(str(dim)) for dim in buffer.shape]).astype(np.int8) for buffer in program.inputs]
    (expected,) = interp.run(program, arrays)
    intrinsics = {"gemm": GEMM.semantics}
    for seed in range(4):
        np.testing.assert_array_equal(interp.run(staged, arrays, intrinsics=intrinsics, seed=seed, stages=STAGES)[0], expected)
    # Both loads of one thread, then both of the other, two under way before the first product is done.
    names = [stmt.name for stmt in ir.walk_stmts(staged.body) if isinstance(stmt, ir.Intrinsic)]
    assert ", ".join(["push.compute.load"] * 2 + ["pop.compute.load", "push.load.compute"] * 2) in ", ".join(names)
    for queue in ("load.compute", "compute.load", "compute.store", "store.compute"):

        def dropped(stmt: ir.Stmt, queue: str = queue) -> ir.Stmt | None:
            return ir.Seq(()) if isinstance(stmt, ir.Intrinsic) and stmt.name.partition(".")[2] == queue else None

        with pytest.raises(VerifyError, match="without waiting until"):
            check_tokens(replace(staged, body=Rewriter(stmt=dropped).stmt(staged.body)), STAGES, SCOPES)


def steps(program: ir.LoopProgram) -> tuple[int, int]:
    """How long a program takes where each task takes one step, stages running apart, and how many tasks it has."""
    now, count = [0] * len(STAGES), 0
    tokens: dict[object, deque[int]] = defaultdict(deque)
    for task in Staged(program, STAGES).expand(lambda stmt, value: int(str(value))):
        if task.queue is None:
            now[task.stage] += 1
            count += 1
        elif task.push:
            tokens[task.queue].append(now[task.stage])
        else:
            now[task.stage] = max(now[task.stage], tokens[task.queue].popleft())
    return max(now), count


def test_virtual_threads_hide_loads() -> None:
    """With one thread loads, products and stores take turns; with two they overlap."""
    alone, together = (steps(insert_tokens(scheduled(convolution(), threads), STAGES)) for threads in (False, True))
    assert alone[1] == together[1]
    assert alone[0] > 0.8 * alone[1]
    assert together[0] < 0.8 * alone[0]
