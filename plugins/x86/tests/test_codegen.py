"""Statements and memory accesses in native code, held to the interpreter: vectors, masks, checks, threads, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.lowering.kernels.finish import finish
from inlaid.tensor import interp, ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid.tensor.region import RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, SizeVar, Var
from inlaid_runtime.errors import CompileError, KernelFault, Unsupported
from inlaid_runtime.types import dtype
from inlaid_x86_runtime.options import X86Options

from .native import PLAIN, Array, Native, check, compile_region, make_region, run_reference

NATIVE = X86Options(threads=1)
TWO = X86Options(threads=2, cpu="x86-64-v2")
F32, I32, I64, BOOL = "float32", "int32", "int64", "bool"
VECTOR, PARALLEL = ir.ForKind.VECTORIZED, ir.ForKind.PARALLEL
LANES = (1, 3, 5, 8, 16, 20)
Make = Callable[[Builder, tuple[ir.Buffer, ...], tuple[ir.Buffer, ...]], None]


def buffers(prefix: str, specs: list[tuple[tuple[Any, ...], str]]) -> tuple[ir.Buffer, ...]:
    return tuple(ir.Buffer(f"{prefix}{number}", shape, dtype(dtype_name)) for number, (shape, dtype_name) in enumerate(specs))


def program(
    inputs: list[tuple[tuple[Any, ...], str]], outputs: list[tuple[tuple[Any, ...], str]], make: Make, **facts: Any
) -> ir.LoopProgram:
    """A loop program that `make` writes statement by statement."""
    input_buffers, output_buffers = buffers("x", inputs), buffers("y", outputs)
    b = Builder()
    make(b, input_buffers, output_buffers)
    return ir.LoopProgram("kernel", input_buffers, output_buffers, b.finish(), **facts)


def faults(kernel: ir.LoopProgram, *inputs: Array, options: X86Options = PLAIN) -> None:
    """Native code and interpreter refuse the inputs."""
    with pytest.raises(KernelFault):
        interp.run(kernel, inputs)
    with pytest.raises(KernelFault, match=r"an index is out of range in kernel kernel at node0"):
        Native([kernel], options).run(inputs)


# --- vectors ----------------------------------------------------------------------------------------------------------

N = 240


def lane_loop(lanes: int, body: Callable[[Builder, Any, Any], None]) -> Make:
    """for outer: for lane in vectors: body(the index, the lane)."""

    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(N // lanes, "outer") as outer, b.loop(lanes, "lane", VECTOR) as lane:
            body(b, (inputs, outputs), outer * lanes + lane)

    return make


def read(index: Callable[[Any], Any], guard: Callable[[Any], Any] | None = None) -> Callable[[Builder, Any, Any], None]:
    """y[i] = x[index(i)], where the guard holds."""

    def body(b: Builder, both: Any, i: Any) -> None:
        (x, *_), (y,) = both
        value: ir.Expr = x[index(i)]
        if guard is not None:
            value = te.select(guard(i), value, te.const(7, x.dtype))
        b.store(y, i, value)

    return body


def write(index: Callable[[Any], Any], guard: Callable[[Any], Any] | None = None) -> Callable[[Builder, Any, Any], None]:
    """y[index(i)] = x[i], where the guard holds; y is cleared before."""

    def body(b: Builder, both: Any, i: Any) -> None:
        (x, *_), (y,) = both
        if guard is None:
            b.store(y, index(i), x[i])
        else:
            with b.if_(guard(i)):
                b.store(y, index(i), x[i])
            with b.else_():
                b.store(y, index(i), te.const(3, x.dtype))

    return body


def even(i: Any) -> ir.Expr:
    return ir.as_expr(arith.compare("==", arith.floormod(i, 2), 0), dtype(BOOL))


def below(limit: int) -> Callable[[Any], ir.Expr]:
    return lambda i: ir.as_expr(arith.compare("<", i, limit), dtype(BOOL))


PATTERNS: dict[str, Callable[[Builder, Any, Any], None]] = {
    "contiguous": read(lambda i: i),
    "offset": read(lambda i: i + 3),
    "stride 2": read(lambda i: i * 2),
    "reverse": read(lambda i: N - 1 - i),
    "broadcast": read(lambda i: arith.wrap(5)),
    "runs": read(lambda i: i // 4),
    "wrapped": read(lambda i: (i * 7) % 11),
    "clamped": read(lambda i: arith.minimum(arith.maximum(i - 10, 0), 30)),
    "chosen": read(lambda i: arith.select(arith.compare("<", i, 20), i + 1, i * 2)),
    "guarded": read(lambda i: i - 4, lambda i: ir.as_expr(arith.compare("<=", 4, i), dtype(BOOL))),
    "guarded far outside": read(lambda i: i * 100_000_000, below(1)),
    "guarded by parity": read(lambda i: i * 2 + 1, even),
    "guarded broadcast": read(lambda i: i // 64 + N * 3, lambda i: ir.as_expr(arith.ZERO, dtype(BOOL))),
    "never read": read(lambda i: arith.wrap(1 << 40), lambda i: below(0)(i)),
    "store contiguous": write(lambda i: i),
    "store stride 2": write(lambda i: i * 2),
    "store reverse": write(lambda i: 2 * N - 1 - i),
    "store masked": write(lambda i: i, even),
    "store masked strided": write(lambda i: i * 2, below(33)),
}


@pytest.mark.parametrize("dtype_name", [F32, "int8", "uint64", BOOL])
@pytest.mark.usefixtures("host")
def test_vector_accesses(dtype_name: str) -> None:
    kernels, inputs, partial = [], [], set()
    for name, body in PATTERNS.items():
        for lanes in LANES:
            wide = name in ("store stride 2", "store reverse", "store masked strided")
            if wide:
                partial.add(len(kernels))
            size = 2 * N if wide else N
            kernels.append(program([((3 * N,), dtype_name)], [((size,), dtype_name)], lane_loop(lanes, body)))
            inputs.append(
                (np.arange(3 * N) % 97 % 2 if dtype_name == BOOL else np.arange(3 * N) % 97).astype(dtype(dtype_name).numpy)
            )
    actual, expected = Native(kernels, NATIVE).run(inputs), run_reference(kernels, inputs)
    for number, (array, right) in enumerate(zip(actual, expected, strict=True)):
        # What a kernel leaves alone is its caller's.
        written = np.ones(len(right), bool)
        if number in partial:
            written = np.zeros(len(right), bool)
            name = list(PATTERNS)[number // len(LANES)]
            written[{"store stride 2": slice(0, None, 2), "store reverse": slice(N, None)}.get(name, slice(0, None, 2))] = True
        np.testing.assert_array_equal(array[written], right[written])


@pytest.mark.parametrize("lanes", LANES)
def test_checked_indices_in_vectors(lanes: int) -> None:
    """Only lanes that are asked for are checked."""

    def gather(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        b.store(y, i, x[te.checked(at[i], 0, N - 1)])

    def masked(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        inside = at[i] >= 0
        b.store(y, i, te.select(inside, x[te.checked(at[i], 0, N - 1)], te.const(0, F32)))

    def masked_store(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        with b.if_(at[i] >= 0):
            b.store(y, i, x[te.checked(at[i], 0, N - 1)] + x[te.checked(at[0], -9, N - 1)])
        with b.else_():
            b.store(y, i, te.const(1, F32))

    def uniform_index(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        b.store(y, i, te.select(at[i] >= 0, x[te.checked(at[0], 0, N - 1)], te.const(0, F32)))

    def let(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        index = b.let(at[i] * te.const(2, I64), bounds=(-8, 2 * N))
        b.store(y, i, te.select(ir.as_expr(arith.compare("<=", 0, index), dtype(BOOL)), x[index // 2], te.const(0, F32)))

    def index_of_choice(b: Builder, both: Any, i: Any) -> None:
        (x, at), (y,) = both
        chosen = te.checked(at[i], 0, N - 1)
        b.store(y, i, x[arith.select(arith.compare("<", i, N // 2), chosen, i)])

    shapes = [((N,), F32), ((N,), I64)]
    x = np.arange(N, dtype=np.float32)
    good = np.random.default_rng(0).permutation(N)
    signed_indices = np.where(np.arange(N) % 3 == 1, -4, good)
    late = np.where(np.arange(N) < N // 2, good, 1 << 40)
    cases = [
        (gather, good),
        (masked, signed_indices),
        (masked_store, signed_indices),
        (uniform_index, signed_indices),
        (let, signed_indices),
        (index_of_choice, late),
    ]
    kernels = [program(shapes, [((N,), F32)], lane_loop(lanes, body)) for body, _ in cases]
    check(kernels, [array for _, at in cases for array in (x, at)])
    for body in (gather, masked, masked_store, let, index_of_choice):
        kernel = program(shapes, [((N,), F32)], lane_loop(lanes, body))
        for bad in (N + 100, 1 << 62):
            faults(kernel, x, np.where(np.arange(N) == 7, bad, signed_indices if body not in (gather,) else good))


def test_private_buffers_of_lanes() -> None:
    """A buffer allocated in a vectorized loop is each lane's own."""

    def body(b: Builder, both: Any, i: Any) -> None:
        (x,), (y,) = both
        tmp = b.alloc((3,), I32)
        at = b.alloc((), I64)
        for index in range(3):
            b.store(tmp, index, x[i] * te.const(index + 1, I32))
        with b.if_(x[i] > 20):
            b.store(tmp, 1, te.const(-5, I32))
        b.store(at, (), te.cast(x[i] % te.const(3, I32), I64))
        b.store(y, i, tmp[1] + tmp[te.checked(at[()], 0, 2)])

    kernels = [program([((N,), I32)], [((N,), I32)], lane_loop(lanes, body)) for lanes in LANES]
    check(kernels, [np.arange(N, dtype=np.int32)] * len(kernels))


