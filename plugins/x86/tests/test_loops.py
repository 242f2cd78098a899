"""Loops that are one region: rounds counted, scanned and stopped by data, states that change places, held to the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.driver import loop_lowering
from inlaid.driver.compile import build_package
from inlaid.graph import ir as graph
from inlaid.passes.manager import UnitPass
from inlaid_runtime import Executable
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Loop
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import TensorType
from inlaid_x86 import compilers

pytestmark = pytest.mark.usefixtures("host")

F32, I64, BOOL = "float32", "int64", "bool"
TRUE = graph.constant(np.array(True))
HALF = graph.constant(np.float32(0.5))


def variable(name, shape=(), dtype=F32):
    return graph.var(name, TensorType(shape, dtype))


def loops_left(function):
    """The loops that the executor runs itself."""
    package = build_package(graph.Module({"main": function}), ["x86:threads=1"])
    return [item for plan in package.program.plans.values() for item in plan.instructions if isinstance(item, Loop)]


def check(function, *feeds, threads=1, left=0):
    """One region runs the loop, and gives what the reference gives."""
    assert len(loops_left(function)) == left
    native, reference = (inlaid.compile(function, targets=[name]) for name in (f"x86:threads={threads}", "reference"))
    for feed in feeds:
        expected, actual = reference.run(feed), native.run(feed)
        assert expected.keys() == actual.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6)
            assert actual[name].dtype == value.dtype and actual[name].shape == value.shape
    return native


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def recurrence(length, width=5, batch=2):
    """A state and its product with what is scanned, stacked; the weights are worked out before."""
    x, h, w = variable("x", (length, batch, width)), variable("h", (batch, width)), variable("w", (width, width))
    step, old, row = variable("step", (), I64), variable("old", (batch, width)), variable("row", (batch, width))
    weights = variable("weights", (width, width))
    new = ops.tanh(ops.add(row, ops.matmul(old, weights)))
    body = graph.function([step, old, row], graph.tuple_([TRUE, new, ops.mul(new, row)]))
    looped = graph.loop(body, state=[h], scanned=[x])
    results = graph.tuple_([graph.tuple_item(looped, 0), graph.tuple_item(looped, 1)])
    return graph.function([x, h, w], graph.let(weights, ops.tanh(w), results))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("length", [0, 1, 2, 19])
def test_scanned_and_stacked(length, threads):
    check(recurrence(length), {"x": random(length, 2, 5), "h": random(2, 5), "w": random(5, 5)}, threads=threads)


def test_open_lengths_and_batches():
    """A state's bytes are worked out anew after the rounds, of which there may be none."""
    function = recurrence(SizeVar("length"), batch=SizeVar("batch"))
    sizes = ((3, 2), (0, 1), (1, 4))
    check(function, *({"x": random(length, batch, 5), "h": random(batch, 5), "w": random(5, 5)} for length, batch in sizes))


def test_lengths_that_only_the_run_knows():
    feeds = [{"x": random(n, 2, 5), "h": random(2, 5), "w": random(5, 5)} for n in (1, 0, 7, 4)]
    check(recurrence(SizeVar("n")), *feeds)


def counted(width=3):
    """States that change places with one another, one that stays and one that counts, until a bound or a limit."""
    trips, start, bound = variable("trips", (), I64), variable("start", (), BOOL), variable("bound", (), I64)
    a, b = variable("a", (width,)), variable("b", (width,))
    step, count = variable("step", (), I64), variable("count", (), I64)
    s, t, invariant = (variable(name, (width,)) for name in ("s", "t", "same"))
    more = ops.add(count, ops.add(step, graph.constant(np.int64(1))))
    body = graph.function(
        [step, s, t, invariant, count], graph.tuple_([ops.less(more, bound), ops.add(t, invariant), s, invariant, more])
    )
    zero = ops.cast(ops.mul(trips, graph.constant(np.int64(0))), dtype=I64)
    looped = graph.loop(body, state=[a, b, a, zero], trip_count=trips, condition=start)
    return graph.function([trips, start, bound, a, b], graph.tuple_([graph.tuple_item(looped, index) for index in range(4)]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 9), st.booleans(), st.integers(-2, 40)), min_size=1, max_size=3))
