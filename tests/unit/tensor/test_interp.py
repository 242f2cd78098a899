"""The interpreter: value semantics of every dtype, and what it catches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.interp import evaluate_vector, run, values
from inlaid.tensor.lower import lower
from inlaid.tensor.primitives import TensorIntrin
from inlaid_runtime import arith
from inlaid_runtime.errors import InputError, KernelFault
from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]
INTEGERS = ["int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64"]
NARROW_FLOATS = ["float16", "bfloat16", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"]


def every(dtype_name: str) -> list[int]:
    """Values of an integer dtype: all of a small one, the borders and some between of others."""
    low, high = dtype(dtype_name).limits
    if high - low < 16:
        return list(range(low, high + 1))
    return [item for item in (low, low + 1, low // 3, -7, -1, 0, 1, 2, 3, 7, 31, high // 3, high - 1, high) if low <= item <= high]


def wrapped(value: int, dtype_name: str) -> int:
    low, high = dtype(dtype_name).limits
    return (value - low) % (high - low + 1) + low


def on_pairs(op: str, dtype_name: str) -> tuple[list[tuple[int, int]], list[int]]:
    pairs = [(a, b) for a in every(dtype_name) for b in every(dtype_name)]
    a, b = ir.Buffer("a", (), dtype(dtype_name)), ir.Buffer("b", (), dtype(dtype_name))
    arrays = {
        buffer: np.array([pair[k] for pair in pairs], values.carrier(dtype(dtype_name))).astype(dtype(dtype_name).numpy)
        for k, buffer in enumerate((a, b))
    }
    results = evaluate_vector(ir.binary(op, a[()], b[()]), arrays)
    return pairs, [int(item) for item in results]


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(a: int, b: int, dtype_name: str) -> int:
    return (-1 if a < 0 else 0) if not 0 <= b < dtype(dtype_name).bits else a >> b


@pytest.mark.parametrize("dtype_name", INTEGERS)
def test_integer_arithmetic(dtype_name: str) -> None:
    exact = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": truncated,
        "mod": lambda a, b: 0 if b == 0 else a - truncated(a, b) * b,
        "min": min,
        "max": max,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": lambda a, b: a << b if 0 <= b < dtype(dtype_name).bits else 0,
        "shr": lambda a, b: shifted(a, b, dtype_name),
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
    }
    assert set(exact) == set(ir.BINARY)
    for op, function in exact.items():
        pairs, actual = on_pairs(op, dtype_name)
        expected = [int(function(a, b)) for a, b in pairs]
        if op in ir.ARITHMETIC:
            expected = [wrapped(item, dtype_name) for item in expected]
        assert actual == expected, op


@pytest.mark.parametrize("dtype_name", INTEGERS)
def test_integer_unary(dtype_name: str) -> None:
    bits = dtype(dtype_name).bits
    exact = {
        "neg": lambda a: -a,
        "abs": abs,
        "not": lambda a: ~a,
        "popcount": lambda a: (a & ((1 << bits) - 1)).bit_count(),
        "clz": lambda a: bits - (a & ((1 << bits) - 1)).bit_length(),
    }
    buffer = ir.Buffer("a", (), dtype(dtype_name))
    array = np.array(every(dtype_name), values.carrier(dtype(dtype_name))).astype(dtype(dtype_name).numpy)
    for op, function in exact.items():
        actual = evaluate_vector(ir.unary(op, buffer[()]), {buffer: array})
        assert [int(item) for item in actual] == [wrapped(function(item), dtype_name) for item in every(dtype_name)], op


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dtype_name", INTEGERS)
def test_floats_truncate_and_saturate_to_integers(dtype_name: str, source: str) -> None:
    low, high = dtype(dtype_name).limits
    numbers = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 2.5, 7.9, -8.9, 1e4, -1e4, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        array = np.array(numbers).astype(source)
    buffer = ir.Buffer("a", (), dtype(source))
    actual = evaluate_vector(ir.cast(buffer[()], dtype_name), {buffer: array})
    for number, item in zip(array, actual, strict=True):
        number = float(number)
        exact = 0 if np.isnan(number) else high if number == np.inf else low if number == -np.inf else int(number)
        assert int(item) == min(max(exact, low), high)


def test_integers_wrap_to_narrower_ones() -> None:
    buffer = ir.Buffer("a", (), dtype("int64"))
    array = np.array([0, 1, -1, 7, 8, 127, 128, 255, 256, -129, 2**31, -(2**63)])
    for dtype_name in INTEGERS:
        actual = evaluate_vector(ir.cast(buffer[()], dtype_name), {buffer: array})
        assert [int(item) for item in actual] == [wrapped(int(item), dtype_name) for item in array]


def test_anything_but_zero_is_true() -> None:
    buffer = ir.Buffer("a", (), dtype("float32"))
    array = np.array([0, -0.0, 0.1, np.nan, -3], np.float32)
    assert evaluate_vector(ir.cast(buffer[()], "bool"), {buffer: array}).tolist() == [False, False, True, True, True]


@pytest.mark.parametrize("dtype_name", NARROW_FLOATS)
def test_narrow_floats_round_after_every_operation(dtype_name: str) -> None:
    rng = np.random.default_rng(2)
    kind = dtype(dtype_name).numpy
    a, b = ir.Buffer("a", (), dtype(dtype_name)), ir.Buffer("b", (), dtype(dtype_name))
    with np.errstate(all="ignore"):
        x, y = ((rng.standard_normal(500) * 4).astype(np.float32).astype(kind) for _ in range(2))
        for op, function in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
            actual = evaluate_vector(ir.binary(op, a[()], b[()]), {a: x, b: y})
            expected = function(x.astype(np.float64), y.astype(np.float64))
            # float64 holds these results to twice the digits: rounding them is rounding the exact ones.
            narrow = expected.astype(np.float32).astype(kind)
            np.testing.assert_array_equal(actual.astype(np.float32), narrow.astype(np.float32))


def test_casts_round_once() -> None:
    """A float64 just above the middle of two neighbors goes up, though it rounds to the middle in float32."""
    wide = ir.Buffer("a", (), dtype("float64"))
    for dtype_name, step in (("float16", 2.0**-10), ("bfloat16", 2.0**-7), ("float8e4m3fn", 2.0**-3)):
        array = np.array([1 + step / 2 + 2.0**-40, 1 + step / 2, -1 - step / 2 - 2.0**-40])
        actual = evaluate_vector(ir.cast(wide[()], dtype_name), {wide: array}).astype(np.float64)
        np.testing.assert_array_equal(actual, [1 + step, 1, -1 - step])


def test_min_and_max_of_floats_keep_nan() -> None:
    a, b = ir.Buffer("a", (), dtype("float32")), ir.Buffer("b", (), dtype("float32"))
    x, y = np.array([1, np.nan, 2, np.nan], np.float32), np.array([np.nan, 1, 3, np.nan], np.float32)
    np.testing.assert_array_equal(evaluate_vector(ir.minimum(a[()], b[()]), {a: x, b: y}), [np.nan, np.nan, 2, np.nan])
    np.testing.assert_array_equal(evaluate_vector(ir.maximum(a[()], b[()]), {a: x, b: y}), [np.nan, np.nan, 3, np.nan])


def test_rounding_is_to_nearest_even() -> None:
    a = ir.Buffer("a", (), dtype("float32"))
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4], np.float32)
    np.testing.assert_array_equal(evaluate_vector(ir.unary("round", a[()]), {a: x}), [0, 2, 2, -0.0, -2, 2])


def test_bitcasts() -> None:
    a = ir.Buffer("a", (), dtype("float32"))
    x = np.array([1.0, -2.5, np.nan], np.float32)
    np.testing.assert_array_equal(evaluate_vector(ir.bitcast(a[()], "uint32"), {a: x}), x.view(np.uint32))


# --- programs ---------------------------------------------------------------------------------------------------------


def program(inputs: list[ir.Buffer], outputs: list[ir.Buffer], builder: Builder) -> ir.LoopProgram:
    return ir.LoopProgram("f", tuple(inputs), tuple(outputs), builder.finish())


def buffer(name: str, *shape: arith.Dim, dtype_name: str = "float32") -> ir.Buffer:
    return ir.Buffer(name, shape, dtype(dtype_name))


@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16", "float8e4m3fn", "int32", "int4", "uint8"])
def test_memory_that_was_never_written_shows(dtype_name: str) -> None:
    out = buffer("out", 2, dtype_name=dtype_name)
    b = Builder()
    b.store(out, 1, ir.const(1, dtype_name))
    actual = run(program([], [out], b), [])[0]
    assert actual[1] == 1
    assert np.isnan(actual[0].astype(np.float32)) if dtype(dtype_name).is_float else int(actual[0]) != 0


def test_memory_allocated_in_a_loop_is_new_each_time() -> None:
    out = buffer("out", 2)
    b = Builder()
    with b.loop(2) as i:
        t = b.alloc((), "float32")
        with b.if_(arith.compare("==", i, 0)):
            b.store(t, (), 5.0)
        b.store(out, i, t[()])
    actual = run(program([], [out], b), [])[0]
    assert actual[0] == 5
    assert np.isnan(actual[1])


def test_while() -> None:
    x, out = buffer("x", dtype_name="int32"), buffer("out", dtype_name="int32")
    b = Builder()
    b.store(out, (), 1)
    with b.while_(out[()] < x[()]):
        b.store(out, (), out[()] * 2)
    assert run(program([x], [out], b), [np.array(100, np.int32)])[0] == 128


def test_store_outside_and_load_outside_are_caught() -> None:
    x, out = buffer("x", 3), buffer("out", 3)
    for target, source in ((3, 0), (-1, 0), (0, 3), (0, -1)):
        b = Builder()
        b.store(out, target, x[source])
        with pytest.raises(AssertionError, match="outside"):
            run(program([x], [out], b), [np.zeros(3, np.float32)])


def test_bounds_of_let() -> None:
    x, out = buffer("x", dtype_name="int64"), buffer("out", 4, dtype_name="int64")
    b = Builder()
    at = b.let(x[()], bounds=(0, 3))
    b.store(out, at, 7)
    assert run(program([x], [out], b), [np.array(2)])[0][2] == 7
    with pytest.raises(KernelFault):
        run(program([x], [out], b), [np.array(4)])


def test_an_index_checked_on_the_side_not_chosen_is_no_fault() -> None:
    for extent in (3, 64):
        x, at, out = buffer("x", 5), buffer("at", extent, dtype_name="int64"), buffer("out", extent)
        b = Builder()
        with b.loop(extent) as i:
            b.store(out, i, ir.select(at[i] < 5, x[ir.checked(at[i], 0, 4)], -1.0))
        where = np.resize(np.array([1, 7, 3]), extent)
        values_ = np.arange(5, dtype=np.float32)
        actual = run(program([x, at], [out], b), [values_, where])[0]
        np.testing.assert_array_equal(actual, np.where(where < 5, values_[np.minimum(where, 4)], -1))


def test_parallel_loops_with_a_dependence_differ_from_serial_ones() -> None:
    def running_sum(kind: ir.ForKind) -> Array:
        out = buffer("out", 4)
        b = Builder()
        b.store(out, 0, 1.0)
        with b.loop(3, kind=kind) as i:
            b.store(out, i + 1, out[i] + 1.0)
        return run(program([], [out], b), [])[0]

    np.testing.assert_array_equal(running_sum(ir.ForKind.SERIAL), [1, 2, 3, 4])
    assert np.isnan(running_sum(ir.ForKind.PARALLEL)).any()


def test_a_binding_outside_its_extent_is_caught() -> None:
    out = buffer("out", 8)
    i, v = arith.Var("i"), arith.Var("v")
    block = ir.Block("b", (ir.IterVar(v, arith.Const(5)),), (i,), (), (), ir.Store(out, (v,), te.const(1, "float32")))
    loop = ir.For(i, arith.Const(8), block)
    with pytest.raises(AssertionError, match="binding of v"):
        run(ir.LoopProgram("f", (), (out,), loop), [])
    guarded = ir.For(i, arith.Const(8), ir.Block(**{**_fields(block), "predicate": arith.compare("<", i, 5)}))
    assert np.nansum(run(ir.LoopProgram("f", (), (out,), guarded), [])[0]) == 5


def _fields(block: ir.Block) -> dict[str, Any]:
    return {name: getattr(block, name) for name in ("name", "iters", "bindings", "reads", "writes", "body", "init", "annotations")}


def test_loops_may_nest_deeper_than_python_allows() -> None:
    out = buffer("out", dtype_name="int64")
    b = Builder()
    b.store(out, (), 0)
    loops = [b.loop(2 if level in (3, 17, 29) else 1) for level in range(30)]
    variables = [loop.__enter__() for loop in loops]
    b.store(out, (), out[()] + ir.as_expr(variables[3] + variables[29] * 10))
    for loop in reversed(loops):
        loop.__exit__(None, None, None)
    assert run(program([], [out], b), [])[0] == 2 * (0 + 1 + 10 + 11)


def test_expressions_may_be_thousands_deep() -> None:
    x, out = buffer("x"), buffer("out")
    value: ir.Expr = x[()]
    for _ in range(3000):
        value = value + 1.0
    b = Builder()
    b.store(out, (), value)
    assert run(program([x], [out], b), [np.zeros((), np.float32)])[0] == 3000


def test_shared_values_are_computed_once() -> None:
    x, out = buffer("x"), buffer("out")
    value: ir.Expr = x[()]
    for _ in range(60):
        value = value + value
    b = Builder()
    b.store(out, (), value)
    assert run(program([x], [out], b), [np.ones((), np.float32)])[0] == 2.0**60


def test_whole_loops_at_once_agree_with_loops_one_by_one() -> None:
    a = te.placeholder((9, 11), "float32", "a")
    k = te.reduce_axis(11)
    sums = te.compute((9, 11), lambda i, j: te.sum_(a[i, k] * a[i, j], k), "s")
    b = te.compute((9, 11), lambda i, j: te.math("exp", sums[i, j] * 0.01) + sums[arith.floormod(i + 1, 9), j], "b")
    fast = lower([b], [a], "f")
    x = np.random.default_rng(0).standard_normal((9, 11)).astype(np.float32)

    def hidden(stmt: ir.Stmt) -> ir.Stmt:
        """Loops with a statement that keeps the interpreter from seeing that they are independent."""
        match stmt:
            case ir.For():
                return ir.For(stmt.var, stmt.extent, hidden(stmt.body))
            case ir.Block():
                return ir.If(te.const(True, "bool"), stmt)
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(map(hidden, stmts)))
            case ir.Alloc():
                return ir.Alloc(stmt.buffer, hidden(stmt.body))
        return stmt

    slow = ir.LoopProgram("f", fast.inputs, fast.outputs, hidden(fast.body))
    np.testing.assert_array_equal(run(fast, [x])[0], run(slow, [x])[0])


def test_tensor_intrinsics_run_their_semantic_nest() -> None:
    n = arith.SizeVar("n")
    x, scale, acc = buffer("x", n), buffer("scale"), buffer("acc")
    b = Builder()
    with b.loop(n) as i:
        b.store(acc, (), acc[()] + x[i] * scale[()])
    dot = ir.LoopProgram("dot", (x, scale), (acc,), b.finish())

    rows, out = buffer("rows", 3, 4), buffer("out", 3)
    b = Builder()
    with b.loop(3) as i:
        b.store(out, i, 10.0)
        source = ir.BufferRegion(rows, ((i, arith.ONE), (arith.ZERO, arith.Const(4))))
        b.emit(TensorIntrin("dot", dot).on(source, ir.BufferRegion(out, ((i, arith.ONE),)), args=(te.const(2, "float32"),)))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    actual = run(program([rows], [out], b), [array], intrinsics={"dot": dot})[0]
    np.testing.assert_array_equal(actual, 10 + 2 * array.sum(1))


def test_value_intrinsics() -> None:
    x, out = buffer("x", 3), buffer("out", 3)
    b = Builder()
    with b.loop(3) as i:
        b.store(out, i, ir.CallIntrinsic(dtype("float32"), "twice", (x[i],)))
    array = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(program([x], [out], b), [array], intrinsics={"twice": lambda v: v + v})[0], 2 * array)


def test_sizes_that_no_input_gives() -> None:
    n = arith.SizeVar("n", upper=8)
    out = buffer("out", n, dtype_name="int64")
    b = Builder()
    with b.loop(n) as i:
        b.store(out, i, ir.as_expr(i))
    assert run(program([], [out], b), [], {n: 3})[0].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="which is unknown"):
        run(program([], [out], b), [])