def test_unrolled_loops_in_vectors() -> None:
    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (x,), (y,) = inputs, outputs
        with b.loop(5, "i") as i, b.loop(6, "lane", VECTOR) as lane, b.loop(2, "u", ir.ForKind.UNROLLED) as u:
            b.store(y, (i, lane * 2 + u), x[i, lane + u * 6] * te.const(2, F32))

    check([program([((5, 12), F32)], [((5, 12), F32)], make)], [np.arange(60, dtype=np.float32).reshape(5, 12)])


# --- statements -------------------------------------------------------------------------------------------------------


def collatz(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
    """How many steps until 1: a while loop over scratch memory."""
    (x,), (y,) = inputs, outputs
    value, count = b.alloc((), I64, "value"), b.alloc((), I64, "count")
    with b.loop(20, "i") as i:
        b.store(value, (), x[i])
        b.store(count, (), te.const(0, I64))
        with b.while_(value[()].not_equal(1)):
            odd = (value[()] & te.const(1, I64)).equal(1)
            b.store(value, (), te.select(odd, value[()] * te.const(3, I64) + te.const(1, I64), value[()] / te.const(2, I64)))
            b.store(count, (), count[()] + te.const(1, I64))
        b.store(y, i, count[()])


def insertion_sort(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
    (x,), (y,) = inputs, outputs
    with b.loop(20, "i") as i:
        position = b.alloc((), I64, "place")
        b.store(position, (), ir.as_expr(i, dtype(I64)))
        before = te.checked(position[()] - te.const(1, I64), 0, 19)
        with b.while_(te.select(position[()] > te.const(0, I64), y[before] > x[i], te.const(False, BOOL))):
            b.store(y, te.checked(position[()], 0, 19), y[before])
            b.store(position, (), position[()] - te.const(1, I64))
        b.store(y, te.checked(position[()], 0, 19), x[i])


def ragged(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
    """Loops whose extent is data, and changes while they run."""
    (x,), (y,) = inputs, outputs
    count = b.alloc((), I64, "count")
    with b.loop(20, "i") as i:
        b.store(y, i, te.const(0, I64))
    b.store(count, (), te.const(3, I64))
    with b.loop(3, "round"):
        # One index object, read anew in each round.
        with b.loop(te.checked(count[()], 0, 20), "j") as j:
            b.store(y, j, y[j] + x[j])
        b.store(count, (), count[()] * te.const(2, I64))


def branches(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
    (x,), (y,) = inputs, outputs
    with b.loop(20, "i") as i:
        with b.if_(x[i] > 50):
            inner = b.let(x[i] % te.const(5, I64), bounds=(0, 4))
            b.store(y, i, ir.as_expr(inner * 10 + i))
        with b.else_():
            with b.if_(ir.as_expr(arith.compare("<", i, 10), dtype(BOOL))):
                b.store(y, i, te.const(-1, I64))
            with b.else_():
                b.store(y, i, x[19 - i])


def several_nests(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
    """A parallel loop after others: it captures what is in scope there, and no more."""
    (x,), (y,) = inputs, outputs
    with b.loop(4, "i") as i, b.loop(5, "j") as j:
        b.store(y, i * 5 + j, x[i * 5 + j] + te.const(1, I64))
    with b.if_(x[0] > 0), b.loop(2, "u") as u, b.loop(2, "v") as v:
        b.store(y, u * 2 + v, y[u * 2 + v] * te.const(2, I64))
    with b.loop(2, "outer") as outer:
        first = b.let(x[outer], bounds=(-100, 100))
        with (
            b.loop(10, "p", PARALLEL) as p,
            b.loop(2, "q", PARALLEL) as q,
            b.if_(ir.as_expr(arith.compare("==", q, outer), dtype(BOOL))),
        ):
            b.store(y, p * 2 + q, y[p * 2 + q] * te.const(3, I64) + ir.as_expr(first))


MAKES = (collatz, insertion_sort, ragged, branches, several_nests)


@pytest.mark.parametrize("options", [PLAIN, TWO], ids=["one", "two"])
def test_statements(options: X86Options) -> None:
    x = np.random.default_rng(3).permutation(np.arange(1, 100, 5))
    kernels = [program([((20,), I64)], [((20,), I64)], make) for make in MAKES]
    check(kernels, [x] * len(kernels), options)


def test_loads_that_were_not_chosen() -> None:
    """A choice guards whatever is in it: loads, checks, choices in it, and indices that are themselves choices or conjunctions."""

    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (x, at), (y,) = inputs, outputs
        zero = te.const(0, F32)
        with b.loop(12, "i") as i:
            index = te.checked(at[i], 0, 11)
            good = at[i] < te.const(12, I64)
            b.store(y, (0, i), te.select(good, x[index], zero))
            b.store(y, (1, i), te.select(good, te.cast(ir.as_expr(index, dtype(I64)), F32), zero))
            b.store(y, (2, i), te.select(good, te.select(x[index] > 2, x[index] * te.const(2, F32), zero), te.const(-1, F32)))
            inside = arith.compare("<", i, 6)
            b.store(y, (3, i), x[arith.select(inside, te.checked(at[arith.minimum(i, 5)], 0, 11), i)])
            both = arith.logical_and(inside, arith.compare("<", te.checked(at[i], 0, 11), 4))
            b.store(y, (4, i), te.select(ir.as_expr(both, dtype(BOOL)), x[i], zero))

    x = np.arange(12, dtype=np.float32)
    at = np.where(np.arange(12) < 6, 11 - np.arange(12), 1 << 50)
    check([program([((12,), F32), ((12,), I64)], [((5, 12), F32)], make)], [x, at])


def test_faults() -> None:
    def let(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(20, "i") as i:
            index = b.let(inputs[0][i], bounds=(0, 19))
            b.store(outputs[0], i, inputs[0][index])

    def store(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(20, "i", PARALLEL) as i:
            b.store(outputs[0], te.checked(inputs[0][i], 0, 19), inputs[0][i])

    def extent(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(te.checked(inputs[0][3], 0, 20)) as i:
            b.store(outputs[0], i, inputs[0][i])

    for make in (let, store, extent):
        kernel = program([((20,), I64)], [((20,), I64)], make)
        for bad in (-1, 21, -(2**63), 2**63 - 1):
            x = np.arange(20)
            x[3] = bad
            faults(kernel, x)
            if make is store:
                faults(kernel, x, options=TWO)


def test_faults_end_the_region() -> None:
    """The first kernel that fails is named; those after it do not run, and the next run is not harmed."""

    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(4, "i", PARALLEL) as i:
            b.store(outputs[0], i, inputs[0][te.checked(inputs[0][i], 0, 3)])

    kernels = [program([((4,), I64)], [((4,), I64)], make) for _ in range(3)]
    for options in (PLAIN, TWO):
        native = Native(kernels, options)
        good, bad = np.array([3, 2, 1, 0]), np.array([0, 1, 9, 0])
        for _ in range(3):
            with pytest.raises(KernelFault, match="at node1"):
                native.run([good, bad, bad])
            np.testing.assert_array_equal(native.run([good] * 3), [good[good]] * 3)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_parallel_loops() -> None:
    """Threads change nothing: every kind of extent, captured indices and sizes, scratch memory of iterations."""
    n = SizeVar("n")

    def rows(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (x,), (y,) = inputs, outputs
        with b.loop(3, "outer") as outer, b.loop(n, "i", PARALLEL) as i:
            total = b.alloc((), F32)
            b.store(total, (), te.const(0, F32))
            with b.loop(7, "k") as k:
                b.store(total, (), total[()] + x[i, k] * te.cast(ir.as_expr(outer + i + n, dtype(I64)), F32))
            b.store(y, (outer, i), total[()])

    kernel = program([((n, 7), F32)], [((3, n), F32)], rows)
    native = Native([kernel], TWO)
    for size in (0, 1, 2, 15, 16, 17, 1000):
        x = np.random.default_rng(size).integers(-9, 9, (size, 7)).astype(np.float32)
        np.testing.assert_array_equal(native.run([x])[0], interp.run(kernel, [x])[0])


def test_many_parallel_runs() -> None:
    """Short jobs one after the other: the pool loses none."""

    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with b.loop(64, "i", PARALLEL) as i:
            b.store(outputs[0], i, inputs[0][i] + te.const(1, I64))

    native = Native([program([((64,), I64)], [((64,), I64)], make)], TWO)
    for start in range(3000):
        assert native.run([np.arange(start, start + 64)])[0][63] == start + 64


# --- sizes ------------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4))
def test_symbolic_sizes(rows: int, columns: int, times: int) -> None:
    x = np.random.default_rng(0).integers(-5, 5, (rows, columns)).astype(np.int32)
    actual = SYMBOLIC.run([x], {"t": times})
    expected = run_reference(SYMBOLIC_PROGRAMS, [x], {"t": times})
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def symbolic_programs() -> list[ir.LoopProgram]:
    n, m, t = SizeVar("n"), SizeVar("m"), SizeVar("t", 1)
    x = te.placeholder((n, m), I32, "x")
    k = te.reduce_axis(m, "k")
    total = te.compute((n,), lambda i: te.sum_(x[i, k], k), "total")
    turned = te.compute((m, n * t), lambda i, j: x[arith.floordiv(j, t), i] + te.cast(ir.as_expr(j % t, dtype(I64)), I32), "turned")
    padded = te.compute(
        (n + 2, arith.maximum(m, t)),
        lambda i, j: te.select(
            arith.logical_and(arith.logical_and(arith.compare("<=", 1, i), arith.compare("<=", i, n)), arith.compare("<", j, m)),
            x[i - 1, j],
            te.const(-1, I32),
        ),
        "padded",
    )
    return [lower([total, turned, padded], [x], "symbolic")]


SYMBOLIC_PROGRAMS = symbolic_programs()
SYMBOLIC = Native(SYMBOLIC_PROGRAMS, TWO)


def test_sizes_that_a_kernel_works_out() -> None:
    """Positive elements, then their squares in rows of the actual size."""
    n = SizeVar("n")
    count = SizeVar("?found", 0, n)

    def make(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (x,), (positives, table, size) = inputs, outputs
        b.store(size, (), te.const(0, I64))
        with b.loop(n, "i") as i, b.if_(x[i] > 0):
            b.store(size, (), size[()] + te.const(1, I64))
        position = b.alloc((), I64)
        b.store(position, (), te.const(0, I64))
        with b.loop(n, "i") as i, b.if_(x[i] > 0):
            b.store(positives, te.checked(position[()], 0, count - 1), x[i])
            b.store(position, (), position[()] + te.const(1, I64))
        with b.loop(2, "r") as r, b.loop(count, "c", PARALLEL) as c:
            b.store(table, (r, c), positives[c] * positives[count - 1 - c] + ir.as_expr(r, dtype(I64)))

    x, positives, table = (
        ir.Buffer("x", (n,), dtype(I64)),
        ir.Buffer("kept", (count,), dtype(I64)),
        ir.Buffer("t", (2, count), dtype(I64)),
    )
    size = ir.Buffer("size", (), dtype(I64))
    b = Builder()
    make(b, (x,), (positives, table, size))
    kernel = ir.LoopProgram("kernel", (x,), (positives, table, size), b.finish(), ((count, size),))
    for options in (PLAIN, TWO):
        native = Native([kernel], options)
        for values in ([], [0, 0], [1, -2, 3], list(range(-5, 40))):
            array = np.array(values, np.int64)
            expected = interp.run(kernel, [array])[:2]
            for a, c in zip(native.run([array]), expected, strict=True):
                np.testing.assert_array_equal(a, c)


# --- what cannot be printed -------------------------------------------------------------------------------------------


def refused(body: ir.Stmt, *, output: ir.Buffer) -> RegionProgram:
    return make_region([ir.LoopProgram("kernel", (), (output,), body)])


def test_clear_errors() -> None:
    y = ir.Buffer("y", (4,), dtype(F32))
    i, j = Var("i"), Var("j")
    store = ir.Store(y, (i,), te.const(0, F32))
    four = Const(4)
    big = ir.Buffer("big", (1 << 20,), dtype(F32))
    cases: list[tuple[ir.Stmt, type[Exception], str]] = [
        (
            ir.For(i, four, store, ir.ForKind.THREAD, "threadIdx.x"),
            Unsupported,
            "loop i: expected a loop kind of CPUs, found thread",
        ),
        (ir.For(i, arith.wrap(SizeVar("n")), store, VECTOR), CompileError, "unnested vectorized loop of constant extent"),
        (ir.For(i, four, ir.For(j, four, store, VECTOR), VECTOR), CompileError, "unnested vectorized loop of constant extent"),
        (ir.Intrinsic("vnni", ()), Unsupported, "found 'vnni'"),
        (ir.Alloc(big, ir.For(i, four, store)), CompileError, "at most 65536 bytes"),
        (ir.Store(y, (arith.ZERO,), ir.CallIntrinsic(dtype(F32), "fast", ())), CompileError, "CallIntrinsic"),
    ]
    for body, kind, message in cases:
        with pytest.raises(kind, match=message):
            compile_region(refused(body, output=y), PLAIN)


def test_equal_regions_give_equal_bytes() -> None:
    codes = [compile_region(make_region([finish(item) for item in symbolic_programs()]), PLAIN).code for _ in range(2)]
    assert codes[0] == codes[1]