def test_rounds_that_data_ends(cases):
    feeds = [
        {"trips": np.int64(trips), "start": np.bool_(start), "bound": np.int64(bound), "a": random(3), "b": random(3) + 1}
        for trips, start, bound in cases
    ]
    check(COUNTED, *feeds)


COUNTED = counted()


def test_without_a_limit():
    x, step, state = variable("x"), variable("step", (), I64), variable("state")
    new = ops.mul(state, HALF)
    body = graph.function([step, state], graph.tuple_([ops.less(HALF, new), new]))
    looped = graph.loop(body, state=[x], condition=ops.less(HALF, x))
    function = graph.function([x], graph.tuple_([graph.tuple_item(looped, 0)]))
    check(function, *({"x": np.float32(value)} for value in (1000.0, 0.6, 0.1, 3.0)))


def test_stacks_whose_number_only_the_run_knows_are_left_to_the_executor():
    trips, step, x = variable("trips", (), I64), variable("step", (), I64), variable("x", (2,))
    body = graph.function([step], graph.tuple_([TRUE, ops.mul(x, ops.cast(step, dtype=F32))]))
    looped = graph.loop(body, trip_count=trips)
    function = graph.function([trips, x], graph.tuple_([graph.tuple_item(looped, 0)]))
    check(function, {"trips": np.int64(3), "x": random(2)}, left=1)


def test_a_loop_in_a_loop():
    """The inner one is a region, the outer one is not."""
    x, step, state = variable("x", (4,)), variable("step", (), I64), variable("state", (4,))
    inner_step, inner = variable("inner_step", (), I64), variable("inner", (4,))
    body = graph.function([inner_step, inner], graph.tuple_([TRUE, ops.mul(inner, HALF)]))
    halved = graph.tuple_item(graph.loop(body, state=[state], trip_count=graph.constant(np.int64(3))), 0)
    outer = graph.function([step, state], graph.tuple_([TRUE, ops.add(halved, x)]))
    looped = graph.loop(outer, state=[x], trip_count=graph.constant(np.int64(5)))
    check(graph.function([x], graph.tuple_([graph.tuple_item(looped, 0)])), {"x": random(4)}, left=1)


def test_a_fault_in_a_round():
    """It names the kernel; the executable runs on afterwards, with and without a profile."""
    table, indices = variable("table", (5, 2)), variable("indices", (4, 1), I64)
    step, total, index = variable("step", (), I64), variable("total", (1, 2)), variable("index", (1,), I64)
    body = graph.function([step, total, index], graph.tuple_([TRUE, ops.add(total, ops.take(table, index, axis=0))]))
    looped = graph.loop(body, state=[graph.constant(np.zeros((1, 2), np.float32))], scanned=[indices])
    function = graph.function([table, indices], graph.tuple_([graph.tuple_item(looped, 0)]))
    good = {"table": random(5, 2), "indices": np.array([[0], [4], [2], [2]])}
    bad = {**good, "indices": np.array([[0], [1], [7], [2]])}
    native = check(function, good)
    for _ in range(2):
        with pytest.raises(KernelFault, match="an index is out of range in kernel take"):
            native.run(bad)
        (value,) = native.run(good).values()
        np.testing.assert_allclose(value, good["table"][[0, 4, 2, 2]].sum(0, keepdims=True), rtol=1e-6)


def test_the_profile_adds_up_the_rounds_of_each_kernel():
    function = recurrence(19)
    feed = {"x": random(19, 2, 5), "h": random(2, 5), "w": random(5, 5)}
    executable = inlaid.compile(function, targets=["x86:threads=1"])
    plain = executable.run(feed)
    profile = executable.profile(feed)
    names = [event.name for event in profile.events]
    assert any(name.startswith("matmul") for name in names)
    assert all(event.seconds >= 0 for event in profile.events)
    again = executable.run(feed)
    assert all(np.array_equal(plain[name], again[name]) for name in plain)


