"""Schedules by hand: declared with `inlaid.te`, scheduled with `inlaid.Schedule`, built by `inlaid.build`."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid import te
from inlaid.plugins.registry import default_registry
from inlaid.tensor.schedule import PRIMITIVES

needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)
TARGET = "x86:threads=1"


def integers(*shape):
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


def product(rows, columns, depth):
    a, b = te.placeholder((rows, depth), "float32", "a"), te.placeholder((depth, columns), "float32", "b")
    k = te.reduce_axis(depth, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "c")
    return te.program([a, b], [c], "product")


def chain():
    a = te.placeholder((6,), "float32", "a")
    b = te.compute((6,), lambda i: a[i] + 1, "b")
    return inlaid.Schedule(te.program([a], [te.compute((6,), lambda i: b[i] * 2, "c")], "chain"))


# --- declaring --------------------------------------------------------------------------------------------------------


def test_indices_read_as_they_are_written():
    a, w = te.placeholder((12, 9), "float32", "a"), te.placeholder((3, 2), "float32", "w")
    ky, kx = te.reduce_axis(3, "ky"), te.reduce_axis(2, "kx")
    rows = te.compute((5, 8), lambda y, x: te.sum_(a[2 * y + ky, x + kx] * w[ky, kx], (ky, kx)), "rows")
    flat = te.compute((40,), lambda i: rows[i // 8, i % 8], "flat")
    selection = te.compute((40,), lambda i: te.select((i >= 8) & (flat[i] > 0), flat[i], flat[i % 4] * i), "found")
    program = te.program([a, w], [selection], "window")
    data, weights = integers(12, 9), integers(3, 2)
    expected = sum(data[y : y + 9 : 2, x : x + 8] * weights[y, x] for y in range(3) for x in range(2)).reshape(-1)
    indices = np.arange(40)
    expected = np.where((indices >= 8) & (expected > 0), expected, expected[indices % 4] * indices)
    np.testing.assert_array_equal(inlaid.interpret(inlaid.Schedule(program), data, weights), expected)


def test_loops_and_blocks_are_named_as_axes_and_computes():
    schedule = inlaid.Schedule(product(4, 4, 4))
    assert schedule.blocks == ("c",)
    assert [loop.name for loop in schedule.loops("c")] == ["i", "j", "k"]
    assert "iter vi = i in 4" in str(schedule)
    assert [loop.name for loop in chain().loops("b")] == ["i"]


def test_axes_of_other_bodies_have_numbers():
    a = te.placeholder((3, 4), "float32", "a")
    program = te.program([a], [te.compute(a.shape, lambda *i: a[i] + 1, "b")])
    assert [loop.name for loop in inlaid.Schedule(program).loops("b")] == ["i0", "i1"]


A = te.placeholder((3, 4), "float32", "a")
K = te.reduce_axis(4, "k")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: te.placeholder((3,), "flot32"), "expected an element type, got 'flot32'"),
        (lambda: te.placeholder(3, "float32", "b"), "the shape of b must be a sequence"),
        (lambda: te.placeholder((-1,), "float32", "b"), "the shape of b must be a sequence"),
        (lambda: te.reduce_axis("4"), "the shape of k must be a sequence"),
        (lambda: te.compute((3,), lambda i: A[i], "b"), "a has 2 dimensions, got 1 indices"),
        (lambda: te.compute((3,), lambda i: A[i, i * 0.5], "b"), "the body of b must return a value, but raised TypeError"),
        (lambda: te.compute((3,), lambda i, j: A[i, j], "b"), "the body of b must return a value, but raised TypeError"),
        (lambda: te.compute((3,), lambda i: A[i, 0] if i < 2 else A[i, 1], "b"), "known only at run time: use select"),
        (lambda: te.compute((3,), lambda i: te.sum_(A[i, i], (i,)), "b"), "sum reduces over axes made by reduce_axis, got i"),
        (lambda: te.compute((3,), lambda i: 1 + te.sum_(A[i, K], K), "b"), "a reduction must be at the root of b"),
        (
            lambda: te.compute((3,), lambda i: A[i, 0] + te.const(1, "int32"), "b"),
            "operands of add must have one dtype, got float32 and int32",
        ),
        (lambda: te.program([], [te.compute((3,), lambda i: A[i, 0], "b")]), "main reads a, which is not among its inputs"),
        (lambda: te.program([A], [te.compute((3,), lambda i: A[i, 0], "a")]), "parameters of program main need distinct names"),
        (lambda: te.program([A], [te.compute((3,), lambda i: A[i + 1, 0], "b")]), "a is read at (vi + 1), from 1 to 3"),
        (
            lambda: te.program([A], [te.compute((3,), lambda i: A[i, i - 1], "b")]),
            "an index must be in [0, 4), but a is read at (vi + -1), from -1 to 1",
        ),
        (lambda: te.program([A], [3]), "program main takes sequences of tensors, got 3"),
        (lambda: inlaid.Schedule(A), "expected a loop program, got Tensor; build one with te.program"),
        (lambda: inlaid.build(product(2, 2, 2)), "expected an inlaid.Schedule, got LoopProgram"),
    ],
)
def test_what_is_wrong_is_said(declare, message):
    with pytest.raises(inlaid.InlaidError) as caught:
        declare()
    assert message in str(caught.value)


def test_guarded_reads_may_leave_their_buffer():
    b = te.compute((3, 6), lambda i, j: te.select((j >= 1) & (j < 5), A[i, j - 1], 0), "b")
    data = integers(3, 4)
    schedule = inlaid.Schedule(te.program([A], [b], "padded"))
    np.testing.assert_array_equal(inlaid.interpret(schedule, data), np.pad(data, [(0, 0), (1, 1)]))


# --- scheduling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda s, i: s.loops("d"), "unknown block d"),
        (lambda s, i: s.split("i", (None, 2)), "loop of split must be a loop"),
        (lambda s, i: s.split(i, 2), "factors of split must be a tuple of integers and at most one None, got 2"),
        (lambda s, i: s.split(i, (None, "2")), "factors of split must be"),
        (lambda s, i: s.split(i, (True,)), "factors of split must be"),
        (lambda s, i: s.fuse(), "loops of fuse must be loops, got ()"),
        (lambda s, i: s.tile(i, (2,)), "loops of tile must be loops, got i"),
        (lambda s, i: s.compute_at(i, i), "block of compute_at must be a name, got i"),
        (lambda s, i: s.rfactor("c", i, "0"), "axis of rfactor must be an integer, got '0'"),
        (lambda s, i: s.pad("c", 3), "multiples of pad must be a tuple of integers, got 3"),
        (lambda s, i: s.transform_layout("b", "(i) -> (i + j)"), "expected ','"),
        (lambda s, i: s.tensorize(i, "dot"), "unknown intrinsic dot"),
        (lambda s, i: s.annotate(i, "key", 1), "unknown annotation key key"),
    ],
)
def test_wrong_arguments_are_errors_of_inlaid(apply, message):
    schedule = chain()
    before = schedule.program
    with pytest.raises(inlaid.InlaidError) as caught:
        apply(schedule, schedule.loops("c")[0])
    assert message in str(caught.value)
    assert schedule.program is before


def test_lists_stand_for_tuples():
    schedule = chain()
    assert len(schedule.split(schedule.loops("c")[0], [None, 2])) == 2
    assert "split(i, (None, 2))" in str(schedule.trace)


# --- building ---------------------------------------------------------------------------------------------------------


@needs_x86
def test_a_kernel_is_an_executable(tmp_path):
    schedule = chain()
    schedule.vectorize(schedule.split(schedule.loops("c")[0], (None, 2))[1])
    kernel = inlaid.build(schedule, TARGET)
    data = integers(6)
    np.testing.assert_array_equal(kernel(data), (data + 1) * 2)
    np.testing.assert_array_equal(kernel.run({"a": data})["c"], (data + 1) * 2)
    assert kernel.profile({"a": data}).table().count("chain") == 1
    kernel.save(tmp_path / "chain.inlaid")
    np.testing.assert_array_equal(inlaid.runtime.load(tmp_path / "chain.inlaid")(data), (data + 1) * 2)
    for wrong in ((), (data, data), (data[:5],), (data.astype(np.float64),)):
        with pytest.raises(inlaid.InlaidError):
            kernel(*wrong)


@needs_x86
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.data())
def test_any_tiles_of_a_product_agree_with_numpy(rows, columns, depth, data):
    schedule = inlaid.Schedule(product(rows, columns, depth))
    i, j, k = schedule.loops("c")
    i0, i1 = schedule.split(i, (None, data.draw(st.integers(1, 4))))
    j0, j1 = schedule.split(j, (None, data.draw(st.sampled_from([1, 2, 4, 8]))))
    schedule.reorder(i0, j0, k, i1, j1)
    schedule.unroll(i1)
    schedule.vectorize(j1)
    a, b = integers(rows, depth), integers(depth, columns)
    for run in (inlaid.build(schedule, TARGET, cache=False), lambda *arrays: inlaid.interpret(schedule, *arrays)):
        np.testing.assert_array_equal(run(a, b), a @ b)


@needs_x86
def test_sizes_may_be_symbolic():
    n = inlaid.SizeVar("n", 1, 64)
    schedule = inlaid.Schedule(product(n, 8, n))
    i, j, k = schedule.loops("c")
    outer, inner = schedule.split(i, (None, 4))
    schedule.reorder(outer, k, inner, j)
    schedule.vectorize(j)
    kernel = inlaid.build(schedule, TARGET)
    for size in (1, 4, 13, 64):
        a, b = integers(size, size), integers(size, 8)
        np.testing.assert_array_equal(kernel(a, b), a @ b)
    with pytest.raises(inlaid.InlaidError):
        kernel(integers(65, 65), integers(65, 8))


@needs_x86
def test_several_outputs_and_scans():
    x, h = te.placeholder((5, 3), "float32", "x"), te.placeholder((3,), "float32", "h")
    (states,) = te.scan([h], 5, lambda t, s: [te.compute((3,), lambda i: s[0][i] * 2 + x[t, i], "step")], "recurrence")
    twice = te.compute((3,), lambda i: states[4, i] * 2, "twice")
    kernel = inlaid.build(inlaid.Schedule(te.program([x, h], [twice, states])), TARGET)
    data, state = integers(5, 3), integers(3)
    expected = []
    for row in data:
        state = state * 2 + row
        expected.append(state)
    last, every = kernel(data, integers(3))
    np.testing.assert_array_equal(every, expected)
    np.testing.assert_array_equal(last, expected[-1] * 2)


@needs_x86
def test_an_output_in_another_layout_is_returned_so():
    schedule = chain()
    schedule.transform_layout("c", "(i) -> ((i // 4), (i % 4))", 0)
    data = integers(6)
    expected = np.pad((data + 1) * 2, (0, 2)).reshape(2, 4)
    np.testing.assert_array_equal(inlaid.build(schedule, TARGET)(data), expected)


@needs_x86
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.set_scope("b", "register"), "register buffer b, i, must be constant, but varies with loop i"),
        (lambda s: s.set_scope("b", "far"), "buffer b in scope 'far'"),
        (lambda s: s.bind(s.loops("c")[0], "threadIdx.x"), "expected a loop kind of CPUs"),
    ],
)
def test_what_a_target_lacks_is_said(change, message):
    schedule = chain()
    change(schedule)
    with pytest.raises(inlaid.InlaidError) as caught:
        inlaid.build(schedule, TARGET)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("reference", "target reference accepts graphs, not loop programs; build for"),
        ("nothing", "no target 'nothing' is installed"),
        (["x86"], "expected a target string, got ['x86']"),
    ],
)
def test_targets_without_loop_programs_are_refused(target, message):
    with pytest.raises(inlaid.InlaidError) as caught:
        inlaid.build(chain(), target)
    assert message in str(caught.value)


@pytest.mark.skipif("microcontroller" not in default_registry().kinds(), reason="the microcontroller plugin is not installed")
def test_a_microcontroller_takes_schedules():
    registry = default_registry()
    if not registry.probe(registry.target("microcontroller")).available:
        pytest.skip("there is no C compiler: apt-get install gcc")
    data = integers(6)
    np.testing.assert_array_equal(inlaid.build(chain(), "microcontroller")(data), (data + 1) * 2)


def test_the_interpreter_runs_threads():
    schedule = chain()
    schedule.set_scope("b", "shared")
    schedule.bind(schedule.loops("b")[0], "threadIdx.x")
    np.testing.assert_array_equal(inlaid.interpret(schedule, integers(6)), (integers(6) + 1) * 2)
    with pytest.raises(inlaid.InlaidError, match="input a of chain has shape"):
        inlaid.interpret(schedule, integers(5))


def test_capabilities_are_data():
    assert "float32" in inlaid.capabilities("reference").dtypes
    assert inlaid.intrinsics("reference") == ()


def test_the_arguments_of_every_primitive_are_checked():
    """A primitive with a parameter of a kind that `arguments` does not know would fail with a KeyError."""
    schedule = chain()
    for name in sorted(PRIMITIVES - {"annotate", "loops", "tensorize"}):
        method = getattr(schedule, name)
        parameters = [item for item in signature(method).parameters.values() if item.default is item.empty]
        with pytest.raises(inlaid.InlaidError, match=f"of {name} must be|{name} takes|{name} arguments must"):
            method(*(object() for _ in parameters))


@needs_x86
def test_instructions_are_tensor_intrinsics():
    with pytest.raises(inlaid.InlaidError, match="expected tensor intrinsics with emitters as instructions, got 3"):
        inlaid.build(chain(), TARGET, instructions=(3,))


@needs_x86
def test_an_intrinsic_without_an_emitter_is_refused():
    a = te.placeholder((4,), "float32", "a")

    def add(builder, inputs, outputs):
        with builder.loop(4) as i:
            builder.store(outputs[0], i, inputs[0][i] + 1)

    increment = inlaid.TensorIntrin("increment", te.program([a], te.extern([((4,), "float32")], [a], add)))
    x = te.placeholder((8,), "float32", "x")
    schedule = inlaid.Schedule(te.program([x], [te.compute((8,), lambda i: x[i] + 1, "y")]), intrinsics=(increment,))
    schedule.tensorize(schedule.split(schedule.loops("y")[0], (None, 4))[1], "increment")
    np.testing.assert_array_equal(inlaid.interpret(schedule, integers(8)), integers(8) + 1)
    with pytest.raises(inlaid.InlaidError, match=r"pass its emitter to inlaid\.build, in instructions"):
        inlaid.build(schedule, TARGET)


def window(layout: str) -> inlaid.Schedule:
    """Sums of windows, four channels at a time in registers that lie as a layout says."""
    x, w = te.placeholder((8, 11), "float32", "x"), te.placeholder((4, 8, 3), "float32", "w")
    c, r = te.reduce_axis(8, "c"), te.reduce_axis(3, "r")
    total = te.compute((4, 9), lambda o, q: te.sum_(x[c, q + r] * w[o, c, r], (c, r)), "total")
    schedule = inlaid.Schedule(te.program([x, w], [te.compute((4, 9), lambda o, q: te.maximum(total[o, q], 0), "out")], "window"))
    schedule.set_scope("total", "register")
    schedule.transform_layout("total", layout)
    o, q = schedule.loops("out")
    outer, inner = schedule.split(q, (None, 3))
    schedule.reorder(outer, inner, o)
    schedule.compute_at("total", outer)
    assert [loop.name for loop in schedule.loops("total")] == ["q_0", "o", "q", "c", "r"]
    _, o, q, c, r = schedule.loops("total")
    schedule.reorder(c, r, q, o)
    zero = schedule.decompose_reduction("total", c)
    for block in (zero, "total", "out"):
        column, lane = schedule.loops(block)[-2:]
        schedule.unroll(column)
        schedule.vectorize(lane)
    return schedule


@needs_x86
def test_lanes_of_registers_are_neighbors():
    x, w = integers(8, 11), integers(4, 8, 3)
    expected = np.maximum(sum(w[:, :, r] @ x[:, r : r + 9] for r in range(3)), 0)
    np.testing.assert_array_equal(inlaid.build(window("(o, q) -> (q, o)"), TARGET)(x, w), expected)
    with pytest.raises(inlaid.InlaidError) as caught:
        inlaid.build(window("(o, q) -> (o, q)"), TARGET)
    assert "must be contiguous in register buffer total" in str(caught.value)
    assert "make the vectorized index the last one by transform_layout" in str(caught.value)
