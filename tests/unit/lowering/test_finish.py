"""The last steps before code is generated."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlaid.lowering.kernels.finish import ANY, finish, hoist_scratch, plain
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


def allocated(made: ir.LoopProgram) -> int:
    return sum(isinstance(stmt, ir.Alloc) for stmt in ir.walk_stmts(made.body))


def kinds(made: ir.LoopProgram) -> list[ir.ForKind]:
    return [stmt.kind for stmt in ir.walk_stmts(made.body) if isinstance(stmt, ir.For)]


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
    made = program(kind, size)
    done = hoist_scratch(made)
    assert (len(done.outputs), allocated(done)) == ((2, 0) if hoisted else (1, 1))
    assert hoisted or done is made
    assert kinds(done) == [ir.ForKind.SERIAL if hoisted else kind]
    sizes = {} if isinstance(size, int) else {size: 3}
    assert size_vars(done) == size_vars(made) == tuple(sizes)
    x = np.arange(4)
    np.testing.assert_array_equal(interp.run(done, [x], sizes)[0], interp.run(made, [x], sizes)[0])


def test_targets_say_what_stacks_hold() -> None:
    large, small = Capabilities((), stack_bytes=1 << 20), Capabilities((), thread_stack_bytes=8)
    made = program(ir.ForKind.SERIAL, BIG)
    assert hoist_scratch(made, large) is made
    made = program(ir.ForKind.PARALLEL, BIG)
    assert kinds(hoist_scratch(made, small)) == kinds(plain(small)[-1].run(made)) == [ir.ForKind.SERIAL]


def bound(size: Any, axis: str, scope: str = "") -> ir.LoopProgram:
    """`program` with its loop bound to an axis of threads."""
    made = program(ir.ForKind.THREAD, size, scope)
    assert isinstance(made.body, ir.For)
    return replace(made, body=replace(made.body, thread=axis))


@pytest.mark.parametrize("size", [BIG, SizeVar("n", 1)])
@pytest.mark.parametrize("axis", ["threadIdx.x", "blockIdx.x"])
def test_threads_share_no_scratch(size: Any, axis: str) -> None:
    found = re.escape(f"for each iteration of loop i, found {size} elements of int64 in main memory; give it a memory scope")
    with pytest.raises(ScheduleError, match=f"buffer tmp1: expected at most {STACK_BYTES} bytes {found}"):
        hoist_scratch(bound(size, axis))


def test_threads_keep_small_buffers_and_those_in_scopes() -> None:
    for made in (bound(STACK_BYTES // 8, "threadIdx.x"), bound(BIG, "blockIdx.x", "shared")):
        assert hoist_scratch(made) is made


def test_scratch_inside_a_serial_loop_of_a_thread() -> None:
    """Threads around a loop around the allocation."""
    inner = program(ir.ForKind.SERIAL, BIG)
    around = ir.For(arith.Var("t"), arith.Const(1), inner.body, ir.ForKind.THREAD, "threadIdx.x")
    with pytest.raises(ScheduleError, match="iteration of loop t"):
        hoist_scratch(replace(inner, body=around))


def test_virtual_threads_have_scratch_of_their_own() -> None:
    made = program(ir.ForKind.VTHREAD, BIG)
    with pytest.raises(ScheduleError, match="iteration of loop i"):
        hoist_scratch(made)
    x, y = made.params
    t, tmp = arith.Var("t"), ir.Buffer("tmp", (2, BIG), dtype(I64))
    j, k = arith.Var("j"), arith.Var("k")
    fill = ir.For(j, arith.Const(BIG), ir.Store(tmp, (t, j), x[t]))
    last = ir.Store(y, (t,), tmp[t, arith.Const(BIG - 1)])
    rest = ir.For(k, arith.Const(2), ir.Store(y, (k + 2,), x[k + 2]))
    body = ir.Alloc(tmp, ir.Seq((ir.For(t, arith.Const(2), ir.Seq((fill, last)), ir.ForKind.VTHREAD), rest)))
    done = finish(replace(made, body=body))
    assert len(done.outputs) == 3 and not allocated(done)
    np.testing.assert_array_equal(interp.run(done, [np.arange(4)])[0], np.arange(4))


def test_registers_stay() -> None:
    made = program(ir.ForKind.SERIAL, BIG, scope="register")
    assert hoist_scratch(made) is made


def test_scratch_comes_before_defined_sizes() -> None:
    found = SizeVar("?k", 0, 4)
    x, y, size = ir.Buffer("x", (4,), dtype(I64)), ir.Buffer("y", (found,), dtype(I64)), ir.Buffer("size", (), dtype(I64))
    b = Builder()
    tmp = b.alloc((BIG,), I64)
    b.store(tmp, 0, te.const(2, I64))
    with b.if_(x[0] < 5):
        b.store(size, (), tmp[0])
    with b.else_():
        b.store(size, (), te.const(0, I64))
    with b.loop(found, "i") as i:
        b.store(y, i, x[i])
    done = hoist_scratch(ir.LoopProgram("kernel", (x,), (y, size), b.finish(), ((found, size),)))
    assert [buffer.name for buffer in done.outputs] == ["y", "tmp1", "size"]
    assert interp.run(done, [np.arange(4)])[0].tolist() == [0, 1]


def test_one_buffer_allocated_twice() -> None:
    """Code that was copied allocates the same buffer at several places: it is one output."""
    made = program(ir.ForKind.SERIAL, BIG)
    twice = ir.LoopProgram("kernel", made.inputs, made.outputs, ir.Seq((made.body, made.body)))
    assert len(hoist_scratch(twice).outputs) == 2


def test_finished_programs_are_plain() -> None:
    """No blocks, no unrolled loops, and the same answer."""
    x = te.placeholder((6, 5), "int32", "x")
    k = te.reduce_axis(5, "k")
    total = te.compute((6,), lambda i: te.sum_(x[i, k], k), "total")
    made = lower([te.compute((6,), lambda i: total[i] * 2, "twice")], [x], "kernel")
    done = finish(made)
    assert not any(isinstance(stmt, ir.Block) for stmt in ir.walk_stmts(done.body))
    value = np.arange(30, dtype=np.int32).reshape(6, 5)
    np.testing.assert_array_equal(interp.run(done, [value])[0], interp.run(made, [value])[0])


@pytest.mark.parametrize(
    ("of", "full_rate", "marked"), [("float32", False, True), ("float64", False, False), ("float32", True, False)]
)
def test_programs_without_float64_operands_are_marked(of: str, full_rate: bool, marked: bool) -> None:
    """Also if float64 intermediates become scratch buffers, and in all launches of the program."""
    x = te.placeholder((BIG,), of, "x")
    wide = te.compute((BIG,), lambda i: te.cast(x[i], "float64") * 3, "wide")
    made = lower([te.compute((BIG,), lambda i: te.cast(wide[BIG - 1 - i], of), "y")], [x], "kernel")
    done = finish(made, able=Capabilities(("float32", "float64"), threads=Threads(), stack_bytes=0, full_rate_float64=full_rate))
    assert any(buffer.dtype.name == "float64" for buffer in done.outputs)
    kernels = [kernel.program for kernel in split_launches(done, ()).kernels.values()]
    assert [INTERMEDIATE_FLOAT64 in item.annotations for item in (done, *kernels)] == [marked] * (1 + len(kernels))


@pytest.mark.parametrize(
    "able", [Capabilities(("float32",)), Capabilities(("float32",), threads=Threads(), full_rate_float64=False)]
)
def test_totals_of_long_sums_are_float64_where_integers_compute_it(able: Capabilities) -> None:
    x, k = te.placeholder((20_000,), "float32", "x"), te.reduce_axis(20_000, "k")
    done = finish(lower([te.compute((1,), lambda i: te.sum_(x[k], k), "y")], [x], "kernel"), able=able)
    totals = {stmt.buffer.dtype.name for stmt in ir.walk_stmts(done.body) if isinstance(stmt, ir.Store)}
    assert ("float64" in totals) == (not able.full_rate_float64)