@pytest.mark.parametrize(("direction", "threads"), [("forward", 1), ("reverse", 2), ("bidirectional", 1), ("bidirectional", 2)])
@pytest.mark.parametrize(
    ("layer", "gates", "functions"),
    [("lstm", 4, ("Sigmoid", "Tanh", "Tanh")), ("gru", 3, ("Sigmoid", "Tanh")), ("rnn", 1, ("Tanh",))],
)
def test_recurrent_layers(layer, gates, functions, direction, threads):
    """Long enough that they are loops; lengths of sequences differ."""
    steps, batch, inputs, hidden, sides = 23, 3, 5, 18, 1 + (direction == "bidirectional")
    shapes = {
        "x": (steps, batch, inputs), "w": (sides, gates * hidden, inputs), "r": (sides, gates * hidden, hidden),
        "b": (sides, 2 * gates * hidden), "h": (sides, batch, hidden),
    }  # fmt: skip
    if layer == "lstm":
        shapes["c"] = (sides, batch, hidden)
    arguments = [variable(name, shape) for name, shape in shapes.items()]
    lengths = variable("lengths", (batch,), "int32")
    activations = functions * sides
    outputs = getattr(ops, layer)(
        *arguments,
        lengths,
        direction=direction,
        activations=activations,
        alphas=(0.0,) * len(activations),
        betas=(0.0,) * len(activations),
        masked=True,
    )
    results = graph.tuple_([graph.tuple_item(outputs, index) for index in range(len(outputs.type.fields))])
    feed = {name: random(*shape) * np.float32(0.3) for name, shape in shapes.items()}
    check(graph.function([*arguments, lengths], results), {**feed, "lengths": np.array([23, 1, 9], np.int32)}, threads=threads)


def test_equal_kernels_of_several_regions_are_made_once(monkeypatch):
    lowered, compiled = [], []
    kernel_passes, compile_text = loop_lowering.kernel_passes, compilers.compile_text
    count = UnitPass("count", lambda program: lowered.append(program) or program)
    monkeypatch.setattr(loop_lowering, "kernel_passes", lambda *options: (count, *kernel_passes(*options)))
    monkeypatch.setattr(compilers, "compile_text", lambda text, *rest: compiled.append(text) or compile_text(text, *rest))

    def count_kernels(layers):
        """How many kernels are lowered, and modules compiled, for loops of equal bodies."""
        lowered.clear()
        compiled.clear()
        value, h, w = (sequence := variable("x", (4, 2, 5))), variable("h", (2, 5)), variable("w", (5, 5))
        for _ in range(layers):
            step, old, row = variable("step", (), I64), variable("old", (2, 5)), variable("row", (2, 5))
            new = ops.tanh(ops.add(row, ops.matmul(old, w)))
            body = graph.function([step, old, row], graph.tuple_([TRUE, new, new]))
            value = graph.tuple_item(graph.loop(body, state=[h], scanned=[value]), 1)
        main = graph.function([sequence, h, w], value)
        package = build_package(graph.Module({"main": main}), ["x86:threads=1"], keep=False)
        assert len(package.artifacts) == layers
        return len(lowered), len(compiled)

    (kernels, modules), (again, more) = count_kernels(1), count_kernels(3)
    assert again == kernels
    assert more == modules + 2 * 2  # the functions of a region and of its loop have names of their own


@pytest.mark.parametrize("count", [0, 4, 6, 1 << 40, -1])
def test_a_trip_count_that_differs_from_the_rows_of_stacked_outputs(count):
    """The count is a value, the rows are a size: a package may have the one changed without the other."""
    x = variable("x", (3,))
    step, old = variable("step", (), I64), variable("old", (3,))
    body = graph.function([step, old], graph.tuple_([TRUE, ops.add(old, old), ops.neg(old)]))
    looped = graph.loop(body, state=[x], trip_count=graph.constant(np.array(5)))
    function = graph.function([x], graph.tuple_([graph.tuple_item(looped, 0), graph.tuple_item(looped, 1)]))
    package = build_package(graph.Module({"main": function}), ["x86:threads=1"])
    (name,) = package.weights
    feed = {"x": random(3)}
    assert Executable(package).run(feed)["output1"].shape == (5, 3)
    changed = Executable(replace(package, weights={name: np.array(count)}))
    with pytest.raises(KernelFault, match="a loop must run as many iterations as its stacked outputs have rows"):
        changed.run(feed)
