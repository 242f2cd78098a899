"""Tensor expressions, lowered and interpreted, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import ir, te
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import run
from inlaid.tensor.lower import lower
from inlaid_runtime import arith
from inlaid_runtime.errors import InputError, KernelFault

RNG = np.random.default_rng(7)


def blocks(program: ir.LoopProgram) -> dict[str, ir.Block]:
    return {stmt.name: stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block)}


def matmul(n: arith.Dim, k: arith.Dim, m: arith.Dim) -> ir.LoopProgram:
    a, b = te.placeholder((n, k), "float32", "a"), te.placeholder((k, m), "float32", "b")
    axis = te.reduce_axis(k, "k")
    c = te.compute((n, m), lambda i, j: te.sum_(a[i, axis] * b[axis, j], axis), "c")
    return lower([c], [a, b], "matmul")


def argmax_reducer() -> te.Reducer:
    def combine(old: tuple[ir.Expr, ...], new: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        better = (old[0] < new[0]) | (old[0].equal(new[0]) & (new[1] < old[1]))
        return te.select(better, new[0], old[0]), te.select(better, new[1], old[1])

    return te.comm_reducer(combine, lambda types: (te.lowest(types[0]), te.const(2**31, types[1])), "argmax")


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (3, 4, 5), (9, 2, 8)])
def test_matmul(n: int, k: int, m: int) -> None:
    a, b = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((n, k), (k, m)))
    np.testing.assert_array_equal(run(matmul(n, k, m), [a, b])[0], a @ b)


def test_symbolic_sizes_and_empty_reduction() -> None:
    n, k = arith.SizeVar("n"), arith.SizeVar("k")
    program = matmul(n, k, 6)
    assert set(blocks(program)) == {"c", "c_empty"}
    for rows, inner in ((3, 4), (5, 0), (0, 2)):
        a, b = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, inner), (inner, 6)))
        np.testing.assert_array_equal(run(program, [a, b])[0], a @ b)


def test_reduction_known_not_to_be_empty_is_one_block() -> None:
    k = arith.SizeVar("k", lower=1)
    assert set(blocks(matmul(3, k, 6))) == {"c"}


def test_empty_reduction_leaves_the_identity() -> None:
    np.testing.assert_array_equal(run(matmul(2, 0, 3), [np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)])[0], 0)


def test_block_declares_reads_writes_and_kinds() -> None:
    block = blocks(matmul(3, 4, 5))["c"]
    assert [item.kind for item in block.iters] == [ir.IterKind.SPATIAL, ir.IterKind.SPATIAL, ir.IterKind.REDUCTION]
    assert [region.buffer.name for region in block.reads] == ["a", "b"]
    assert [region.buffer.name for region in block.writes] == ["c"]
    i, _, k = (item.var for item in block.iters)
    assert block.reads[0].ranges == ((i, arith.ONE), (k, arith.ONE))


def test_chain_allocates_intermediates() -> None:
    a = te.placeholder((4, 5), "float32", "a")
    b = te.compute((4, 5), lambda i, j: a[i, j] + 1.0, "b")
    k = te.reduce_axis(5)
    c = te.compute((4,), lambda i: te.max_(b[i, k], k), "c")
    d = te.compute((4, 5), lambda i, j: b[i, j] - c[i], "d")
    program = lower([d], [a], "chain")
    assert [stmt.buffer.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)] == ["b", "c"]
    x = RNG.standard_normal((4, 5)).astype(np.float32)
    y = x + np.float32(1)
    np.testing.assert_array_equal(run(program, [x])[0], y - y.max(1, keepdims=True))


@pytest.mark.parametrize("components", ["both", "values", "indices"])
def test_argmax(components: str) -> None:
    a = te.placeholder((6, 7), "float32", "a")
    k = te.reduce_axis(7)

    def body(i: arith.Var) -> ir.Expr | tuple[ir.Expr, ...]:
        pair: tuple[ir.Expr, ...] = argmax_reducer()((a[i, k], ir.as_expr(k)), k)
        return pair if components == "both" else pair[components == "indices"]

    result = te.compute((6,), body, "best")
    outputs = list(result) if isinstance(result, tuple) else [result]
    x = RNG.integers(0, 4, (6, 7)).astype(np.float32)
    outputs_by_position = run(lower(outputs, [a], "argmax"), [x])
    expected = {"values": x.max(1), "indices": x.argmax(1)}
    for array, name in zip(outputs_by_position, ["values", "indices"] if components == "both" else [components], strict=True):
        np.testing.assert_array_equal(array, expected[name])


def test_user_reducer_with_state_read_after_it_is_stored() -> None:
    """Mean and variance together (Welford's combination of counts, means and sums of squares)."""
    a = te.placeholder((3, 8), "float64", "a")
    k = te.reduce_axis(8)

    def combine(old: tuple[ir.Expr, ...], new: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        count, delta = old[0] + new[0], new[1] - old[1]
        mean = old[1] + delta * new[0] / count
        return count, mean, old[2] + new[2] + delta * delta * old[0] * new[0] / count

    reducer = te.comm_reducer(combine, lambda types: tuple(te.const(0, dtype) for dtype in types), "welford")
    one, zero = te.const(1, "float64"), te.const(0, "float64")
    moments = te.compute((3,), lambda i: reducer((one, a[i, k], zero), k), "moments")
    x = RNG.standard_normal((3, 8))
    count, mean, squares = run(lower(moments, [a], "moments"), [x])
    np.testing.assert_array_equal(count, 8)
    np.testing.assert_allclose(mean, x.mean(1))
    np.testing.assert_allclose(squares / 8, x.var(1))


def test_several_values_in_one_compute() -> None:
    a = te.placeholder((4,), "int32", "a")
    low, high = te.compute((4,), lambda i: (a[i] - 1, a[i] + 1), "both")
    x = np.arange(4, dtype=np.int32)
    first, second = run(lower([low, high], [a], "both"), [x])
    np.testing.assert_array_equal(first, x - 1)
    np.testing.assert_array_equal(second, x + 1)


def test_output_that_is_an_input_or_repeated_is_copied() -> None:
    a = te.placeholder((3,), "float32", "a")
    b = te.compute((3,), lambda i: a[i] * 2.0, "b")
    program = lower([a, b, b], [a], "copies")
    x = np.arange(3, dtype=np.float32)
    for actual, expected in zip(run(program, [x]), (x, 2 * x, 2 * x), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_inputs_may_cut_the_graph_and_repeat() -> None:
    a = te.placeholder((3,), "float32", "a")
    b = te.compute((3,), lambda i: a[i] * 2.0, "b")
    c = te.compute((3,), lambda i: b[i] + 1.0, "c")
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(lower([c], [b, b], "cut"), [x, x])[0], x + 1)


def test_missing_input_is_named() -> None:
    a = te.placeholder((3,), "float32", "a")
    with pytest.raises(ValueError, match="reads a"):
        lower([te.compute((3,), lambda i: a[i], "b")], [], "f")


def test_reduction_below_the_root_is_refused() -> None:
    a = te.placeholder((3, 4), "float32", "a")
    k = te.reduce_axis(4)
    with pytest.raises(ValueError, match="must be at the root"):
        te.compute((3,), lambda i: te.sum_(a[i, k], k) * 2.0)
    with pytest.raises(ValueError, match="one reduction"):
        te.compute((3,), lambda i: (te.sum_(a[i, k], k), a[i, 0]))


def test_zero_dimensional() -> None:
    a = te.placeholder((), "float32", "a")
    b = te.compute((), lambda: a[()] + 1.0, "b")
    np.testing.assert_array_equal(run(lower([b], [a], "scalar"), [np.full((), 2, np.float32)])[0], 3)


def test_guarded_load_may_lie_outside() -> None:
    def within(i: arith.Expr) -> arith.Expr:
        return arith.logical_and(arith.compare("<=", 1, i), arith.compare("<", i, 6))

    a = te.placeholder((5,), "float32", "a")
    inside = te.compute((7,), lambda i: te.select(within(i), a[i - 1], 0.0), "padded")
    x = np.arange(1, 6, dtype=np.float32)
    np.testing.assert_array_equal(run(lower([inside], [a], "pad"), [x])[0], np.pad(x, 1))


def test_unguarded_load_outside_is_caught() -> None:
    for extent in (7, 70):
        a = te.placeholder((5,), "float32", "a")
        b = te.compute((extent,), lambda i, a=a: a[i], "b")
        with pytest.raises(AssertionError, match="outside"):
            run(lower([b], [a], "f"), [np.zeros(5, np.float32)])


@pytest.mark.parametrize("extent", [4, 40])
def test_checked_index(extent: int) -> None:
    a, at = te.placeholder((5,), "float32", "a"), te.placeholder((extent,), "int64", "at")
    b = te.compute((extent,), lambda i: a[te.checked(at[i], 0, 4)], "b")
    program = lower([b], [a, at], "take")
    x, where = np.arange(5, dtype=np.float32), RNG.integers(0, 5, extent)
    np.testing.assert_array_equal(run(program, [x, where])[0], x[where])
    for wrong in (-1, 5):
        where[2] = wrong
        with pytest.raises(KernelFault):
            run(program, [x, where])


def nonzero_program(n: arith.Dim) -> ir.LoopProgram:
    a = te.placeholder((n,), "float32", "a")
    size = arith.SizeVar("?count", upper=n)

    def body(b, inputs, outputs) -> None:  # type: ignore[no-untyped-def]
        (x,), (out, count) = inputs, outputs
        b.store(count, (), 0)
        with b.loop(n) as i, b.if_(x[i].not_equal(0.0)):
            b.store(count, (), count[()] + 1)
        at = b.alloc((), "int64", "at")
        b.store(at, (), 0)
        with b.loop(n) as i, b.if_(x[i].not_equal(0.0)):
            column = b.let(at[()], "place", bounds=(0, n - 1))
            for row in range(2):
                b.store(out, (row, column), ir.as_expr(i * (row + 1)))
            b.store(at, (), at[()] + 1)

    (positions,) = te.extern([((2, size), "int64")], [a], body, "nonzero", defines=[size])
    return lower([positions], [a], "nonzero")


def test_extern_defines_a_size() -> None:
    program = nonzero_program(arith.SizeVar("n"))
    assert [buffer.name for buffer in program.outputs] == ["nonzero_0", "nonzero_size0"]
    for x in (np.array([0, 3, 0, 5, 6], np.float32), np.zeros(3, np.float32), np.ones(4, np.float32)):
        positions, count = run(program, [x])
        expected = np.flatnonzero(x)
        np.testing.assert_array_equal(positions, np.stack([expected, 2 * expected]))
        assert count == len(expected)


def test_inputs_that_do_not_fit_are_refused() -> None:
    program = matmul(3, arith.SizeVar("k"), 5)
    good = np.zeros((3, 4), np.float32), np.zeros((4, 5), np.float32)
    for bad in (good[:1], (good[0], good[1][:3]), (good[0].astype(np.float64), good[1]), (good[0], good[1][0])):
        with pytest.raises(InputError):
            run(program, list(bad))


def test_scan() -> None:
    """A recurrent layer: h' = tanh(W h + x[t])."""
    n = arith.SizeVar("n")
    x, w, h0 = te.placeholder((n, 3), "float64", "x"), te.placeholder((3, 3), "float64", "w"), te.placeholder((3,), "float64", "h")
    k = te.reduce_axis(3)

    def step(t: arith.Var, states: tuple[te.Tensor, ...]) -> list[te.Tensor]:
        (h,) = states
        halved = te.compute((3, 3), lambda i, j: w[i, j] * 0.5, "halved")
        product = te.compute((3,), lambda i: te.sum_(halved[i, k] * h[k], k), "product")
        return [te.compute((3,), lambda i: te.math("tanh", product[i] + x[t, i]), "next")]

    (states,) = te.scan([h0], n, step)
    program = lower([states], [x, w, h0], "recurrent")
    verify(program)
    # What no step changes is computed once, before the loop.
    assert "halved" not in {stmt.name for stmt in ir.walk_stmts(_loop_over_steps(program)) if isinstance(stmt, ir.Block)}
    xs, ws, h = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 3)), RNG.standard_normal(3)
    expected = []
    state = h
    for row in xs:
        state = np.tanh(ws * 0.5 @ state + row)
        expected.append(state)
    np.testing.assert_allclose(run(program, [xs, ws, h])[0], expected)
    assert run(program, [xs[:0], ws, h])[0].shape == (0, 3)


