"""Every schedule primitive, applied to a small program and printed, with the trace in front."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from inlaid.tensor import interp, ir, primitives, te
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.text import show
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime.types import dtype


def scale() -> ir.LoopProgram:
    a = te.placeholder((10,), "int32", "a")
    b = te.compute((10,), lambda i: a[i] * 2, "b")
    return lower([te.compute((10,), lambda i: b[i] + 1, "c")], [a], "scale")


def blur() -> ir.LoopProgram:
    a = te.placeholder((18,), "int32", "a")
    b = te.compute((18,), lambda i: a[i] * 2, "b")
    return lower([te.compute((16,), lambda i: b[i] + b[i + 1] + b[i + 2], "c")], [a], "blur")


def matmul() -> ir.LoopProgram:
    a, b = te.placeholder((8, 6), "int32", "a"), te.placeholder((6, 8), "int32", "b")
    k = te.reduce_axis(6, "k")
    product = te.compute((8, 8), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "product")
    return lower([te.compute((8, 8), lambda i, j: te.maximum(product[i, j], 0), "c")], [a, b], "matmul")


def multiply_add() -> TensorIntrin:
    """c[4] += a * b[4]."""
    a, b, c = (ir.Buffer(name, shape, dtype("int32")) for name, shape in (("a", ()), ("b", (4,)), ("c", (4,))))
    builder = Builder()
    with builder.loop(4, "i") as i:
        builder.store(c, i, c[i] + a[()] * b[i])
    return TensorIntrin("multiply_add", ir.LoopProgram("multiply_add", (a, b), (c,), builder.finish()))


def split(s: Schedule) -> None:
    s.split(s.loops("b")[0], (None, 4))
    s.split(s.loops("c")[0], (5, 2))


def fuse(s: Schedule) -> None:
    s.fuse(*s.loops("product")[:2])


def reorder(s: Schedule) -> None:
    i, _, k = s.loops("product")
    s.reorder(k, i)


def tile(s: Schedule) -> None:
    s.tile(s.loops("c"), (4, 2))


def marks(s: Schedule) -> None:
    i, j, k = s.loops("product")
    s.parallel(i)
    s.vectorize(j)
    s.unroll(k)
    i, j = s.loops("c")
    s.bind(i, "blockIdx.x")
    s.vthread(j)


def interleaved(s: Schedule, by_task: bool) -> None:
    """Two virtual threads that each fetch a part of `a` for each part of k."""
    thread, _ = s.split(s.loops("product")[0], (2, None))
    k_outer, k_inner = s.split(s.loops("product")[-1], (None, 3))
    _, inner, j, *_ = s.loops("product")
    s.reorder(k_outer, inner, j, k_inner)
    s.compute_at(s.cache_read("product", "a", "local"), k_outer)
    s.vthread(thread, *([k_outer] if by_task else []))


def vthread(s: Schedule) -> None:
    interleaved(s, by_task=True)


def vthread_lowered(s: Schedule) -> None:
    """The tasks, of a fetch and of the products, of one thread after those of the other."""
    interleaved(s, by_task=True)
    s.program = lower_vthreads(compact_buffers(simplify_program(flatten_blocks(s.program))))


def vthread_innermost(s: Schedule) -> None:
    """Without tasks, single stores of one thread after those of the other."""
    interleaved(s, by_task=False)
    s.program = lower_vthreads(compact_buffers(simplify_program(flatten_blocks(s.program))))


def compute_inline(s: Schedule) -> None:
    s.compute_inline("b")


def reverse_compute_inline(s: Schedule) -> None:
    s.reverse_compute_inline("c")


def compute_at(s: Schedule) -> None:
    outer, _ = s.split(s.loops("c")[0], (None, 4))
    s.compute_at("b", outer)


def reverse_compute_at(s: Schedule) -> None:
    i, _, _ = s.loops("product")
    s.reverse_compute_at("c", i)


def cache_read(s: Schedule) -> None:
    s.compute_at(s.cache_read("product", "a", "local"), s.loops("product")[0])


def cache_write(s: Schedule) -> None:
    s.reverse_compute_at(s.cache_write("c", "local"), s.loops("c")[0])


def set_scope(s: Schedule) -> None:
    s.set_scope("product", "local")


def decompose_reduction(s: Schedule) -> None:
    s.decompose_reduction("product", s.loops("product")[2])


def rfactor(s: Schedule) -> None:
    _, inner = s.split(s.loops("product")[2], (None, 2))
    s.rfactor("product", inner, 2)


def transform_layout(s: Schedule) -> None:
    s.transform_layout("b", "(i) -> ((i // 4), (i % 4))", 0)


def pad(s: Schedule) -> None:
    s.pad("product", (1, 3, 4))


def pad_owned(s: Schedule) -> None:
    """`b` grows by rows, which the test fills with zeros."""
    s.pad("product", (1, 1, 4), ("b",))


def storage_align(s: Schedule) -> None:
    s.storage_align("product", 0, 16, 1)


def blockize(s: Schedule) -> None:
    *_, inner_i, inner_j = s.tile(s.loops("product")[:2], (4, 4))
    k = s.loops("product")[-1]
    s.reorder(k, inner_i, inner_j)
    s.blockize(inner_i)


def tensorize(s: Schedule) -> None:
    i, j, k = s.loops("product")
    outer, inner = s.split(j, (None, 4))
    s.reorder(i, outer, k, inner)
    s.tensorize(inner, "multiply_add")


def double_buffer(s: Schedule) -> None:
    outer, _ = s.split(s.loops("c")[0], (None, 4))
    s.compute_at("b", outer)
    s.double_buffer("b")


def software_pipeline(s: Schedule) -> None:
    outer, _ = s.split(s.loops("c")[0], (None, 4))
    s.compute_at("b", outer)
    s.compute_at(s.cache_read("b", "a", "local"), outer)
    s.software_pipeline(outer, (0, 1, 2))


def rolling_buffer(s: Schedule) -> None:
    s.compute_at("b", s.loops("c")[0])
    s.rolling_buffer("b")


def prefetch(s: Schedule) -> None:
    s.prefetch("product", "b", s.loops("product")[2], 2)


CASES: tuple[tuple[Callable[[Schedule], None], Callable[[], ir.LoopProgram]], ...] = (
    (split, scale),
    (fuse, matmul),
    (reorder, matmul),
    (tile, matmul),
    (marks, matmul),
    (vthread, matmul),
    (vthread_lowered, matmul),
    (vthread_innermost, matmul),
    (compute_inline, scale),
    (reverse_compute_inline, scale),
    (compute_at, blur),
    (reverse_compute_at, matmul),
    (cache_read, matmul),
    (cache_write, matmul),
    (set_scope, matmul),
    (decompose_reduction, matmul),
    (rfactor, matmul),
    (transform_layout, scale),
    (pad, matmul),
    (pad_owned, matmul),
    (storage_align, matmul),
    (blockize, matmul),
    (tensorize, matmul),
    (double_buffer, blur),
    (software_pipeline, blur),
    (rolling_buffer, blur),
    (prefetch, matmul),
)


@pytest.mark.parametrize(("apply", "make"), CASES, ids=[case[0].__name__ for case in CASES])
def test_primitive(
    apply: Callable[[Schedule], None], make: Callable[[], ir.LoopProgram], golden: Callable[[str, str], None]
) -> None:
    program = make()
    intrinsic = multiply_add()
    schedule = Schedule(program, (intrinsic,))
    apply(schedule)
    golden(f"primitives/{apply.__name__}.txt", f"{schedule.trace}\n\n{show(schedule.program)}")
    semantics = {**primitives.SEMANTICS, intrinsic.name: intrinsic.semantics}
    inputs = [np.arange(np.prod(buffer.shape), dtype="int32").reshape(buffer.shape) % 7 - 3 for buffer in program.inputs]
    owned = [
        np.pad(array, [(0, new - old) for old, new in zip(array.shape, buffer.shape, strict=True)])
        for array, buffer in zip(inputs, schedule.program.inputs, strict=True)
    ]
    for actual, expected in zip(
        interp.run(schedule.program, owned, intrinsics=semantics), interp.run(program, inputs), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
