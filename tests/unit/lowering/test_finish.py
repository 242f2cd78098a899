"""The last steps before code is generated."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlaid.lowering.kernels.finish import finish, kernel_passes
from inlaid.lowering.kernels.plain import ANY, hoist_scratch
from inlaid.plugins import Capabilities, Threads
from inlaid.tensor import interp, ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid.tensor.region import size_vars
from inlaid.tensor.transform.float64_operands import INTERMEDIATE_FLOAT64
from inlaid.tensor.transform.launches import split_launches
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype

STACK_BYTES = ANY.stack_bytes
BIG = STACK_BYTES // 8 + 1
HUGE = ANY.thread_stack_bytes // 8 + 1
I64 = "int64"


def program(kind: ir.ForKind, size: Any, scope: str = "") -> ir.LoopProgram:
    """Each iteration fills a buffer and stores its last element."""
    x, y = ir.Buffer("x", (4,), dtype(I64)), ir.Buffer("y", (4,), dtype(I64))
    b = Builder()
    with b.loop(4, "i", kind) as i:
        tmp = b.alloc((size,), I64, scope=scope)
        b.store(tmp, 0, x[i])
        b.store(y, i, tmp[0] + te.const(1, I64))
    return ir.LoopProgram("kernel", (x,), (y,), b.finish(), sizes=(size,) if isinstance(size, SizeVar) else ())


def allocated(kernel: ir.LoopProgram) -> int:
    return sum(isinstance(stmt, ir.Alloc) for stmt in ir.walk_stmts(kernel.body))


def kinds(kernel: ir.LoopProgram) -> list[ir.ForKind]:
    return [stmt.kind for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.For)]


@pytest.mark.parametrize(
    ("kind", "size", "hoisted"),
    [
        (ir.ForKind.SERIAL, 1, False),
        (ir.ForKind.SERIAL, BIG, True),
        (ir.ForKind.SERIAL, SizeVar("n", 1), True),
        (ir.ForKind.PARALLEL, BIG, False),
        (ir.ForKind.PARALLEL, HUGE, True),
        (ir.ForKind.PARALLEL, SizeVar("n", 1), True),
        (ir.ForKind.VECTORIZED, BIG, False),
    ],
)
def test_who_holds_buffers(kind: ir.ForKind, size: Any, hoisted: bool) -> None:
    """The caller holds what is large; iterations that run at once keep theirs, unless no stack could."""
    kernel = program(kind, size)
    hoisted_kernel = hoist_scratch(kernel)
    assert (len(hoisted_kernel.outputs), allocated(hoisted_kernel)) == ((2, 0) if hoisted else (1, 1))
    assert hoisted or hoisted_kernel is kernel
    assert kinds(hoisted_kernel) == [ir.ForKind.SERIAL if hoisted else kind]
    sizes = {} if isinstance(size, int) else {size: 3}
    assert size_vars(hoisted_kernel) == size_vars(kernel) == tuple(sizes)
    x = np.arange(4)
    np.testing.assert_array_equal(interp.run(hoisted_kernel, [x], sizes)[0], interp.run(kernel, [x], sizes)[0])


def test_targets_say_what_stacks_hold() -> None:
    large, small = Capabilities((), stack_bytes=1 << 20), Capabilities((), thread_stack_bytes=8)
    kernel = program(ir.ForKind.SERIAL, BIG)
    assert hoist_scratch(kernel, large) is kernel
    kernel = program(ir.ForKind.PARALLEL, BIG)
    assert kinds(hoist_scratch(kernel, small)) == kinds(kernel_passes(small)[-1].run(kernel)) == [ir.ForKind.SERIAL]


def bound(size: Any, axis: str, scope: str = "") -> ir.LoopProgram:
    """`program` with its loop bound to an axis of threads."""
    kernel = program(ir.ForKind.THREAD, size, scope)
    assert isinstance(kernel.body, ir.For)
    return replace(kernel, body=replace(kernel.body, thread=axis))


@pytest.mark.parametrize("size", [BIG, SizeVar("n", 1)])
@pytest.mark.parametrize("axis", ["threadIdx.x", "blockIdx.x"])
def test_threads_share_no_scratch(size: Any, axis: str) -> None:
    message = re.escape(f"for each iteration of loop i, found {size} elements of int64 in main memory; give it a memory scope")
    with pytest.raises(ScheduleError, match=f"buffer tmp1: expected at most {STACK_BYTES} bytes {message}"):
        hoist_scratch(bound(size, axis))


def test_threads_keep_small_buffers_and_those_in_scopes() -> None:
    for kernel in (bound(STACK_BYTES // 8, "threadIdx.x"), bound(BIG, "blockIdx.x", "shared")):
        assert hoist_scratch(kernel) is kernel


def test_scratch_inside_a_serial_loop_of_a_thread() -> None:
    """Threads around a loop around the allocation."""
    inner = program(ir.ForKind.SERIAL, BIG)
    around = ir.For(arith.Var("t"), arith.Const(1), inner.body, ir.ForKind.THREAD, "threadIdx.x")
    with pytest.raises(ScheduleError, match="iteration of loop t"):
        hoist_scratch(replace(inner, body=around))


def test_virtual_threads_have_scratch_of_their_own() -> None:
    kernel = program(ir.ForKind.VTHREAD, BIG)
    with pytest.raises(ScheduleError, match="iteration of loop i"):
        hoist_scratch(kernel)
    x, y = kernel.params
    t, tmp = arith.Var("t"), ir.Buffer("tmp", (2, BIG), dtype(I64))
    j, k = arith.Var("j"), arith.Var("k")
    fill = ir.For(j, arith.Const(BIG), ir.Store(tmp, (t, j), x[t]))
    last = ir.Store(y, (t,), tmp[t, arith.Const(BIG - 1)])
    rest = ir.For(k, arith.Const(2), ir.Store(y, (k + 2,), x[k + 2]))
    body = ir.Alloc(tmp, ir.Seq((ir.For(t, arith.Const(2), ir.Seq((fill, last)), ir.ForKind.VTHREAD), rest)))
    finished_kernel = finish(replace(kernel, body=body))
    assert len(finished_kernel.outputs) == 3 and not allocated(finished_kernel)
    np.testing.assert_array_equal(interp.run(finished_kernel, [np.arange(4)])[0], np.arange(4))


def test_registers_stay() -> None:
    kernel = program(ir.ForKind.SERIAL, BIG, scope="register")
    assert hoist_scratch(kernel) is kernel


def test_scratch_comes_before_defined_sizes() -> None:
    extent = SizeVar("?k", 0, 4)
    x, y, size = ir.Buffer("x", (4,), dtype(I64)), ir.Buffer("y", (extent,), dtype(I64)), ir.Buffer("size", (), dtype(I64))
    b = Builder()
    tmp = b.alloc((BIG,), I64)
    b.store(tmp, 0, te.const(2, I64))
    with b.if_(x[0] < 5):
        b.store(size, (), tmp[0])
    with b.else_():
        b.store(size, (), te.const(0, I64))
    with b.loop(extent, "i") as i:
        b.store(y, i, x[i])
    hoisted_kernel = hoist_scratch(ir.LoopProgram("kernel", (x,), (y, size), b.finish(), ((extent, size),)))
    assert [buffer.name for buffer in hoisted_kernel.outputs] == ["y", "tmp1", "size"]
    assert interp.run(hoisted_kernel, [np.arange(4)])[0].tolist() == [0, 1]


def test_one_buffer_allocated_twice() -> None:
    """Code that was copied allocates the same buffer at several places: it is one output."""
    kernel = program(ir.ForKind.SERIAL, BIG)
    twice = ir.LoopProgram("kernel", kernel.inputs, kernel.outputs, ir.Seq((kernel.body, kernel.body)))
    assert len(hoist_scratch(twice).outputs) == 2


def test_finished_programs_are_plain() -> None:
    """No blocks, no unrolled loops, and the same answer."""
    x = te.placeholder((6, 5), "int32", "x")
    k = te.reduce_axis(5, "k")
    total = te.compute((6,), lambda i: te.sum_(x[i, k], k), "total")
    kernel = lower([te.compute((6,), lambda i: total[i] * 2, "twice")], [x], "kernel")
    finished_kernel = finish(kernel)
    assert not any(isinstance(stmt, ir.Block) for stmt in ir.walk_stmts(finished_kernel.body))
    value = np.arange(30, dtype=np.int32).reshape(6, 5)
    np.testing.assert_array_equal(interp.run(finished_kernel, [value])[0], interp.run(kernel, [value])[0])


@pytest.mark.parametrize(
    ("dtype_name", "full_rate", "marked"), [("float32", False, True), ("float64", False, False), ("float32", True, False)]
)
def test_programs_without_float64_operands_are_marked(dtype_name: str, full_rate: bool, marked: bool) -> None:
    """Also if float64 intermediates become scratch buffers, and in all launches of the program."""
    x = te.placeholder((BIG,), dtype_name, "x")
    wide = te.compute((BIG,), lambda i: te.cast(x[i], "float64") * 3, "wide")
    program_before = lower([te.compute((BIG,), lambda i: te.cast(wide[BIG - 1 - i], dtype_name), "y")], [x], "kernel")
    finished_kernel = finish(
        program_before, able=Capabilities(("float32", "float64"), threads=Threads(), stack_bytes=0, full_rate_float64=full_rate)
    )
    assert any(buffer.dtype.name == "float64" for buffer in finished_kernel.outputs)
    kernels = [kernel.program for kernel in split_launches(finished_kernel, ()).kernels.values()]
    assert [INTERMEDIATE_FLOAT64 in item.annotations for item in (finished_kernel, *kernels)] == [marked] * (1 + len(kernels))


@pytest.mark.parametrize(
    "able", [Capabilities(("float32",)), Capabilities(("float32",), threads=Threads(), full_rate_float64=False)]
)
def test_totals_of_long_sums_are_float64_where_integers_compute_it(able: Capabilities) -> None:
    x, k = te.placeholder((20_000,), "float32", "x"), te.reduce_axis(20_000, "k")
    finished_kernel = finish(lower([te.compute((1,), lambda i: te.sum_(x[k], k), "y")], [x], "kernel"), able=able)
    totals = {stmt.buffer.dtype.name for stmt in ir.walk_stmts(finished_kernel.body) if isinstance(stmt, ir.Store)}
    assert ("float64" in totals) == (not able.full_rate_float64)