def _loop_over_steps(program: ir.LoopProgram) -> ir.Stmt:
    return next(stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.var.name == "t")


def test_scan_updates_all_states_at_once() -> None:
    one = te.placeholder((), "int64", "one")
    both = te.scan([one, one], 8, lambda t, s: [s[1], te.compute((), lambda: s[0][()] + s[1][()], "sum")], "fibonacci")
    a, b = run(lower(list(both), [one], "fibonacci"), [np.array(1)])
    assert a.tolist() == [1, 2, 3, 5, 8, 13, 21, 34]
    assert b.tolist() == [2, 3, 5, 8, 13, 21, 34, 55]


def test_scans_nest() -> None:
    """sum over u <= t of u, twice: the inner scan starts anew in every step of the outer."""
    zero = te.placeholder((), "int64", "zero")

    def outer(t: arith.Var, states: tuple[te.Tensor, ...]) -> list[te.Tensor]:
        def inner(u: arith.Var, inside: tuple[te.Tensor, ...]) -> list[te.Tensor]:
            return [te.compute((), lambda: inside[0][()] + ir.as_expr(u + t), "add")]

        (sums,) = te.scan([states[0]], 3, inner, "inner")
        return [te.compute((), lambda: sums[2], "last")]

    (scan_output,) = te.scan([zero], 4, outer, "outer")
    program = lower([scan_output], [zero], "nested")
    verify(program)
    expected, state = [], 0
    for t in range(4):
        state += sum(u + t for u in range(3))
        expected.append(state)
    assert run(program, [np.array(0)])[0].tolist() == expected


def test_scan_keeps_shapes_and_dtypes() -> None:
    h = te.placeholder((3,), "float32", "h")
    with pytest.raises(ValueError, match="must keep the shapes"):
        te.scan([h], 4, lambda t, s: [te.compute((2,), lambda i: s[0][i], "less")])


def test_computed_tensors_that_only_indices_read_are_lowered() -> None:
    table, x = te.placeholder((4,), "float32", "table"), te.placeholder((3,), "int32", "x")
    places = te.compute((3,), lambda i: x[i] - 1, "places")
    chosen = te.compute((3,), lambda i: table[ir.checked(places[i], 0, 3)], "chosen")
    program = lower([chosen], [table, x], "take")
    assert list(blocks(program)) == ["places", "chosen"]
